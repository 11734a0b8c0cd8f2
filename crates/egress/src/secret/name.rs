//! What rules call a secret.

use std::fmt;

/// Longest name of a secret.
const NAME_BYTES_MAX: usize = 64;

/// The name of a secret. It is shown in events; the value never is.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SecretName(Box<str>);

/// Not the name of a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the name of a secret has 1 to 64 lower-case letters, digits, dashes and underscores, the first a letter"
)]
pub struct SecretNameError;

impl SecretName {
    /// Parses a name.
    pub fn parse(text: &str) -> Result<Self, SecretNameError> {
        let is_legal = |byte: u8| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'_')
        };
        let is_name = text.len() <= NAME_BYTES_MAX
            && text.starts_with(|first: char| first.is_ascii_lowercase())
            && text.bytes().all(is_legal);
        is_name.then(|| Self(text.into())).ok_or(SecretNameError)
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SecretName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
