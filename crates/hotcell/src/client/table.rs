//! Formats JSON objects as a table for people.

use serde_json::Value;

use crate::terminal::plain;

/// A heading and the field below it.
pub(super) type Column = (&'static str, &'static str);

/// How a table is fitted to a terminal.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fit {
    /// Columns of the terminal.
    pub(super) width: usize,
    /// Fields that may be cut. Others, such as ids, are whole or useless.
    pub(super) may_cut: &'static [&'static str],
    pub(super) has_colours: bool,
}

/// A field that is cut shows at least this many characters.
const CUT_CHARS_MIN: usize = 8;

const GAP: &str = "  ";

/// Each column is as wide as its widest cell. A missing value is a dash.
pub(super) fn table(columns: &[Column], rows: &[Value]) -> String {
    let (rows, widths) = laid_out(columns, rows);
    lines(columns, &rows, &widths, false)
}

/// The same, cut to the width of a terminal as far as fields may be cut.
pub(super) fn fitted(columns: &[Column], rows: &[Value], fit: Fit) -> String {
    let (mut rows, mut widths) = laid_out(columns, rows);
    let gaps = GAP.len() * columns.len().saturating_sub(1);
    let cuttable = |index: &usize| fit.may_cut.contains(&columns[*index].1);
    while widths.iter().sum::<usize>() + gaps > fit.width {
        let widest = (0..columns.len())
            .filter(cuttable)
            .max_by_key(|index| widths[*index]);
        let Some(widest) = widest.filter(|index| widths[*index] > CUT_CHARS_MIN) else {
            break;
        };
        widths[widest] -= 1;
    }
    for row in &mut rows {
        for (cell, width) in row.iter_mut().zip(&widths) {
            if cell.chars().count() > *width {
                *cell = cell.chars().take(width - 1).chain(['\u{2026}']).collect();
            }
        }
    }
    lines(columns, &rows, &widths, fit.has_colours)
}

fn laid_out(columns: &[Column], rows: &[Value]) -> (Vec<Vec<String>>, Vec<usize>) {
    let heading = columns.iter().map(|(heading, _)| (*heading).to_owned());
    let row = |row| columns.iter().map(|(_, field)| cell(row, field)).collect();
    let rows: Vec<Vec<String>> = std::iter::once(heading.collect())
        .chain(rows.iter().map(row))
        .collect();
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.max().unwrap_or(0)
    };
    let widths = (0..columns.len()).map(width).collect();
    (rows, widths)
}

fn lines(columns: &[Column], rows: &[Vec<String>], widths: &[usize], has_colours: bool) -> String {
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(widths).zip(columns);
        let padded = cells.map(|((cell, &width), (_, field))| {
            let colour = colour(field, cell).filter(|_| has_colours);
            let padded = format!("{cell:width$}");
            colour.map_or(padded.clone(), |colour| {
                format!("{colour}{padded}\u{1b}[0m")
            })
        });
        let padded: Vec<String> = padded.collect();
        format!("{}\n", padded.join(GAP).trim_end())
    };
    let lines: Vec<String> = rows.iter().map(line).collect();
    lines.concat()
}

/// The colour of a status: green if all is well, red if it is not.
fn colour(field: &str, cell: &str) -> Option<&'static str> {
    match (field, cell) {
        ("status", "running") => Some("\u{1b}[32m"),
        ("status", "failed" | "lost") => Some("\u{1b}[31m"),
        _ => None,
    }
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

    #[test]
    fn on_a_terminal_long_names_are_cut_and_ids_are_whole() {
        let columns = [
            ("CONTAINER", "container_id"),
            ("IMAGE", "image"),
            ("STATUS", "status"),
        ];
        let rows = [
            json!({"container_id": "c_0123456789", "image": "registry.example/a/very/long/name", "status": "running"}),
            json!({"container_id": "c_1", "image": "host", "status": "failed"}),
        ];
        let fit = Fit {
            width: 40,
            may_cut: &["image"],
            has_colours: false,
        };
        let narrow = fitted(&columns, &rows, fit);
        assert!(
            narrow.lines().all(|line| line.chars().count() <= 40),
            "{narrow}"
        );
        assert!(
            narrow.contains("c_0123456789  registry.example\u{2026}"),
            "{narrow}"
        );
        let tiny = fitted(&columns, &rows, Fit { width: 5, ..fit });
        assert!(tiny.contains("c_0123456789  registr\u{2026}"), "{tiny}");
        let wide = fitted(&columns, &rows, Fit { width: 400, ..fit });
        assert_eq!(wide, table(&columns, &rows));
        let coloured = fitted(
            &columns,
            &rows,
            Fit {
                has_colours: true,
                ..fit
            },
        );
        assert!(
            coloured.contains("\u{1b}[32mrunning\u{1b}[0m"),
            "{coloured:?}"
        );
    }
}
