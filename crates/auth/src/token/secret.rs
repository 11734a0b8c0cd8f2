//! The text of a token, and its hash.
//!
//! `hct_`, 64 hexadecimal digits (256 random bits) and 8 of a checksum. The prefix and the
//! checksum let scanners and redaction recognise a token without asking anybody. A plain
//! SHA-256 is the right hash for it: nobody can try 2²⁵⁶ texts, so a slow one would only slow
//! the server.

use std::fmt;
use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq;

/// What each token of `hotcell token add` begins with.
pub(crate) const PREFIX: &str = "hct_";

/// Random bytes of a token.
const RANDOM_BYTES: usize = 32;

/// Bytes of its checksum.
const CHECKSUM_BYTES: usize = 4;

/// Lengths of a token that an operator chooses.
const CHOSEN_BYTES_MIN: usize = 16;
const CHOSEN_BYTES_MAX: usize = 4096;

/// The text of a token. It is not shown by `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

/// A text that cannot be a token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "a bearer token is {CHOSEN_BYTES_MIN} to {CHOSEN_BYTES_MAX} letters, digits or any of `-._~+/=`; make one with `openssl rand -hex 32`"
)]
pub struct SecretError;

/// The SHA-256 of a token's text: all that is kept of it.
#[derive(Clone, Copy)]
pub(crate) struct SecretHash([u8; 32]);

impl Secret {
    /// A new token.
    pub fn random() -> Result<Self, getrandom::Error> {
        let mut random = [0; RANDOM_BYTES];
        getrandom::fill(&mut random)?;
        let body = format!("{PREFIX}{}", hex(&random));
        let checksum = checksum(&body);
        Ok(Self(body + &checksum))
    }

    /// Reads a token that an operator chose.
    pub fn parse(text: &str) -> Result<Self, SecretError> {
        let is_legal =
            (CHOSEN_BYTES_MIN..=CHOSEN_BYTES_MAX).contains(&text.len()) && is_b64token(text);
        is_legal.then(|| Self(text.to_owned())).ok_or(SecretError)
    }

    /// The text itself, for the one time that it is shown.
    pub fn expose(&self) -> &str {
        &self.0
    }

    pub(crate) fn hash(&self) -> SecretHash {
        SecretHash::of(&self.0)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(***)")
    }
}

impl SecretHash {
    pub(crate) fn of(text: &str) -> Self {
        Self(Sha256::digest(text).into())
    }

    pub(crate) fn parse(hex: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        if hex.len() != 2 * bytes.len() || !hex.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).ok()?;
        }
        Some(Self(bytes))
    }

    pub(crate) fn to_hex(self) -> String {
        hex(&self.0)
    }

    /// The part by which a token is looked up. It says nothing of the token's text.
    pub(crate) fn id(self) -> u64 {
        let (id, _) = self.0.split_first_chunk().expect("it is longer");
        u64::from_be_bytes(*id)
    }

    /// Whether both are the same, found out in the same time whatever the answer.
    pub(crate) fn is(self, other: Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

/// Whether a text is what RFC 6750 lets follow `Bearer`.
fn is_b64token(text: &str) -> bool {
    text.bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte))
}

fn checksum(body: &str) -> String {
    hex(&Sha256::digest(body)[..CHECKSUM_BYTES])
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes everything");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_can_be_recognised_and_is_never_the_same() {
        let (one, other) = (Secret::random().unwrap(), Secret::random().unwrap());
        assert_ne!(one, other);
        let text = one.expose();
        assert_eq!(text.len(), 4 + 64 + 8);
        let (body, sum) = text.split_at(4 + 64);
        assert!(body.starts_with("hct_"));
        assert_eq!(sum, checksum(body));
    }

    #[test]
    fn debug_shows_nothing_of_it() {
        let secret = Secret::random().unwrap();
        assert_eq!(format!("{secret:?}"), "Secret(***)");
    }

    #[test]
    fn a_chosen_token_is_long_enough_and_fits_a_header() {
        for text in [
            "",
            "secret",
            "fifteen-letters",
            "with a blank inside it",
            "with\nnewline-in-it",
            &"x".repeat(4097),
        ] {
            assert_eq!(Secret::parse(text), Err(SecretError), "{text:?}");
        }
        assert!(Secret::parse("abcDEF123-._~+/=").is_ok());
    }

    #[test]
    fn a_hash_survives_its_file() {
        let hash = Secret::random().unwrap().hash();
        let read = SecretHash::parse(&hash.to_hex()).unwrap();
        assert!(read.is(hash));
        assert!(!read.is(Secret::random().unwrap().hash()));
        for bad in ["", "00", &"g".repeat(64), &"+1".repeat(32), &"é".repeat(32)] {
            assert!(SecretHash::parse(bad).is_none(), "{bad}");
        }
    }
}
