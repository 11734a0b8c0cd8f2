//! Edits one entry of a YAML file in block style: of a mapping or of a list below a key at the top.
//! Every other line stays as it is. A file in another style is refused; it is for its owner to edit.

use std::ops::Range;

use anyhow::{Result, bail, ensure};

use super::node::Node;

/// Spaces before an entry, if a file does not show it.
const USUAL_INDENT: usize = 2;

/// What stands below the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Table,
    List,
}

/// The lines of the entry.
pub(super) fn get(text: &str, key: &str, kind: Kind, name: &str) -> Result<Option<String>> {
    let file = File::read(text, key, kind)?;
    Ok(file.entry(name).map(|range| file.lines[range].join("\n")))
}

/// The lines of an entry as they would stand in this file.
pub(super) fn raw(text: &str, key: &str, kind: Kind, name: &str, entry: &Node) -> Result<String> {
    let indent = " ".repeat(File::read(text, key, kind)?.indent());
    let lines = entry.yaml_lines();
    Ok(match kind {
        Kind::Table => {
            let below = lines.iter().map(|line| format!("\n{indent}  {line}"));
            format!("{indent}{name}:{}", below.collect::<String>())
        }
        Kind::List => {
            let mark = |index| if index == 0 { "- " } else { "  " };
            let lines = lines.iter().enumerate();
            let lines: Vec<String> = lines
                .map(|(index, line)| format!("{indent}{}{line}", mark(index)))
                .collect();
            lines.join("\n")
        }
    })
}

/// The text with the entry replaced, or added as the last one.
pub(super) fn set(text: &str, key: &str, kind: Kind, name: &str, raw: &str) -> Result<String> {
    let file = File::read(text, key, kind)?;
    let mut lines: Vec<String> = file.lines.iter().map(|line| (*line).to_owned()).collect();
    let range = match (file.entry(name), &file.block) {
        (Some(range), _) => range,
        (None, Some(block)) => {
            lines[block.start - 1] = file.open_key_line(block);
            block.end..block.end
        }
        (None, None) => {
            lines.push(format!("{key}:"));
            lines.len()..lines.len()
        }
    };
    lines.splice(range, [raw.to_owned()]);
    Ok(lines.join("\n") + "\n")
}

/// The text without the entry; a key without entries goes too.
pub(super) fn remove(text: &str, key: &str, kind: Kind, name: &str) -> Result<String> {
    let file = File::read(text, key, kind)?;
    let (Some(mut range), Some(block)) = (file.entry(name), &file.block) else {
        return Ok(text.to_owned());
    };
    if range == *block {
        range.start -= 1;
    }
    let mut lines = file.lines.clone();
    lines.drain(range);
    let newline = if lines.is_empty() { "" } else { "\n" };
    Ok(lines.join("\n") + newline)
}

struct File<'a> {
    lines: Vec<&'a str>,
    kind: Kind,
    /// The lines below the key, to the last one with content.
    block: Option<Range<usize>>,
}

impl<'a> File<'a> {
    fn read(text: &'a str, key: &str, kind: Kind) -> Result<Self> {
        ensure!(!text.contains('\r'), "the file has Windows line ends");
        let lines: Vec<&str> = text.lines().collect();
        let is_tabbed = |line: &&str| line.trim_start_matches(' ').starts_with('\t');
        ensure!(!lines.iter().any(is_tabbed), "the file is indented by tabs");
        let is_key = |line: &str| {
            line.strip_prefix(key)
                .is_some_and(|rest| rest.starts_with(':'))
        };
        let keys: Vec<usize> = (0..lines.len()).filter(|at| is_key(lines[*at])).collect();
        let quoted = [format!("\"{key}\""), format!("'{key}'")];
        let is_quoted = |line: &&str| {
            quoted
                .iter()
                .any(|quoted| line.starts_with(quoted.as_str()))
        };
        let is_plain =
            keys.len() <= 1 && !lines.iter().any(is_quoted) && !text.trim_start().starts_with('{');
        ensure!(
            is_plain,
            "`{key}` in the file is written in a way that is not edited"
        );
        let Some(at) = keys.first() else {
            return Ok(Self {
                lines,
                kind,
                block: None,
            });
        };
        let value = lines[*at][key.len() + 1..]
            .split(" #")
            .next()
            .unwrap_or_default()
            .trim();
        if !matches!(value, "" | "{}" | "[]" | "null" | "~") {
            bail!("`{key}` in the file is written in a way that is not edited");
        }
        let start = at + 1;
        let ends = |line: &&str| {
            let is_item = kind == Kind::List && (line.starts_with("- ") || *line == "-");
            is_content(line) && !line.starts_with(' ') && !is_item
        };
        let next = lines[start..]
            .iter()
            .position(ends)
            .map_or(lines.len(), |next| start + next);
        let last = lines[start..next].iter().rposition(|line| is_content(line));
        let block = start..last.map_or(start, |last| start + last + 1);
        Ok(Self {
            lines,
            kind,
            block: Some(block),
        })
    }

