//! Rules about the text of a file alone: its length, its promises, its `unsafe`.

use super::Source;

/// A file that is longer wants to be two.
const LINES_MAX: usize = 600;

/// The only files that may hold `unsafe`.
const UNSAFE_HOMES: [&str; 2] = ["crates/runtime/src/sys.rs", "crates/agent/src/sys.rs"];

/// Written by `cargo xtask codegen`, as long as it likes.
const GENERATED: &str = "crates/agent-api/src/hotcell.agent.v1.rs";

/// Words that put work off. Split, so that this file does not hold them.
const PROMISES: [&str; 4] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("to", "do!("),
    concat!("unimple", "mented!("),
];

/// What is wrong with the text of these files.
pub fn complaints(sources: &[Source]) -> Vec<String> {
    let code = |source: &&Source| is_code(&source.path) && source.path != GENERATED;
    sources.iter().filter(code).flat_map(of_one).collect()
}

fn is_code(path: &str) -> bool {
    super::is_rust(path) || path == "test" || path.starts_with("tests/vm/")
}

fn of_one(source: &Source) -> Vec<String> {
    let Source { path, text } = source;
    let mut complaints = Vec::new();
    let lines = text.lines().count();
    if lines > LINES_MAX {
        complaints.push(format!("{path}: {lines} lines, more than {LINES_MAX}"));
    }
    for (number, line) in text.lines().enumerate() {
        let place = format!("{path}:{}", number + 1);
        if let Some(word) = PROMISES.iter().find(|word| line.contains(**word)) {
            complaints.push(format!("{place}: {word}"));
        }
        if holds_unsafe(line) && !UNSAFE_HOMES.contains(&path.as_str()) {
            complaints.push(format!("{place}: unsafe outside its homes"));
        }
    }
    complaints
}

/// Whether the keyword is in this line, outside of comments and strings.
fn holds_unsafe(line: &str) -> bool {
    let code = line.split("//").next().unwrap_or_default();
    let code = code.replace("\\\"", "");
    let outside_strings = code.split('"').step_by(2);
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    outside_strings
        .flat_map(|piece| piece.split(|letter| !is_part(letter)))
        .any(|word| word == "unsafe")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(path: &str, text: &str) -> Vec<String> {
        complaints(&[Source::of(path, text)])
    }

    #[test]
    fn the_unsafe_keyword_has_two_homes() {
        let line = "let x = unsafe { y() };";
        assert_eq!(of("crates/engine/src/a.rs", line).len(), 1);
        assert!(of("crates/runtime/src/sys.rs", line).is_empty());
        assert!(of("crates/agent/src/sys.rs", line).is_empty());
    }

    #[test]
    fn words_about_unsafe_are_not_unsafe() {
        for line in [
            "#![forbid(unsafe_code)]",
            "// no unsafe here",
            "say(\"unsafe\")",
        ] {
            assert!(of("crates/engine/src/a.rs", line).is_empty(), "{line}");
        }
    }

    #[test]
    fn work_put_off_is_named_with_its_line() {
        let text = format!("fn a() {{}}\n// {}: later", PROMISES[0]);
        let said = of("crates/engine/src/a.rs", &text);
        assert_eq!(said, [format!("crates/engine/src/a.rs:2: {}", PROMISES[0])]);
    }

    #[test]
    fn a_file_of_601_lines_is_too_long() {
        assert!(of("crates/a/src/a.rs", &"\n".repeat(600)).is_empty());
        assert_eq!(of("crates/a/src/a.rs", &"\n".repeat(601)).len(), 1);
        assert!(of(GENERATED, &"\n".repeat(9000)).is_empty());
    }
}
