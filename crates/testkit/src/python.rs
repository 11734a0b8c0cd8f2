//! Python scripts that show what an interpreter does: in `scripts/python`.

/// A script and its input. Its first line may define it: `# args: one|two`, `# stdin: a\nb` or
/// `# env: NAME=value`.
#[derive(Debug)]
pub struct Script {
    /// The file name without `.py`.
    pub name: String,
    /// The source, in any encoding.
    pub source: Vec<u8>,
    /// Its arguments.
    pub args: Vec<String>,
    /// Text for standard input; empty means none.
    pub stdin: Vec<u8>,
    /// An environment variable.
    pub env: Option<(String, String)>,
}

const SCRIPTS: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/scripts.rs"));

/// All scripts, by name.
pub fn scripts() -> Vec<Script> {
    SCRIPTS.iter().map(read).collect()
}

fn read((name, source): &(&str, &[u8])) -> Script {
    let source = source.to_vec();
    let text = String::from_utf8_lossy(&source).into_owned();
    let first = text.lines().next().unwrap_or_default();
    let after = |prefix: &str| first.strip_prefix(prefix).map(str::to_owned);
    let args = after("# args: ").map(|args| args.split('|').map(str::to_owned).collect());
    let stdin = after("# stdin: ").map(|text| text.replace("\\n", "\n").replace("\\0", "\0"));
    let env = after("# env: ");
    Script {
        name: (*name).to_owned(),
        source,
        args: args.unwrap_or_default(),
        stdin: stdin.unwrap_or_default().into_bytes(),
        env: env
            .as_deref()
            .and_then(|pair| pair.split_once('='))
            .map(own),
    }
}

fn own((name, value): (&str, &str)) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

/// Output without memory addresses, which differ each time.
pub fn without_addresses(output: &[u8]) -> String {
    let text = String::from_utf8_lossy(output);
    let mut parts = text.split("0x");
    let mut kept = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        kept.push_str("0x…");
        kept.push_str(part.trim_start_matches(|c: char| c.is_ascii_hexdigit()));
    }
    kept
}
