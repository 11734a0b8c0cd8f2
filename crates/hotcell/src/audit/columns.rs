//! Formats events for people: one line each, in columns.

use std::fmt::Write as _;

use serde_json::Value;

use crate::terminal::plain;

/// Widths of all columns but the last. A longer value shifts the rest of its line.
const COLUMNS: [(&str, usize); 6] = [
    ("SEQ", 6),
    ("TIME", 24),
    ("EVENT", 16),
    ("PRINCIPAL", 12),
    ("OUTCOME", 8),
    ("TARGET", 20),
];

/// Formats events below one heading.
#[derive(Debug, Default)]
pub(super) struct Columns {
    has_heading: bool,
}

impl Columns {
    /// The line of an event, with the heading before the first one.
    pub(super) fn row(&mut self, line: &[u8]) -> String {
        let mut rows = String::new();
        if !std::mem::replace(&mut self.has_heading, true) {
            rows.push_str(&padded(
                &COLUMNS.map(|(heading, _)| heading.to_owned()),
                "DETAILS",
            ));
        }
        match serde_json::from_slice(line) {
            Ok(event) => rows.push_str(&row(&event)),
            Err(_) => rows.push_str("(this line is damaged: see `hotcell audit verify`)\n"),
        }
        rows
    }
}

fn row(event: &Value) -> String {
    let word = |key: &str| match &event[key] {
        Value::Null => "-".to_owned(),
        Value::String(text) => plain(text).replace('\n', " "),
        other @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            other.to_string()
        }
    };
    let cells = ["seq", "time", "event", "principal", "outcome", "target"].map(word);
    padded(&cells, &details(event))
}

/// The last column: the arguments, what was created, why it failed.
fn details(event: &Value) -> String {
    let mut details = Vec::new();
    for key in ["code", "created"] {
        if let Some(text) = event[key].as_str() {
            details.push(format!("{key}={}", plain(text)));
        }
    }
    if let Some(arguments) = event["args"].as_object() {
        details.extend(arguments.iter().map(|(key, value)| match value {
            Value::String(text) => format!("{key}={}", plain(text).replace('\n', " ")),
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::Array(_)
            | Value::Object(_) => format!("{key}={}", plain(&value.to_string())),
        }));
    }
    if let Some(bytes) = event["bytes"].as_u64().filter(|bytes| *bytes > 0) {
        details.push(format!("bytes={bytes}"));
    }
    details.push(format!("{}ms", event["duration_ms"]));
    details.join(" ")
}

fn padded(cells: &[String; 6], last: &str) -> String {
    let mut line = String::new();
    for (cell, (_, width)) in cells.iter().zip(COLUMNS) {
        // Writing to a string cannot fail.
        let _ = write!(line, "{cell:width$}  ");
    }
    format!("{line}{last}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line_that_no_terminal_obeys() {
        let line = r#"{"hash":"0","seq":7,"time":"2026-01-01T00:00:00.000Z","event":"EXEC_START","principal":"local","target":"c_1","created":"e_2","args":{"cmd":["ls","a\u001b[31m\nb"]},"outcome":"ok","duration_ms":1.5,"bytes":0}"#;
        let mut columns = Columns::default();
        let shown = columns.row(line.as_bytes());
        assert_eq!(shown.lines().count(), 2, "{shown}");
        assert!(!shown.contains('\u{1b}'), "{shown:?}");
        assert!(
            shown.contains("created=e_2 cmd=") && shown.ends_with("1.5ms\n"),
            "{shown}"
        );
        assert_eq!(columns.row(line.as_bytes()).lines().count(), 1);
        assert!(columns.row(b"{").contains("damaged"));
    }
}
