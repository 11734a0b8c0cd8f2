//! Problems in a configuration file, with their position.

use std::fmt;
use std::path::{Path, PathBuf};

/// Most problems that are shown: the first ones help most.
const SHOWN_MAX: usize = 10;

/// A problem at one position of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    /// The byte offset.
    offset: usize,
    message: String,
}

impl Problem {
    pub(crate) fn new(offset: usize, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { offset, message }
    }
}

/// A rejected file. Displayed as `FILE:LINE:COLUMN: MESSAGE`, one line per problem.
#[derive(Debug)]
pub(crate) struct BrokenFile {
    path: PathBuf,
    problems: Vec<(Position, String)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Position {
    line: usize,
    column: usize,
}

impl BrokenFile {
    pub(super) fn new(path: &Path, text: &str, problems: Vec<Problem>) -> Self {
        let mut problems: Vec<_> = problems
            .into_iter()
            .map(|problem| (position(text, problem.offset), problem.message))
            .collect();
        problems.sort();
        Self {
            path: path.to_owned(),
            problems,
        }
    }
}

impl std::error::Error for BrokenFile {}

impl fmt::Display for BrokenFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        for (number, (at, message)) in self.problems.iter().take(SHOWN_MAX).enumerate() {
            let gap = if number > 0 { "\n" } else { "" };
            let Position { line, column } = at;
            write!(f, "{gap}{path}:{line}:{column}: {message}")?;
        }
        match self.problems.len().saturating_sub(SHOWN_MAX) {
            0 => Ok(()),
            more => write!(f, "\n{path}: and {more} more"),
        }
    }
}

/// Line and column, counted from one. Columns count characters, as editors do.
fn position(text: &str, offset: usize) -> Position {
    let before = text.get(..offset).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |end| end + 1);
    Position {
        line: before.matches('\n').count() + 1,
        column: before[line_start..].chars().count() + 1,
    }
}

/// The known name that is most similar to an unknown one, if any is similar enough.
pub(crate) fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    const LIKENESS_MIN: f64 = 0.75;
    /// Longer names are not compared.
    const NAME_BYTES_MAX: usize = 128;
    if name.len() > NAME_BYTES_MAX {
        return None;
    }
    let name = name.replace('-', "_").to_lowercase();
    let scored = known
        .into_iter()
        .map(|one| (strsim::jaro_winkler(&name, one), one));
    let best = scored.max_by(|one, other| one.0.total_cmp(&other.0))?;
    (best.0 >= LIKENESS_MIN).then_some(best.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_counts_lines_and_characters_from_one() {
        let text = "ab\nüx = 1\n";
        let at = |offset| {
            let Position { line, column } = position(text, offset);
            (line, column)
        };
        assert_eq!((at(0), at(3), at(5)), ((1, 1), (2, 1), (2, 2)));
        // Beyond the end, or within a character: still an answer.
        assert_eq!((at(999), at(4)), ((3, 1), (3, 1)));
    }

    #[test]
    fn the_nearest_name_is_alike() {
        let known = ["memory", "memory_max", "port"];
        assert_eq!(nearest("memry", known), Some("memory"));
        assert_eq!(nearest("memory-max", known), Some("memory_max"));
        assert_eq!(nearest("zebra", known), None);
        assert_eq!(nearest(&"m".repeat(1 << 20), known), None);
    }

    #[test]
    fn a_file_full_of_problems_shows_the_first_ones() {
        let problems = (0..100).map(|at| Problem::new(at, "bad")).rev();
        let text = "\n".repeat(100);
        let broken = BrokenFile::new(Path::new("x.toml"), &text, problems.collect());
        let shown = broken.to_string();
        assert_eq!(shown.lines().count(), SHOWN_MAX + 1);
        assert!(shown.starts_with("x.toml:1:1: bad\nx.toml:2:1: bad"));
        assert!(shown.ends_with("x.toml: and 90 more"));
    }
}
