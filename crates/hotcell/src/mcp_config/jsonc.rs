//! Edits one entry of a JSON file as editors write it: comments, commas before closing brackets,
//! indentation and line ends stay as they are.
//!
//! Positions are found in a copy without comments, of the same length, which is plain JSON.

use std::ops::Range;

use anyhow::{Context, Result, ensure};
use hotcell_upstream::sources::without_comments;
use serde_json::Value;

use super::node::Node;

/// What people indent by, if a file does not show it.
const USUAL_UNIT: &str = "  ";

/// The text of the entry's value, as it stands in the file.
pub(super) fn get(text: &str, key: &str, name: &str) -> Result<Option<String>> {
    let document = Document::read(text)?;
    let Some(servers) = document.servers(key)? else {
        return Ok(None);
    };
    let member = servers.member(name);
    Ok(member.map(|member| text[member.value.clone()].to_owned()))
}

/// The value of an entry as it would stand in this file.
pub(super) fn raw(text: &str, key: &str, entry: &Node) -> Result<String> {
    let document = Document::read(text)?;
    let unit = document.unit();
    let indent = match document.servers(key)? {
        Some(servers) => document.inner_indent(&servers),
        None => unit.repeat(2),
    };
    Ok(entry.json_lines(&indent, &unit))
}

/// The text with the entry set to a raw value.
pub(super) fn set(text: &str, key: &str, name: &str, raw: &str) -> Result<String> {
    let document = Document::read(text)?;
    let edited = match document.servers(key)? {
        None => {
            let unit = document.unit();
            let servers = format!("{{\n{unit}{unit}\"{name}\": {raw}\n{unit}}}");
            document.insert(&document.root, key, &servers)
        }
        Some(servers) => match servers.member(name) {
            Some(member) => {
                let Range { start, end } = member.value;
                format!("{}{raw}{}", &document.text[..start], &document.text[end..])
            }
            None => document.insert(&servers, name, raw),
        },
    };
    let is_windows = text.contains("\r\n");
    let edited = edited.replace("\r\n", "\n");
    Ok(if is_windows {
        edited.replace('\n', "\r\n")
    } else {
        edited
    })
}

/// The text without the entry.
pub(super) fn remove(text: &str, key: &str, name: &str) -> Result<String> {
    let document = Document::read(text)?;
    let Some(servers) = document.servers(key)? else {
        return Ok(text.to_owned());
    };
    let Some(index) = servers.members.iter().position(|member| member.key == name) else {
        return Ok(text.to_owned());
    };
    let member = &servers.members[index];
    let (mut start, mut end) = (member.start, member.value.end);
    let mut edited = text.to_owned();
    let comma = comma_after(text, end);
    if let Some(comma) = comma {
        end = comma + 1;
    }
    let line_start = text[..start].rfind('\n').map_or(0, |newline| newline + 1);
    let line_end = text[end..]
        .find('\n')
        .map_or(text.len(), |newline| end + newline + 1);
    let is_blank = |range: Range<usize>| text[range].trim().is_empty();
    if is_blank(line_start..start) && is_blank(end..line_end) {
        (start, end) = (line_start, line_end);
    }
    edited.replace_range(start..end, "");
    let before = index
        .checked_sub(1)
        .and_then(|before| servers.members.get(before));
    if let (None, Some(before)) = (comma, before) {
        // It was the last one, and there is no comma after the last one here.
        if let Some(comma) = comma_after(text, before.value.end) {
            edited.replace_range(comma..=comma, "");
        }
    }
    Ok(edited)
}

/// The file as a value, for comparing.
pub(super) fn parse(text: &str) -> Result<Value> {
    let text = or_empty(text);
    let value = serde_json::from_str(&without_comments(text));
    // The error of the parser would quote the file, which may hold tokens.
    value.ok().context("the file is not JSON")
}

fn or_empty(text: &str) -> &str {
    if text.trim().is_empty() { "{}\n" } else { text }
}

struct Document<'a> {
    text: &'a str,
    plain: Vec<u8>,
    root: Object,
}

#[derive(Debug)]
struct Object {
    open: usize,
    close: usize,
    members: Vec<Member>,
}

#[derive(Debug)]
struct Member {
    key: String,
    start: usize,
    value: Range<usize>,
}

