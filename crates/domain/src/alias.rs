//! Aliases: names that callers choose for containers.

use std::fmt;

use crate::ContainerId;

/// The longest alias.
const ALIAS_BYTES_MAX: usize = 63;

/// A container's second name, unique per principal while the container exists.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Alias(String);

/// Why a text cannot be an alias.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AliasError {
    /// Invalid characters or length.
    #[error(
        "an alias is 1 to {ALIAS_BYTES_MAX} characters of a-z, 0-9, `.`, `_` and `-`, and starts with a letter or digit"
    )]
    Form,
    /// It could be confused with an id.
    #[error("an alias must not look like a container id")]
    LooksLikeAnId,
}

/// How a caller names a container: by its id or by its alias.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ContainerRef {
    /// By its id.
    Id(ContainerId),
    /// By its alias.
    Alias(Alias),
}

impl Alias {
    /// Validates an alias that a caller chose.
    pub fn parse(text: &str) -> Result<Self, AliasError> {
        let head = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        let legal = text.starts_with(head)
            && text.len() <= ALIAS_BYTES_MAX
            && text.chars().all(|c| head(c) || "._-".contains(c));
        if !legal {
            return Err(AliasError::Form);
        }
        if ContainerId::parse(text).is_ok() {
            return Err(AliasError::LooksLikeAnId);
        }
        Ok(Self(text.to_owned()))
    }

    /// The text that the caller chose.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl ContainerRef {
    /// Parses an id or an alias; `None` for a text that no container can have.
    pub fn parse(text: &str) -> Option<Self> {
        if let Ok(id) = ContainerId::parse(text) {
            return Some(Self::Id(id));
        }
        Alias::parse(text).ok().map(Self::Alias)
    }
}

impl fmt::Display for Alias {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for ContainerRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(id) => id.fmt(f),
            Self::Alias(alias) => alias.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_names_are_aliases() {
        for text in ["a", "0", "my-app_1.2", &"a".repeat(63)] {
            assert!(Alias::parse(text).is_ok(), "{text}");
        }
        for text in [
            "",
            "-a",
            ".a",
            "_a",
            "A",
            "a b",
            "a/b",
            "ä",
            "a\n",
            &"a".repeat(64),
        ] {
            assert_eq!(Alias::parse(text), Err(AliasError::Form), "{text}");
        }
    }

    #[test]
    fn an_alias_that_looks_like_an_id_is_refused() {
        let id = ContainerId::from_parts(1, [7; 10]);
        assert_eq!(Alias::parse(id.as_str()), Err(AliasError::LooksLikeAnId));
        assert_eq!(ContainerRef::parse(id.as_str()), Some(ContainerRef::Id(id)));
    }

    #[test]
    fn what_names_nothing_is_no_reference() {
        assert_eq!(ContainerRef::parse("../etc"), None);
    }
}