    /// The spaces before each entry.
    fn indent(&self) -> usize {
        let block = self.block.clone().unwrap_or_default();
        let first = self.lines[block].iter().find(|line| is_content(line));
        first.map_or(USUAL_INDENT, |line| indent_of(line))
    }

    /// The line of the key, without an empty value.
    fn open_key_line(&self, block: &Range<usize>) -> String {
        let line = self.lines[block.start - 1];
        if !block.is_empty() {
            return line.to_owned();
        }
        let (key, _) = line.split_once(':').unwrap_or((line, ""));
        format!("{key}:")
    }

    /// The lines of the entry, to the last one with content.
    fn entry(&self, name: &str) -> Option<Range<usize>> {
        let block = self.block.clone()?;
        let indent = self.indent();
        let begins = |at: &usize| {
            let line = self.lines[*at];
            let is_item = self.kind == Kind::Table || line[indent..].starts_with('-');
            is_content(line) && indent_of(line) == indent && is_item
        };
        let starts: Vec<usize> = block.clone().filter(begins).collect();
        let ranges = starts.iter().enumerate().map(|(index, start)| {
            let next = starts.get(index + 1).copied().unwrap_or(block.end);
            let last = self.lines[*start..next]
                .iter()
                .rposition(|line| is_content(line))
                .unwrap_or(0);
            *start..start + last + 1
        });
        let mut ranges =
            ranges.filter(|range| self.is_named(&self.lines[range.clone()], indent, name));
        ranges.next()
    }

    fn is_named(&self, lines: &[&str], indent: usize, name: &str) -> bool {
        let value = |text: &str| {
            text.split(" #")
                .next()
                .unwrap_or_default()
                .trim()
                .trim_matches(['"', '\''])
                == name
        };
        match self.kind {
            Kind::Table => lines[0]
                .trim()
                .split_once(':')
                .is_some_and(|(key, _)| value(key)),
            Kind::List => lines.iter().any(|line| {
                let field = line
                    .get(indent..)
                    .unwrap_or_default()
                    .trim_start_matches(['-', ' ']);
                let is_own = indent_of(line) <= indent + 2;
                is_own && field.strip_prefix("name:").is_some_and(value)
            }),
        }
    }
}

fn is_content(line: &str) -> bool {
    let line = line.trim_start();
    !line.is_empty() && !line.starts_with('#')
}

fn indent_of(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "# mine\nMODEL: m\nextensions:\n    a:\n        cmd: a # x\n    # about b\n    b:\n        cmd: b\n\n# the end\nLAST: 1\n";
    const LIST: &str = "name: me\nmcpServers:\n- name: a\n  command: a\n# about b\n- command: b\n  name: \"b\"\nrules:\n- name: x\n";

    #[test]
    fn an_entry_is_added_last_and_removed_again() {
        for (text, kind, key, raw, wanted) in [
            (
                TABLE,
                Kind::Table,
                "extensions",
                "    x:\n        cmd: x",
                TABLE.replace("cmd: b\n", "cmd: b\n    x:\n        cmd: x\n"),
            ),
            (
                LIST,
                Kind::List,
                "mcpServers",
                "- name: x",
                LIST.replace("\"b\"\n", "\"b\"\n- name: x\n"),
            ),
            (
                "a: 1\n",
                Kind::Table,
                "extensions",
                "  x:\n    cmd: x",
                "a: 1\nextensions:\n  x:\n    cmd: x\n".to_owned(),
            ),
        ] {
            let edited = set(text, key, kind, "x", raw).expect("edited");
            assert_eq!(edited, wanted);
            assert_eq!(
                get(&edited, key, kind, "x").expect("read").as_deref(),
                Some(raw)
            );
            assert_eq!(remove(&edited, key, kind, "x").expect("removed"), text);
        }
    }

    #[test]
    fn an_entry_is_replaced_in_its_place() {
        let edited = set(TABLE, "extensions", Kind::Table, "a", "    a: 2").expect("edited");
        assert_eq!(edited, TABLE.replace("a:\n        cmd: a # x", "a: 2"));
        let edited = set(LIST, "mcpServers", Kind::List, "b", "- name: b").expect("edited");
        assert_eq!(
            edited,
            LIST.replace("- command: b\n  name: \"b\"", "- name: b")
        );
    }

    #[test]
    fn an_empty_value_is_opened_and_other_styles_are_refused() {
        let edited = set(
            "extensions: {} # none\nb: 1\n",
            "extensions",
            Kind::Table,
            "x",
            "  x: 1",
        )
        .expect("edited");
        assert_eq!(edited, "extensions:\n  x: 1\nb: 1\n");
        for text in [
            "extensions: {a: {}}\n",
            "extensions: &x\n  a: 1\n",
            "{extensions: {}}\n",
            "extensions:\n\ta: 1\n",
            "\"extensions\":\n  a: 1\n",
            "extensions:\nextensions:\n",
        ] {
            assert!(
                set(text, "extensions", Kind::Table, "x", "  x: 1").is_err(),
                "{text}"
            );
        }
    }
}