impl Object {
    /// Of two with the same key the last one, as parsers have it.
    fn member(&self, key: &str) -> Option<&Member> {
        self.members.iter().rfind(|member| member.key == key)
    }
}

impl<'a> Document<'a> {
    fn read(text: &'a str) -> Result<Self> {
        ensure!(parse(text)?.is_object(), "the file is not a JSON object");
        let text = or_empty(text);
        let plain = without_comments(text).into_bytes();
        let open = skip_blank(&plain, 0);
        let root = object(&plain, open);
        Ok(Self { text, plain, root })
    }

    /// The object below the key, if there is one.
    fn servers(&self, key: &str) -> Result<Option<Object>> {
        let Some(member) = self.root.member(key) else {
            return Ok(None);
        };
        let is_object = self.plain[member.value.start] == b'{';
        ensure!(is_object, "`{key}` in the file is not an object");
        Ok(Some(object(&self.plain, member.value.start)))
    }

    /// What one level is indented by.
    fn unit(&self) -> String {
        let first = self.root.members.first();
        let indent = first.map_or("", |member| {
            own_indent(self.text, member.start).unwrap_or("")
        });
        if indent.is_empty() {
            USUAL_UNIT.to_owned()
        } else {
            indent.to_owned()
        }
    }

    fn inner_indent(&self, object: &Object) -> String {
        let first = object.members.first();
        let found = first.and_then(|member| own_indent(self.text, member.start));
        found.map_or_else(
            || format!("{}{}", line_indent(self.text, object.open), self.unit()),
            str::to_owned,
        )
    }

    /// Adds a last member.
    fn insert(&self, object: &Object, key: &str, value: &str) -> String {
        let text = self.text;
        let last = object.members.last().map(|member| member.value.end);
        let comma = last.and_then(|end| comma_after(text, end));
        let content_end = text[..object.close].trim_end().len();
        let split = last.unwrap_or(content_end);
        let between = if last.is_some() && comma.is_none() {
            ","
        } else {
            ""
        };
        let after = if comma.is_some() { "," } else { "" };
        let mut tail = text[content_end..object.close].to_owned();
        if !tail.contains('\n') {
            tail = format!("\n{}", line_indent(text, object.open));
        }
        format!(
            "{}{between}{}\n{}\"{key}\": {value}{after}{tail}{}",
            &text[..split],
            &text[split..content_end],
            self.inner_indent(object),
            &text[object.close..],
        )
    }
}

/// The object that begins at `open`. The bytes are valid JSON.
fn object(plain: &[u8], open: usize) -> Object {
    let mut members = Vec::new();
    let mut at = skip_blank(plain, open + 1);
    while plain[at] == b'"' {
        let (start, key_end) = (at, string_end(plain, at));
        let colon = skip_blank(plain, key_end);
        let value_start = skip_blank(plain, colon + 1);
        let value = value_start..value_end(plain, value_start);
        let key = serde_json::from_slice(&plain[start..key_end]).unwrap_or_default();
        at = skip_blank(plain, value.end);
        members.push(Member { key, start, value });
        if plain[at] == b',' {
            at = skip_blank(plain, at + 1);
        }
    }
    Object {
        open,
        close: at,
        members,
    }
}

fn skip_blank(bytes: &[u8], mut at: usize) -> usize {
    while bytes.get(at).is_some_and(u8::is_ascii_whitespace) {
        at += 1;
    }
    at
}

fn string_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while bytes[at] != b'"' {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    at + 1
}

fn value_end(bytes: &[u8], start: usize) -> usize {
    let (mut at, mut depth) = (start, 0_usize);
    loop {
        match bytes[at] {
            b'"' => at = string_end(bytes, at) - 1,
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth -= 1,
            _ => {}
        }
        at += 1;
        let ends = |byte: &u8| byte.is_ascii_whitespace() || b",]}".contains(byte);
        let is_scalar_end = bytes[start] == b'"' || bytes.get(at).is_none_or(ends);
        if depth == 0 && (b"{[".contains(&bytes[start]) || is_scalar_end) {
            return at;
        }
    }
}

