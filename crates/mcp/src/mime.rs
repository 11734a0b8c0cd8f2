//! Detects a file's type by its first bytes, else by its name.

/// The beginning of a PDF may be valid text, so it is recognized in text, too.
const PDF: &str = "application/pdf";

/// Extensions of text files.
const ENDINGS: [(&str, &str); 20] = [
    ("c", "text/x-c"),
    ("css", "text/css"),
    ("csv", "text/csv"),
    ("go", "text/x-go"),
    ("htm", "text/html"),
    ("html", "text/html"),
    ("ipynb", "application/x-ipynb+json"),
    ("js", "text/javascript"),
    ("json", "application/json"),
    ("md", "text/markdown"),
    ("mjs", "text/javascript"),
    ("py", "text/x-python"),
    ("rs", "text/x-rust"),
    ("sh", "text/x-shellscript"),
    ("svg", "image/svg+xml"),
    ("toml", "application/toml"),
    ("ts", "text/x-typescript"),
    ("xml", "application/xml"),
    ("yaml", "application/yaml"),
    ("yml", "application/yaml"),
];

/// Detects the type of a file whose first bytes are `head`.
pub(crate) fn mime_type(path: &[u8], head: &[u8]) -> &'static str {
    // A text file has the type that its name says: a bitmap begins with "BM", but so do sentences.
    let inferred = infer::get(head).map(|kind| kind.mime_type());
    match inferred {
        Some(mime) if is_binary(head) || mime == PDF => return mime,
        None if is_binary(head) => return "application/octet-stream",
        Some(_) | None => {}
    }
    let ending = path.rsplit(|byte| *byte == b'.').next().unwrap_or_default();
    let known = ENDINGS
        .iter()
        .find(|(known, _)| known.as_bytes().eq_ignore_ascii_case(ending));
    known.map_or("text/plain", |(_, mime)| mime)
}

/// Returns the type if clients can show it as a picture.
pub(crate) fn shown_image(mime: &'static str) -> Option<&'static str> {
    matches!(
        mime,
        "image/png" | "image/jpeg" | "image/gif" | "image/webp"
    )
    .then_some(mime)
}

/// Whether the bytes are not UTF-8, apart from a character that is cut off at the end.
fn is_binary(head: &[u8]) -> bool {
    match std::str::from_utf8(head) {
        Ok(text) => text.contains('\0'),
        Err(error) => error.error_len().is_some() || error.valid_up_to() + 4 <= head.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_tells_more_than_a_name() {
        let known: [(&str, &[u8], &str); 12] = [
            ("a.txt", b"\x89PNG\r\n\x1a\n....", "image/png"),
            ("a", b"%PDF-1.7\n", "application/pdf"),
            ("a", b"SQLite format 3\0", "application/vnd.sqlite3"),
            ("a", b"\0asm\x01\0\0\0", "application/wasm"),
            ("a.md", b"BMW makes cars", "text/markdown"),
            ("a.py", b"#!/usr/bin/env python3\n", "text/x-python"),
            ("a", b"RIFF\0\0\0\0WEBPVP8 ", "image/webp"),
            ("a.py", b"print()", "text/x-python"),
            ("a.py", b"\0\xff", "application/octet-stream"),
            ("README", b"hello", "text/plain"),
            ("A.JSON", b"{}", "application/json"),
            ("cut.md", "ä".as_bytes().get(..1).unwrap(), "text/markdown"),
        ];
        for (path, head, mime) in known {
            assert_eq!(mime_type(path.as_bytes(), head), mime, "{path}");
        }
    }
}
