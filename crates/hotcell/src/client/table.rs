//! Formats JSON objects as a table for people.

use serde_json::Value;

use crate::terminal::plain;

/// A heading and the field below it.
pub(super) type Column = (&'static str, &'static str);

/// Each column is as wide as its widest cell. A missing value is a dash.
pub(super) fn table(columns: &[Column], rows: &[Value]) -> String {
    let heading = columns.iter().map(|(heading, _)| (*heading).to_owned());
    let row = |row| columns.iter().map(|(_, field)| cell(row, field)).collect();
    let rows: Vec<Vec<String>> = std::iter::once(heading.collect())
        .chain(rows.iter().map(row))
        .collect();
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths);
        let padded: Vec<String> = cells
            .map(|(cell, &width)| format!("{cell:width$}"))
            .collect();
        format!("{}\n", padded.join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

fn cell(row: &Value, field: &str) -> String {
    match &row[field] {
        Value::Null => "-".to_owned(),
        Value::String(text) => plain(text).replace(char::is_control, " "),
        other @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            other.to_string()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn columns_line_up_and_what_is_missing_is_a_dash() {
        let columns = [
            ("CONTAINER", "container_id"),
            ("ALIAS", "alias"),
            ("N", "n"),
        ];
        let rows = [
            json!({"container_id": "c_1", "alias": "größer", "n": 1}),
            json!({"container_id": "c_2", "n": 22}),
        ];
        assert_eq!(
            table(&columns, &rows),
            "CONTAINER  ALIAS   N\n\
             c_1        größer  1\n\
             c_2        -       22\n"
        );
    }

    #[test]
    fn nothing_that_a_caller_chose_moves_the_cursor() {
        let rows = [json!({"alias": "a\u{1b}[2Jb\r\nc\u{9b}1m"})];
        let table = table(&[("ALIAS", "alias")], &rows);
        let is_odd = |c: char| c.is_control() && c != '\n';
        assert!(!table.contains(is_odd), "{table:?}");
        assert_eq!(table.lines().count(), 2);
    }
}
