//! The name of a token.

use std::fmt;

use hotcell_domain::{Name, Principal};
use serde::{Deserialize, Serialize};

/// The longest name of a token.
const TOKEN_NAME_BYTES_MAX: usize = 64;

/// 1 to 64 letters, digits, `.`, `_`, `-` and `@`, the first a letter or a digit: it appears in
/// logs, in files and on the command line, and must look the same in all of them.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TokenName(Box<str>);

/// The text is not a valid token name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "a token's name is 1 to {TOKEN_NAME_BYTES_MAX} letters, digits, `.`, `_`, `-` or `@`, and begins with a letter or a digit"
)]
pub struct TokenNameError;

impl TokenName {
    /// Parses a name that an operator chose.
    pub fn parse(text: &str) -> Result<Self, TokenNameError> {
        let is_legal = |c: char| c.is_ascii_alphanumeric() || "._-@".contains(c);
        let begins_well = text.starts_with(|c: char| c.is_ascii_alphanumeric());
        let is_name =
            begins_well && text.len() <= TOKEN_NAME_BYTES_MAX && text.chars().all(is_legal);
        is_name.then(|| Self(text.into())).ok_or(TokenNameError)
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The principal that owns what is created with this token.
    pub fn principal(&self) -> Principal {
        let name = Name::parse(&format!("token:{}", self.0));
        Principal::new(name.expect("it is short and printable"))
    }
}

impl TryFrom<String> for TokenName {
    type Error = TokenNameError;

    fn try_from(text: String) -> Result<Self, TokenNameError> {
        Self::parse(&text)
    }
}

impl From<TokenName> for String {
    fn from(name: TokenName) -> Self {
        name.0.into_string()
    }
}

impl fmt::Display for TokenName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_names_are_refused() {
        let long = "x".repeat(TOKEN_NAME_BYTES_MAX + 1);
        for text in [
            "",
            " ",
            "a b",
            "a\n",
            "a\0",
            "-rf",
            ".hidden",
            "@home",
            "a/b",
            "a:b",
            "ä",
            "\u{202e}a",
            "a\u{200b}",
            "`id`",
            "$(id)",
            "a,b",
            "\u{1b}[0m",
            "a'b",
            &long,
        ] {
            assert_eq!(TokenName::parse(text), Err(TokenNameError), "{text:?}");
        }
        for text in ["a", "ci-7", "alice@example.org", "v1.2_x", &long[1..]] {
            assert!(TokenName::parse(text).is_ok(), "{text:?}");
        }
    }

    #[test]
    fn no_name_makes_another_kind_of_principal() {
        for text in ["local", "token", "root"] {
            let principal = TokenName::parse(text).unwrap().principal();
            assert_eq!(principal.as_str(), format!("token:{text}"));
            assert_ne!(principal, Principal::local());
        }
    }
}
