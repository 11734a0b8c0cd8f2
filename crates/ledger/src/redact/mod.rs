//! Redacts secrets in texts that are stored.
//!
//! By name: the value of `password=`, `--token`, `"api_key":`, `Authorization:` and the like. By
//! value: keys of known services, JWTs, private keys, credentials in URLs. In doubt, it redacts.
//! `corpus.txt` lists what must be redacted and what must stay.

mod argv;
mod keys;
mod scan;
mod values;

use std::borrow::Cow;

pub use argv::redact_argv;

/// The replacement for a secret.
pub const HIDDEN: &str = "[redacted]";

/// How much of a text is scanned; the rest is dropped.
const WINDOW_BYTES: usize = 8 << 10;

/// Returns the text with secrets redacted.
pub fn redact(text: &str) -> Cow<'_, str> {
    if is_plain(text) {
        return Cow::Borrowed(text);
    }
    let window = window(text);
    let hidden = scan::hide(&window);
    match window {
        Cow::Borrowed(window) if hidden == window => Cow::Borrowed(text),
        Cow::Borrowed(_) | Cow::Owned(_) => Cow::Owned(hidden),
    }
}

/// Whether a text is too short or simple to contain a secret, like most words, such as `ls` or
/// `/workspace`.
fn is_plain(text: &str) -> bool {
    let can_hold = |byte: u8| matches!(byte, b'=' | b':' | b'@' | b'-' | b' ' | b'\n');
    text.len() < 16 && !text.bytes().any(can_hold)
}

/// The text, or its beginning up to the last complete word: a partial secret would not be
/// recognized.
fn window(text: &str) -> Cow<'_, str> {
    if text.len() <= WINDOW_BYTES {
        return Cow::Borrowed(text);
    }
    let start = &text[..text.floor_char_boundary(WINDOW_BYTES)];
    let end = start.rfind(char::is_whitespace).unwrap_or(0);
    Cow::Owned(format!("{} … {} bytes", &start[..end], text.len()))
}

#[cfg(test)]
mod tests;
