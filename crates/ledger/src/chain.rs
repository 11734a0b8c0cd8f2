//! The hash chain, which makes changes to the order or content of events detectable.
//!
//! ```text
//! {"hash":"<64 hex>","seq":7,"time":"…",…}\n
//!                    └── body ──────────┘
//! hash = SHA-256(hash of the line before ‖ body)
//! ```
//!
//! The body is the line's bytes from `"seq"` to the closing brace. So a line is verified without
//! parsing JSON, and every byte of it counts.

use std::fmt;

use sha2::{Digest as _, Sha256};

const BEFORE_HASH: &[u8] = b"{\"hash\":\"";
const AFTER_HASH: &[u8] = b"\",";
const BEFORE_SEQ: &[u8] = b"\"seq\":";
const BODY_START: usize = BEFORE_HASH.len() + 64 + AFTER_HASH.len();

/// The hash of a line and of all lines before it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Hash([u8; 32]);

/// A position in the chain: an event and its hash. Before the first event, 0 and [`Hash::ZERO`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// The event's number, counted from 1.
    pub seq: u64,
    /// The hash of the event's line.
    pub hash: Hash,
}

/// A line split into its parts, but not verified yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parts<'a> {
    pub(crate) link: Link,
    pub(crate) body: &'a [u8],
}

impl Hash {
    /// The hash before the first event.
    pub const ZERO: Self = Self([0; 32]);

    /// The hash of a body that follows this hash.
    pub(crate) fn then(&self, body: &[u8]) -> Self {
        let mut hasher = Sha256::new();
        hasher.update(self.0);
        hasher.update(body);
        Self(hasher.finalize().into())
    }

    /// Parses 64 hexadecimal digits.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let mut hash = [0; 32];
        let (pairs, rest) = text.as_chunks::<2>();
        if pairs.len() != hash.len() || !rest.is_empty() {
            return None;
        }
        for (byte, [high, low]) in hash.iter_mut().zip(pairs) {
            *byte = digit(*high)? << 4 | digit(*low)?;
        }
        Some(Self(hash))
    }
}

/// Accepts only lower-case digits, as we write them: any other spelling of a hash is a change.
fn digit(character: u8) -> Option<u8> {
    match character {
        b'0'..=b'9' => Some(character - b'0'),
        b'a'..=b'f' => Some(character - b'a' + 10),
        _ => None,
    }
}

impl Link {
    /// The position before the first event.
    pub const START: Self = Self {
        seq: 0,
        hash: Hash::ZERO,
    };

    /// Appends a line to `lines`. `rest` has the event's fields after its number, with the closing
    /// brace.
    pub(crate) fn append(self, rest: &[u8], lines: &mut Vec<u8>) -> Self {
        let seq = self.seq + 1;
        let mut body = Vec::with_capacity(rest.len() + 32);
        body.extend_from_slice(BEFORE_SEQ);
        body.extend_from_slice(seq.to_string().as_bytes());
        body.push(b',');
        body.extend_from_slice(rest);
        let hash = self.hash.then(&body);
        lines.extend_from_slice(BEFORE_HASH);
        lines.extend_from_slice(hash.to_string().as_bytes());
        lines.extend_from_slice(AFTER_HASH);
        lines.extend_from_slice(&body);
        lines.push(b'\n');
        Self { seq, hash }
    }
}

impl<'a> Parts<'a> {
    /// Splits a line without its newline; `None` if it is not one of ours.
    pub(crate) fn of(line: &'a [u8]) -> Option<Self> {
        let rest = line.strip_prefix(BEFORE_HASH)?;
        let (hash, rest) = rest.split_at_checked(64)?;
        rest.strip_prefix(AFTER_HASH)?;
        let body = line.get(BODY_START..)?;
        let digits = body.strip_prefix(BEFORE_SEQ)?;
        let end = digits.iter().position(|&byte| byte == b',')?;
        let seq = std::str::from_utf8(&digits[..end]).ok()?.parse().ok()?;
        let hash = Hash::parse(hash)?;
        Some(Self {
            link: Link { seq, hash },
            body,
        })
    }

    /// Whether it is the unchanged line that follows `before`.
    pub(crate) fn follows(&self, before: &Hash) -> bool {
        before.then(self.body) == self.link.hash
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = [0; 64];
        for (pair, byte) in text.as_chunks_mut::<2>().0.iter_mut().zip(self.0) {
            *pair = [
                DIGITS[usize::from(byte >> 4)],
                DIGITS[usize::from(byte & 15)],
            ];
        }
        f.write_str(std::str::from_utf8(&text).expect("digits are text"))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_json_and_reads_back() {
        let mut lines = Vec::new();
        let first = Link::START.append(b"\"event\":\"A\"}", &mut lines);
        let second = first.append(b"\"event\":\"B\"}", &mut lines);
        let mut before = Hash::ZERO;
        for (line, link) in lines.split(|&byte| byte == b'\n').zip([first, second]) {
            let json: serde_json::Value = serde_json::from_slice(line).expect("JSON");
            assert_eq!(json["seq"], link.seq);
            let parts = Parts::of(line).expect("a line of ours");
            assert_eq!(parts.link, link);
            assert!(parts.follows(&before));
            before = link.hash;
        }
    }

    #[test]
    fn the_hash_is_that_of_the_previous_hash_and_the_body() {
        let mut line = Vec::new();
        Link::START.append(b"\"event\":\"A\"}", &mut line);
        let mut hasher = Sha256::new();
        hasher.update([0; 32]);
        hasher.update(b"\"seq\":1,\"event\":\"A\"}");
        let hash: [u8; 32] = hasher.finalize().into();
        assert_eq!(&line[9..73], Hash(hash).to_string().as_bytes());
    }

    #[test]
    fn every_byte_of_a_line_counts() {
        let mut line = Vec::new();
        Link::START.append(b"\"event\":\"EXEC_START\",\"target\":\"c_1\"}", &mut line);
        line.pop();
        for at in 0..line.len() {
            let mut changed = line.clone();
            changed[at] ^= 0x20;
            let parts = Parts::of(&changed);
            let is_found =
                parts.is_none_or(|parts| !parts.follows(&Hash::ZERO) || parts.link.seq != 1);
            assert!(is_found, "byte {at}");
        }
    }
}
