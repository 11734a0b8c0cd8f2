//! JSON as editors write it: with comments and commas before closing brackets.

/// Plain JSON, of the same length in bytes.
pub fn without_comments(text: &str) -> String {
    let mut bytes = text.as_bytes().to_vec();
    let (mut at, mut comma) = (0, None);
    while at < bytes.len() {
        match (bytes[at], bytes.get(at + 1)) {
            (b'"', _) => {
                comma = None;
                at = string_end(&bytes, at);
                continue;
            }
            (b'/', Some(b'/')) => {
                let end = bytes[at..]
                    .iter()
                    .position(|byte| *byte == b'\n')
                    .map_or(bytes.len(), |end| at + end);
                bytes[at..end].fill(b' ');
                at = end;
                continue;
            }
            (b'/', Some(b'*')) => {
                let end = bytes[at + 2..].windows(2).position(|two| two == b"*/");
                let end = end.map_or(bytes.len(), |end| at + end + 4);
                bytes[at..end].fill(b' ');
                at = end;
                continue;
            }
            (b',', _) => comma = Some(at),
            (b'}' | b']', _) => {
                if let Some(comma) = comma.take() {
                    bytes[comma] = b' ';
                }
            }
            (byte, _) if !byte.is_ascii_whitespace() => comma = None,
            _ => {}
        }
        at += 1;
    }
    // Only whole comments and single commas were replaced.
    String::from_utf8(bytes).unwrap_or_default()
}

/// The byte after a string.
fn string_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_last_commas_go_and_strings_stay() {
        let text = "{ // ünï\n \"a\": \"// no /* no */ \\\" ,}\", /* x\n,*/ \"b\": [1, 2, ], }";
        let value: serde_json::Value = serde_json::from_str(&without_comments(text)).unwrap();
        assert_eq!(
            value,
            serde_json::json!({ "a": "// no /* no */ \" ,}", "b": [1, 2] })
        );
        for broken in ["/*", "\"\\", "//", "{,", "/", ""] {
            without_comments(broken);
        }
    }
}