/// Where the comma after a value is. Comments may stand between them.
fn comma_after(text: &str, mut at: usize) -> Option<usize> {
    let bytes = text.as_bytes();
    loop {
        at = skip_blank(bytes, at);
        let rest = &text[at..];
        if rest.starts_with("//") {
            at += rest.find('\n')?;
        } else if rest.starts_with("/*") {
            at += rest.find("*/")? + 2;
        } else {
            return rest.starts_with(',').then_some(at);
        }
    }
}

/// The indentation of what stands at `at`, if it begins its line.
fn own_indent(text: &str, at: usize) -> Option<&str> {
    let start = text[..at].rfind('\n')? + 1;
    let indent = &text[start..at];
    indent.trim().is_empty().then_some(indent)
}

/// The indentation of the line that `at` is on.
fn line_indent(text: &str, at: usize) -> &str {
    let start = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
    let line = &text[start..at];
    &line[..line.len() - line.trim_start().len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set_x(text: &str) -> String {
        let set = set(text, "s", "x", "1").expect("edited");
        let mut wanted = parse(text).expect("JSON");
        wanted["s"]["x"] = Value::from(1);
        assert_eq!(parse(&set).expect("JSON"), wanted, "{set}");
        set
    }

    #[test]
    fn an_entry_is_added_wherever_there_is_room() {
        assert_eq!(set_x(""), "{\n  \"s\": {\n    \"x\": 1\n  }\n}\n");
        assert_eq!(
            set_x("{\"a\":1}"),
            "{\"a\":1,\n  \"s\": {\n    \"x\": 1\n  }\n}"
        );
        assert_eq!(
            set_x("{\n\t\"s\": {}\n}"),
            "{\n\t\"s\": {\n\t\t\"x\": 1\n\t}\n}"
        );
        assert_eq!(
            set_x("{\n    \"s\": {\n        \"a\": 1, // one\n    }, // end\n}\n"),
            "{\n    \"s\": {\n        \"a\": 1, // one\n        \"x\": 1,\n    }, // end\n}\n"
        );
        assert_eq!(
            set_x("{ /* a */ \"s\": { \"a\": [\"}\", {\"b\": \"\\\"\"}] // b }\n } }"),
            "{ /* a */ \"s\": { \"a\": [\"}\", {\"b\": \"\\\"\"}], // b }\n  \"x\": 1\n } }"
        );
        assert_eq!(
            set_x("{\r\n  \"s\": {\r\n  }\r\n}"),
            "{\r\n  \"s\": {\r\n    \"x\": 1\r\n  }\r\n}"
        );
    }

    #[test]
    fn an_entry_is_replaced_in_its_place() {
        assert_eq!(
            set_x("{\"s\": {\"x\": {\"y\": 2}, /* z */ \"z\": true}}"),
            "{\"s\": {\"x\": 1, /* z */ \"z\": true}}"
        );
        assert_eq!(set_x("{\"s\": {\"x\": 22}}"), "{\"s\": {\"x\": 1}}");
    }

    #[test]
    fn what_is_added_can_be_removed() {
        for text in [
            "{\n  \"s\": {\n    \"a\": 1 // one\n  }\n}\n",
            "{\n  \"s\": {\n    \"a\": 1, // one\n  },\n}\n",
            "{\n  \"s\": {\n  }\n}\n",
            "{\n  // none\n  \"s\": {\n    /* a */ \"a\": [1, 2] /* , */\n  }\n}\n",
        ] {
            let removed = remove(&set_x(text), "s", "x").expect("removed");
            assert_eq!(removed, text);
        }
        let middle = remove("{\"s\": {\"x\": 1, \"y\": 2}}", "s", "x").expect("removed");
        assert_eq!(
            parse(&middle).expect("JSON"),
            serde_json::json!({"s": {"y": 2}})
        );
        assert_eq!(remove("{}", "s", "x").expect("as it was"), "{}");
    }

    #[test]
    fn a_file_that_is_something_else_is_refused() {
        for text in [
            "[]",
            "{",
            "{\"s\": []}",
            "{\"s\": null}",
            "1",
            "{\"s\": {}} x",
        ] {
            assert!(set(text, "s", "x", "1").is_err(), "{text}");
        }
    }

    #[test]
    fn the_last_of_two_members_with_one_name_is_meant() {
        assert_eq!(
            get("{\"s\": {\"x\": 1, \"x\": \"\\u0022\"}}", "s", "x").expect("read"),
            Some("\"\\u0022\"".to_owned())
        );
    }
}
