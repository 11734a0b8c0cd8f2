//! `cargo xtask session`: runs commands on a terminal and draws what it shows, for the manual. What a reader sees there has
//! happened.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::bench::escaped;
use crate::workspace;

/// What is typed, line by line.
const LINES: [&str; 6] = [
    "hotcell run -c 'print(sum(range(10)))'",
    "hotcell run -- sh -c 'id -un; ls /home; curl -s https://example.com || echo no network'",
    "hotcell run --memory 64m -c 'bytearray(10**9)'",
    "hotcell run --timeout 2 -- sh -c 'sleep 100 & sleep 100'",
    "echo hello | hotcell run -- tr a-z A-Z",
    "time hotcell run -- true",
];

/// The width of the terminal, and of a letter and a line of the picture.
const COLUMNS: usize = 92;
const LETTER: f64 = 8.0;
const LINE: f64 = 18.0;
const MARGIN: f64 = 16.0;

/// `session [--binary HOTCELL] [--out FILE]`.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let mut binary = None;
    let mut out = workspace::root().join("docs/pictures/session.svg");
    for pair in arguments.chunks(2) {
        match pair {
            [flag, value] if flag == "--binary" => binary = Some(PathBuf::from(value)),
            [flag, value] if flag == "--out" => out = PathBuf::from(value),
            _ => bail!("usage: session [--binary HOTCELL] [--out FILE]"),
        }
    }
    let binary = binary.map_or_else(|| workspace::build_release("hotcell"), Ok)?;
    let mut screen = Vec::new();
    for line in LINES {
        screen.push(prompt(line));
        let shown = typed(line, &binary)?;
        screen.extend(shown.lines().map(spans));
    }
    std::fs::write(&out, picture(&screen)).with_context(|| format!("write {}", out.display()))
}

/// Runs a line by a shell on a terminal; returns what it shows.
fn typed(line: &str, binary: &Path) -> Result<String> {
    let home = std::env::temp_dir().join(format!("hotcell-session-{}", std::process::id()));
    let programs = home.join("bin");
    std::fs::create_dir_all(&programs)?;
    let hotcell = programs.join("hotcell");
    if !hotcell.exists() {
        std::os::unix::fs::symlink(binary.canonicalize()?, &hotcell)?;
    }
    let path = std::env::var("PATH").unwrap_or_default();
    let sized = format!("stty cols {COLUMNS}; TIMEFORMAT='%3R s'; {line}");
    let output = Command::new("script")
        .args(["--quiet", "--command", &sized, "/dev/null"])
        .env("PATH", format!("{}:{path}", programs.display()))
        .env("HOME", &home)
        .env("SHELL", "/bin/bash")
        .env("TERM", "xterm-256color")
        .env("HOTCELL_STATE_DIR", home.join("state"))
        .env_remove("NO_COLOR")
        .stdin(Stdio::null())
        .output()
        .context("run script (of bsdutils)");
    let removed = std::fs::remove_dir_all(&home);
    let text = String::from_utf8(output?.stdout).context("it shows no text")?;
    removed?;
    ensure!(!text.contains("not found"), "{line}: {text}");
    Ok(text.replace('\r', ""))
}

/// Text in one colour, by its class in the picture.
#[derive(Debug, PartialEq, Eq)]
struct Span {
    class: &'static str,
    text: String,
}

fn prompt(line: &str) -> Vec<Span> {
    let span = |class, text: &str| Span {
        class,
        text: text.to_owned(),
    };
    vec![span("prompt", "$ "), span("typed", line)]
}

/// A line of a terminal, cut where its colour changes. Other escape sequences than colours are left out.
fn spans(line: &str) -> Vec<Span> {
    let mut found = Vec::new();
    let mut class = "plain";
    for (number, piece) in line.split("\u{1b}[").enumerate() {
        let mut text = piece;
        if number > 0 {
            let end = piece.find(|letter: char| letter.is_ascii_alphabetic());
            let (code, rest) = piece.split_at(end.unwrap_or(piece.len()));
            if rest.starts_with('m') {
                class = class_of(code);
            }
            text = rest.get(1..).unwrap_or_default();
        }
        if !text.is_empty() {
            let text = text.to_owned();
            found.push(Span { class, text });
        }
    }
    found
}

fn class_of(code: &str) -> &'static str {
    match code.rsplit(';').next().unwrap_or_default() {
        "31" | "91" => "red",
        "32" | "92" => "green",
        "33" | "93" => "yellow",
        "34" | "94" | "36" | "96" => "blue",
        "1" => "bold",
        "2" | "90" => "dim",
        _ => "plain",
    }
}

/// The lines as a terminal shows them.
fn picture(lines: &[Vec<Span>]) -> String {
    #[expect(clippy::cast_precision_loss, reason = "a few lines")]
    let [columns, rows] = [COLUMNS, lines.len()].map(|count| count as f64);
    let (width, height) = (columns * LETTER + 2.0 * MARGIN, rows * LINE + 2.0 * MARGIN);
    let mut out = format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">
<style>text {{ font: 13px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; fill: #d4d4d4; white-space: pre; }}
.prompt {{ fill: #6a9955; }} .typed {{ fill: #fff; font-weight: 600; }} .red {{ fill: #f48771; }} .green {{ fill: #89d185; }}
.yellow {{ fill: #e2c08d; }} .blue {{ fill: #75beff; }} .bold {{ font-weight: 600; }} .dim {{ fill: #858585; }}</style>
<rect width="100%" height="100%" rx="8" fill="#1e1e1e"/>
"##
    );
    let mut y = MARGIN + LINE * 0.75;
    for line in lines {
        let _ = write!(
            out,
            r#"<text x="{MARGIN}" y="{y:.1}" xml:space="preserve">"#
        );
        for Span { class, text } in line {
            let _ = write!(out, r#"<tspan class="{class}">{}</tspan>"#, escaped(text));
        }
        out.push_str("</text>\n");
        y += LINE;
    }
    out + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_kept_and_other_sequences_are_left_out() {
        let span = |class, text: &str| Span {
            class,
            text: text.to_owned(),
        };
        assert_eq!(
            spans("\u{1b}[32m✓\u{1b}[0m kernel\u{1b}[K"),
            [span("green", "✓"), span("plain", " kernel")]
        );
        assert_eq!(spans(""), []);
    }

    #[test]
    fn what_a_program_says_is_text_in_the_picture() {
        let drawn = picture(&[prompt("echo '<b>'"), spans("<b>")]);
        assert_eq!(drawn.matches("&lt;b&gt;").count(), 2, "{drawn}");
        assert!(drawn.ends_with("</svg>\n"));
    }

    #[test]
    fn a_line_is_run_on_a_terminal() {
        let shown = typed("[ -t 1 ] && tput cols", Path::new("/bin/true"));
        assert_eq!(shown.expect("it runs").trim(), COLUMNS.to_string());
    }
}
