//! Computes the length of a value as JSON, without producing it.
//!
//! Answers can be megabytes of text, which are serialized once more when they are sent. So text is
//! only measured here, by looking up each byte in a table.

use std::io;

use rmcp::model::{CallToolResult, ContentBlock};
use serde::Serialize;
use serde_json::Value;

/// Upper bound for the parts of a result besides its content: field names and punctuation.
const RESULT_BYTES: usize = 256;

/// The length of each byte of a string in JSON.
const ESCAPED_BYTES: [u8; 256] = {
    let mut bytes = [1; 256];
    let mut byte = 0;
    while byte < 0x20 {
        bytes[byte] = 6;
        byte += 1;
    }
    let short = *b"\"\\\n\r\t\x08\x0c";
    let mut index = 0;
    while index < short.len() {
        bytes[short[index] as usize] = 2;
        index += 1;
    }
    bytes
};

/// The length of a string, without its quotes.
pub(crate) fn of_text(text: &[u8]) -> usize {
    let escaped = text.iter().map(|byte| ESCAPED_BYTES[usize::from(*byte)]);
    escaped.map(usize::from).sum()
}

/// Upper bound for a tool's result, not much above the real length.
pub(crate) fn of_result(result: &CallToolResult) -> usize {
    let content = result.content.iter().map(|block| {
        if let ContentBlock::Text(text) = block {
            RESULT_BYTES + of_text(text.text.as_bytes())
        } else {
            of(block)
        }
    });
    let structured = result.structured_content.as_ref().map_or(0, of_value);
    RESULT_BYTES + content.sum::<usize>() + structured
}

fn of_value(value: &Value) -> usize {
    match value {
        Value::String(text) => of_text(text.as_bytes()) + 2,
        Value::Array(values) => {
            2 + values
                .iter()
                .map(|value| of_value(value) + 1)
                .sum::<usize>()
        }
        Value::Object(fields) => {
            let fields = fields.iter();
            let bytes = fields.map(|(name, value)| of_text(name.as_bytes()) + of_value(value) + 4);
            2 + bytes.sum::<usize>()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => of(value),
    }
}

/// The exact length of any value.
pub(crate) fn of(value: &impl Serialize) -> usize {
    struct Counter(usize);
    impl io::Write for Counter {
        fn write(&mut self, data: &[u8]) -> io::Result<usize> {
            self.0 += data.len();
            Ok(data.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut counter = Counter(0);
    // A value that cannot be serialized fails when it is sent.
    let _ = serde_json::to_writer(&mut counter, value);
    counter.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn json_is_as_long_as_it_will_be() {
        let value = json!({ "a": "\u{1}\u{20ac}\"", "b": [1, null] });
        assert_eq!(of(&value), value.to_string().len());
        for code in 0..0x1_0000 {
            let Some(character) = char::from_u32(code) else {
                continue;
            };
            let text = character.to_string();
            let json = Value::from(text.clone()).to_string();
            assert_eq!(of_text(text.as_bytes()) + 2, json.len(), "{json}");
        }
    }

    #[test]
    fn a_result_is_never_longer_than_was_counted_and_not_much_shorter() {
        let structured = json!({"messages": [{"data": "\u{1b}[0m\n"}, 7, true, null], "\"": {}});
        let text = ContentBlock::text("two\nlines");
        let image = ContentBlock::image("aGVsbG8=", "image/png");
        let mut result = CallToolResult::success(vec![text, image]);
        result.structured_content = Some(structured);
        let (counted, exact) = (of_result(&result), of(&result));
        assert!(counted >= exact, "{counted} < {exact}");
        assert!(counted <= exact + 3 * RESULT_BYTES, "{counted} > {exact}");
    }
}
