//! The variable that stands for a secret inside a container.

use std::fmt;

/// Longest name of a variable.
const NAME_BYTES_MAX: usize = 128;

/// What the variable contains: a word that opens nothing and says where the real value is.
pub const INSIDE_WORD: &str = "hotcell-sets-this-on-the-host";

/// The name of a variable that programs inside want to see set before they start.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InsideName(Box<str>);

/// Not the name of a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`inside` is the name of a variable: 1 to 128 letters, digits and underscores, the first no digit"
)]
pub struct InsideNameError;

impl InsideName {
    /// Parses a name.
    pub fn parse(text: &str) -> Result<Self, InsideNameError> {
        let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        let is_name = text.len() <= NAME_BYTES_MAX
            && text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
            && text.bytes().all(is_legal);
        is_name.then(|| Self(text.into())).ok_or(InsideNameError)
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for InsideName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_shell_could_set_is_no_variable() {
        for text in ["EXAMPLE_TOKEN", "_a1"] {
            assert!(InsideName::parse(text).is_ok(), "{text}");
        }
        for text in ["", "1A", "A-B", "A=B", "A B", "Ä", "A\0"] {
            assert!(InsideName::parse(text).is_err(), "{text:?}");
        }
        assert!(InsideName::parse(&"A".repeat(NAME_BYTES_MAX + 1)).is_err());
    }
}
