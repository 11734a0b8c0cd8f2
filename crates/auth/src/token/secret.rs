//! The text of a token, and its hash.
//!
//! A token is `hct_`, 64 hexadecimal digits (256 random bits) and 8 of a checksum. By the prefix
//! and the checksum, scanners and redaction recognize a token. A plain SHA-256 is the right hash:
//! nobody can try 2²⁵⁶ texts, so a slow hash would only slow down the server.

use std::borrow::Cow;
use std::fmt;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq;

/// The prefix of every token of `hotcell token add`.
pub(crate) const PREFIX: &str = "hct_";

/// Number of random bytes in a token.
const RANDOM_BYTES: usize = 32;

/// Number of bytes of its checksum.
const CHECKSUM_BYTES: usize = 4;

/// Bounds on the length of a token that an operator chooses.
const CHOSEN_BYTES_MIN: usize = 16;
const CHOSEN_BYTES_MAX: usize = 4096;

/// The text of a token. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

/// The text is not a valid token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "a bearer token is {CHOSEN_BYTES_MIN} to {CHOSEN_BYTES_MAX} letters, digits or any of `-._~+/=`; make one with `openssl rand -hex 32`"
)]
pub struct SecretError;

/// The SHA-256 of a token: the only part that is stored, as hexadecimal digits.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(try_from = "Cow<str>", into = "String")]
pub(crate) struct SecretHash([u8; 32]);

/// The text is not a hash.
#[derive(Debug, thiserror::Error)]
#[error("a hash is not one")]
pub(crate) struct NotAHash;

impl Secret {
    /// A new token.
    pub fn random() -> Result<Self, getrandom::Error> {
        let mut random = [0; RANDOM_BYTES];
        getrandom::fill(&mut random)?;
        let body = format!("{PREFIX}{}", hex(&random));
        let checksum = checksum(&body);
        Ok(Self(body + &checksum))
    }

    /// Validates a token that an operator chose.
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

    /// The part by which tokens are sorted and looked up. It reveals nothing about the token's text.
    pub(crate) fn id(self) -> u64 {
        let (id, _) = self.0.split_first_chunk().expect("it is longer");
        u64::from_be_bytes(*id)
    }

    /// Compares in constant time.
    pub(crate) fn is(self, other: Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl TryFrom<Cow<'_, str>> for SecretHash {
    type Error = NotAHash;

    fn try_from(hex: Cow<'_, str>) -> Result<Self, NotAHash> {
        Self::parse(&hex).ok_or(NotAHash)
    }
}

impl From<SecretHash> for String {
    fn from(hash: SecretHash) -> Self {
        hash.to_hex()
    }
}

/// Whether a text may follow `Bearer` (RFC 6750).
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
