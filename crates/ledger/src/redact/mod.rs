//! Hides secrets in texts that are kept.
//!
//! By key: what follows `password=`, `--token`, `"api_key":`, `Authorization:` and the like.
//! By value: what looks like a key of a known service, a JWT, a private key, the credentials in
//! a URL. It errs on the side of hiding. `corpus.txt` has what must be hidden and what must
//! stay.

mod argv;
mod keys;
mod scan;
mod values;

use std::borrow::Cow;

pub use argv::redact_argv;

/// What stands where a secret was.
pub const HIDDEN: &str = "[redacted]";

/// How much of one text is looked at; the rest is left out.
const WINDOW_BYTES: usize = 8 << 10;

/// A text without its secrets.
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

/// Most words are short, such as `ls` or `/workspace`, and cannot hold a secret.
fn is_plain(text: &str) -> bool {
    let can_hold = |byte: u8| matches!(byte, b'=' | b':' | b'@' | b'-' | b' ' | b'\n');
    text.len() < 16 && !text.bytes().any(can_hold)
}

/// The text, or its beginning up to the last whole word: half a secret is not recognized.
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
