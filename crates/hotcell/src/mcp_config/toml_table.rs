//! Edits one table of a TOML file, `[KEY.NAME]` with the tables below it. Every other line stays as
//! it is. The caller checks the result by parsing it: what these lines cannot tell (a table written
//! inline, say) is found there.

use std::ops::Range;

use anyhow::{Context, Result, ensure};
use hotcell_upstream::sources::json_of_toml;
use serde_json::Value;
use toml::de::DeTable;

use super::node::Node;

/// The lines of the table.
pub(super) fn get(text: &str, key: &str, name: &str) -> Result<Option<String>> {
    let lines: Vec<&str> = text.lines().collect();
    Ok(find(&lines, key, name)?.map(|range| lines[range].join("\n")))
}

/// The lines of an entry.
pub(super) fn raw(key: &str, name: &str, entry: &Node) -> String {
    format!("[{key}.{name}]\n{}", entry.toml_lines().join("\n"))
}

/// The text with the table replaced, or added at its end.
pub(super) fn set(text: &str, key: &str, name: &str, raw: &str) -> Result<String> {
    let lines: Vec<&str> = text.lines().collect();
    let Some(range) = find(&lines, key, name)? else {
        let before = text.trim_end();
        let gap = if before.is_empty() { "" } else { "\n\n" };
        return Ok(format!("{before}{gap}{raw}\n"));
    };
    let edited = [&lines[..range.start], &[raw], &lines[range.end..]].concat();
    Ok(edited.join("\n") + "\n")
}

/// The text without the table.
pub(super) fn remove(text: &str, key: &str, name: &str) -> Result<String> {
    let lines: Vec<&str> = text.lines().collect();
    let Some(Range { mut start, end }) = find(&lines, key, name)? else {
        return Ok(text.to_owned());
    };
    // With the blank line that separates it.
    if start > 0 && lines[start - 1].trim().is_empty() {
        start -= 1;
    }
    let kept = [&lines[..start], &lines[end..]].concat();
    let newline = if kept.is_empty() { "" } else { "\n" };
    Ok(kept.join("\n") + newline)
}

/// The file as a value, for comparing.
pub(super) fn parse(text: &str) -> Result<Value> {
    // The error of the parser would quote the file, which may hold tokens.
    let table = DeTable::parse(text).ok().context("the file is not TOML")?;
    let fields = table.get_ref().iter();
    Ok(fields
        .map(|(key, value)| (key.get_ref().to_string(), json_of_toml(value.get_ref())))
        .collect())
}

/// The lines from the table's heading to its last line, without what stands between it and the next one.
fn find(lines: &[&str], key: &str, name: &str) -> Result<Option<Range<usize>>> {
    let is_ours = |line: &str| {
        heading(line).is_some_and(|path| path.len() >= 2 && path[0] == key && path[1] == name)
    };
    let Some(start) = lines.iter().position(|line| is_ours(line)) else {
        return Ok(None);
    };
    let next = |line: &&str| heading(line).is_some() && !is_ours(line);
    let next = lines[start..]
        .iter()
        .position(next)
        .map_or(lines.len(), |next| start + next);
    ensure!(
        !lines[next..].iter().any(|line| is_ours(line)),
        "the tables of `{name}` are not next to each other"
    );
    let is_content = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with('#');
    let last = lines[start..next].iter().rposition(is_content).unwrap_or(0);
    Ok(Some(start..start + last + 1))
}

/// The keys of a table's heading.
fn heading(line: &str) -> Option<Vec<&str>> {
    let inside = line.trim_start().strip_prefix('[')?;
    let inside = inside.strip_prefix('[').unwrap_or(inside);
    let (inside, _) = inside.split_once(']')?;
    let unquoted = |part: &'_ str| part.trim().trim_matches(['"', '\'']).len();
    let parts = inside.split('.');
    Some(
        parts
            .map(|part| {
                let part = part.trim().trim_start_matches(['"', '\'']);
                &part[..unquoted(part)]
            })
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "# mine\nmodel = \"m\"\n\n[mcp_servers.a]\ncommand = \"a\"  # first\n\n# about x\n[mcp_servers.\"x\"]\ncommand = \"x\"\n[mcp_servers.x.env]\nA = \"1\"\n\n# the end\n[tools]\nweb = true\n";

    #[test]
    fn a_table_is_replaced_with_those_below_it() {
        let raw = "[mcp_servers.x]\nurl = \"u\"";
        let set = set(FILE, "mcp_servers", "x", raw).expect("edited");
        let wanted = FILE.replace(
            "[mcp_servers.\"x\"]\ncommand = \"x\"\n[mcp_servers.x.env]\nA = \"1\"",
            raw,
        );
        assert_eq!(set, wanted);
        assert_eq!(
            get(&set, "mcp_servers", "x").expect("read").as_deref(),
            Some(raw)
        );
    }

    #[test]
    fn a_table_is_added_at_the_end_and_removed_again() {
        let raw = "[mcp_servers.y]\nurl = \"u\"";
        let set = set(FILE, "mcp_servers", "y", raw).expect("edited");
        assert_eq!(set, format!("{FILE}\n{raw}\n"));
        assert_eq!(remove(&set, "mcp_servers", "y").expect("removed"), FILE);
    }

    #[test]
    fn tables_of_one_server_that_stand_apart_are_refused() {
        let text = "[s.x]\na = 1\n[t]\n[s.x.env]\nb = 2\n";
        assert!(set(text, "s", "x", "[s.x]").is_err());
    }
}
