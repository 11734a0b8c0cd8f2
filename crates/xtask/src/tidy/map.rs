//! Checks ARCHITECTURE.md: each file that it names exists, and its glossary stays short.

use super::Source;

const MAP: &str = "ARCHITECTURE.md";

/// Nobody learns more terms than this.
const TERMS_MAX: usize = 25;

/// Complaints about ARCHITECTURE.md.
pub(crate) fn complaints(sources: &[Source]) -> Vec<String> {
    let Some(map) = sources.iter().find(|source| source.path == MAP) else {
        return Vec::new();
    };
    let exists = |path: &str| {
        let ending = format!("/{path}");
        sources
            .iter()
            .any(|source| source.path == path || source.path.ends_with(&ending))
    };
    let missing = files(&map.text).filter(|path| !exists(path));
    let mut complaints: Vec<String> = missing
        .map(|path| format!("{MAP} names `{path}`, which does not exist"))
        .collect();
    let terms = terms(&map.text).count();
    if terms > TERMS_MAX {
        complaints.push(format!("{MAP} defines {terms} terms, at most {TERMS_MAX}"));
    }
    complaints
}

/// Source files in backquotes, by full path or by its end.
fn files(map: &str) -> impl Iterator<Item = &str> {
    let is_file = |text: &&str| {
        let is_path = |letter: char| letter.is_ascii_alphanumeric() || "_-./".contains(letter);
        super::is_rust(text) && text.chars().all(is_path)
    };
    map.split('`').skip(1).step_by(2).filter(is_file)
}

/// The rows of the table below `## Glossary`.
fn terms(map: &str) -> impl Iterator<Item = &str> {
    let section = map
        .split_once("\n## Glossary\n")
        .map_or("", |(_, section)| section);
    let section = section
        .split_once("\n## ")
        .map_or(section, |(section, _)| section);
    section.lines().filter(|line| line.starts_with("| **"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(map: &str) -> Vec<String> {
        let source = |path: &str, text: &str| Source {
            path: path.to_owned(),
            text: text.to_owned(),
        };
        complaints(&[source(MAP, map), source("crates/a/src/b/c.rs", "")])
    }

    #[test]
    fn a_file_that_does_not_exist_is_named() {
        assert!(said("`a/src/b/c.rs`, `c.rs`, `Admitted`, `x => y.rs`").is_empty());
        let [complaint] = &said("see `a/src/b/d.rs`")[..] else {
            panic!("one file is missing");
        };
        assert!(complaint.contains("`a/src/b/d.rs`"), "{complaint}");
    }

    #[test]
    fn a_glossary_that_grew_too_long_is_refused() {
        let glossary = |terms: usize| {
            format!(
                "\n## Glossary\n{}\n## Next\n| **x** |",
                "| **t** |\n".repeat(terms)
            )
        };
        assert!(said(&glossary(TERMS_MAX)).is_empty());
        assert_eq!(said(&glossary(TERMS_MAX + 1)).len(), 1);
    }
}
