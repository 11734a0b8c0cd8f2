//! Python scripts that show what an interpreter does: in `scripts/python`.

use std::path::Path;

/// A script and what it gets. Its first line may say so: `# args: one|two`, `# stdin: a\nb` or
/// `# env: NAME=value`.
#[derive(Debug)]
pub struct Script {
    /// Without `.py`.
    pub name: String,
    /// Its content, in whatever encoding.
    pub source: Vec<u8>,
    /// Its arguments.
    pub args: Vec<String>,
    /// Its input; empty: none.
    pub stdin: Vec<u8>,
    /// A variable.
    pub env: Option<(String, String)>,
}

/// All scripts, by name.
///
/// # Panics
///
/// If they cannot be read.
pub fn scripts() -> Vec<Script> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/python");
    let entries = std::fs::read_dir(directory).expect("the scripts are in the repository");
    let mut scripts: Vec<_> = entries
        .map(|entry| read(&entry.expect("the directory is readable").path()))
        .collect();
    scripts.sort_by(|one, other| one.name.cmp(&other.name));
    scripts
}

fn read(path: &Path) -> Script {
    let source = std::fs::read(path).expect("the script is readable");
    let text = String::from_utf8_lossy(&source).into_owned();
    let first = text.lines().next().unwrap_or_default();
    let after = |prefix: &str| first.strip_prefix(prefix).map(str::to_owned);
    let args = after("# args: ").map(|args| args.split('|').map(str::to_owned).collect());
    let stdin = after("# stdin: ").map(|text| text.replace("\\n", "\n").replace("\\0", "\0"));
    let env = after("# env: ");
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    Script {
        name: name.into_owned(),
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

/// Output without addresses in memory, which differ each time.
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
