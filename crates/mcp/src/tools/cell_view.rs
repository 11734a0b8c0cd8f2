//! Values of a notebook cell, as clients see them.

use std::fmt;

use hotcell_service::{CellForm, CellValue, CellValues};
use schemars::JsonSchema;
use serde::Serialize;

use crate::text::truncate;

/// Limit on all values of a call together.
const VALUES_BYTES_MAX: usize = 24_000;

/// A value: as text, and in its richest form if it has one.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ValueView {
    /// As Python prints it; a data frame as a table
    text: String,
    /// Of data or path
    #[serde(skip_serializing_if = "Option::is_none")]
    mime_type: Option<&'static str>,
    /// Markdown or JSON
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<String>,
    /// Of a picture or HTML, below /workspace
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
}

/// All values of a call.
#[derive(Debug, Default)]
pub(super) struct ValuesView {
    pub(super) result: Option<ValueView>,
    pub(super) displayed: Vec<ValueView>,
    pub(super) note: Option<String>,
}

impl ValuesView {
    pub(super) fn new(values: CellValues, session_is_new: bool) -> Self {
        let mut room = Room {
            bytes: VALUES_BYTES_MAX,
            has_cut: false,
        };
        let result = values.result.map(|value| ValueView::new(value, &mut room));
        let displayed = values.displayed.into_iter();
        let displayed = displayed.map(|value| ValueView::new(value, &mut room));
        let displayed: Vec<_> = displayed.collect();
        let mut notes = Vec::new();
        if values.is_new && !session_is_new {
            notes.push("a new interpreter: it has no variables of earlier calls".to_owned());
        }
        if values.left_out > 0 {
            let left_out = values.left_out;
            notes.push(format!("{left_out} more displayed values are left out"));
        }
        if room.has_cut {
            notes.push("long values are cut; print a part of them".to_owned());
        }
        Self {
            result,
            displayed,
            note: (!notes.is_empty()).then(|| notes.join("; ")),
        }
    }

    /// Each value on lines of its own, the result last.
    pub(super) fn lines(&self) -> Vec<String> {
        let displayed = self.displayed.iter().map(ValueView::to_string);
        let result = self.result.iter().map(|value| format!("[result]\n{value}"));
        displayed.chain(result).collect()
    }
}

impl ValueView {
    fn new(value: CellValue, room: &mut Room) -> Self {
        let mut view = Self {
            text: room.fit(&value.text),
            mime_type: None,
            data: None,
            path: None,
        };
        match value.form {
            Some(CellForm::File { mime_type, path }) => {
                (view.mime_type, view.path) = (Some(mime_type), Some(path));
            }
            Some(CellForm::Text { mime_type, data }) => {
                (view.mime_type, view.data) = (Some(mime_type), Some(room.fit(&data)));
            }
            None => {}
        }
        view
    }
}

impl fmt::Display for ValueView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.data.as_deref().unwrap_or(&self.text))?;
        if let (Some(mime_type), Some(path)) = (self.mime_type, &self.path) {
            write!(f, "\n[{mime_type}: {path}]")?;
        }
        Ok(())
    }
}

/// The bytes that further values may still take.
struct Room {
    bytes: usize,
    has_cut: bool,
}

impl Room {
    /// The beginning of a text, as much as fits.
    fn fit(&mut self, text: &str) -> String {
        let shown = truncate(text, self.bytes);
        self.bytes -= shown.len();
        self.has_cut |= shown.len() < text.len();
        shown.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: String, form: Option<CellForm>) -> CellValue {
        CellValue { text, form }
    }

    #[test]
    fn values_show_their_richest_form_as_text_and_as_fields() {
        let markdown = CellForm::Text {
            mime_type: "text/markdown",
            data: "# x".to_owned(),
        };
        let picture = CellForm::File {
            mime_type: "image/png",
            path: "artifacts/a.png".to_owned(),
        };
        let values = CellValues {
            result: Some(value("V()".to_owned(), Some(picture))),
            displayed: vec![value("M()".to_owned(), Some(markdown))],
            left_out: 2,
            is_new: true,
            ..CellValues::default()
        };
        let view = ValuesView::new(values, false);
        let lines = view.lines().join("\n");
        assert_eq!(lines, "# x\n[result]\nV()\n[image/png: artifacts/a.png]");
        let json = serde_json::to_value(view.result).unwrap();
        assert_eq!(
            json,
            serde_json::json!({"text": "V()", "mime_type": "image/png", "path": "artifacts/a.png"})
        );
        let note = view.note.unwrap();
        assert!(note.contains("new interpreter") && note.contains("2 more"));
    }

    #[test]
    fn all_values_together_are_bounded_and_what_was_cut_is_told() {
        let long = value("x".repeat(20_000), None);
        let values = CellValues {
            result: Some(long.clone()),
            displayed: vec![long; 16],
            ..CellValues::default()
        };
        let view = ValuesView::new(values, false);
        let chars: usize = view.lines().iter().map(|line| line.chars().count()).sum();
        assert!(chars < VALUES_BYTES_MAX + 200, "{chars}");
        assert!(view.note.unwrap().contains("cut"));
    }
}
