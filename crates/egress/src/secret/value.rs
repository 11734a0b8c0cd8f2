//! A secret's value, and the forms in which a host could give it back.

use std::fmt;

use base64::Engine as _;
use base64::alphabet::{STANDARD, URL_SAFE};
use base64::engine::{GeneralPurpose, general_purpose::NO_PAD};
use zeroize::Zeroizing;

use super::source::SecretError;

/// Shorter values would be found by chance in every second response, and scrubbed there.
const VALUE_BYTES_MIN: usize = 8;
/// Longest value.
pub(super) const VALUE_BYTES_MAX: usize = 4096;

/// Bytes that are zeroised when they are dropped.
pub(super) type Bytes = Zeroizing<Vec<u8>>;

/// A value that can be sent in a header.
pub(super) struct Value(Bytes);

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Value(…)")
    }
}

impl Value {
    /// Takes the value out of what was read: the line, without its end.
    pub(super) fn parse(read: &[u8]) -> Result<Self, SecretError> {
        let text = read.trim_ascii_end();
        if text.is_empty() {
            return Err(SecretError::Empty);
        }
        if text.len() < VALUE_BYTES_MIN || text.len() > VALUE_BYTES_MAX {
            return Err(SecretError::Length);
        }
        let is_legal = |byte: &u8| byte.is_ascii_graphic() || *byte == b' ';
        if text.starts_with(b" ") || !text.iter().all(is_legal) {
            return Err(SecretError::Characters);
        }
        Ok(Self(Zeroizing::new(text.to_vec())))
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The value as it is, and as base64, hexadecimal, percent-encoding and JSON write it.
    pub(super) fn forms(&self) -> Vec<Bytes> {
        let value = self.as_bytes();
        let mut forms = vec![self.0.clone(), json(value)];
        for alphabet in [&STANDARD, &URL_SAFE] {
            let engine = GeneralPurpose::new(alphabet, NO_PAD);
            forms.extend((0..3).map(|before| base64_within(value, before, &engine)));
        }
        for digits in [b"0123456789abcdef", b"0123456789ABCDEF"] {
            forms.push(hexadecimal(value, digits));
            forms.push(percent(value, digits, b"%20"));
            forms.push(percent(value, digits, b"+"));
        }
        forms
    }
}

/// The characters that encode nothing but the value, if `before` bytes stand before it.
fn base64_within(value: &[u8], before: usize, engine: &GeneralPurpose) -> Bytes {
    let mut padded = Zeroizing::new(vec![0; before]);
    padded.extend_from_slice(value);
    let encoded = Zeroizing::new(engine.encode(&*padded));
    let start = (before * 8).div_ceil(6);
    let end = padded.len() * 8 / 6;
    Zeroizing::new(encoded.as_bytes()[start..end].to_vec())
}

fn hexadecimal(value: &[u8], digits: &[u8; 16]) -> Bytes {
    let pairs = value.iter().flat_map(|byte| hex_digits(*byte, digits));
    Zeroizing::new(pairs.collect())
}

fn hex_digits(byte: u8, digits: &[u8; 16]) -> [u8; 2] {
    [
        digits[usize::from(byte >> 4)],
        digits[usize::from(byte & 15)],
    ]
}

fn percent(value: &[u8], digits: &[u8; 16], space: &[u8]) -> Bytes {
    let mut encoded = Zeroizing::new(Vec::with_capacity(3 * value.len()));
    for byte in value {
        match byte {
            b' ' => encoded.extend_from_slice(space),
            b'-' | b'.' | b'_' | b'~' => encoded.push(*byte),
            byte if byte.is_ascii_alphanumeric() => encoded.push(*byte),
            byte => {
                encoded.push(b'%');
                encoded.extend(hex_digits(*byte, digits));
            }
        }
    }
    encoded
}

/// As JSON writers put it that escape the slash, too.
fn json(value: &[u8]) -> Bytes {
    let mut escaped = Zeroizing::new(Vec::with_capacity(2 * value.len()));
    for byte in value {
        if matches!(byte, b'"' | b'\\' | b'/') {
            escaped.push(b'\\');
        }
        escaped.push(*byte);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use base64::prelude::*;

    use super::*;

    fn contains(haystack: &[u8], needle: &[u8]) -> bool {
        memchr::memmem::find(haystack, needle).is_some()
    }

    fn hex(text: &str) -> String {
        text.bytes().fold(String::new(), |mut hex, byte| {
            write!(hex, "{byte:02x}").unwrap();
            hex
        })
    }

    #[test]
    fn each_encoding_of_a_text_with_the_value_has_one_of_its_forms() {
        let value = Value::parse(b"s3cr/t+va?ue \"x\n").unwrap();
        let forms = value.forms();
        for before in ["", "a", "ab", "abc", "x-access-token:"] {
            let text = format!("{before}s3cr/t+va?ue \"x and more");
            for encoded in [
                BASE64_STANDARD.encode(&text),
                BASE64_URL_SAFE.encode(&text),
                hex(&text),
                hex(&text).to_uppercase(),
                text.clone(),
            ] {
                let found = forms.iter().any(|form| contains(encoded.as_bytes(), form));
                assert!(found, "{encoded}");
            }
        }
        for encoded in [
            "s3cr%2Ft%2Bva%3Fue%20%22x",
            "s3cr%2ft%2bva%3fue+%22x",
            "s3cr\\/t+va?ue \\\"x",
        ] {
            let found = forms.iter().any(|form| encoded.as_bytes() == &***form);
            assert!(found, "{encoded}");
        }
    }

    #[test]
    fn what_cannot_be_sent_or_scrubbed_is_no_value() {
        for (read, expected) in [
            (&b""[..], "is empty"),
            (b"\n", "is empty"),
            (b"short", "has 8 to 4096 characters"),
            (b"two\nlines", "is one line of printable ASCII characters"),
            (b" leading", "is one line of printable ASCII characters"),
        ] {
            let error = Value::parse(read).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        assert!(Value::parse(&[b'a'; VALUE_BYTES_MAX + 1]).is_err());
        let value = Value::parse(b"a-secret-value\r\n").unwrap();
        assert_eq!(format!("{value:?}"), "Value(…)");
    }
}
