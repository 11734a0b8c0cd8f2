//! Names and labels: short texts that callers choose.

use std::collections::BTreeMap;
use std::fmt;

/// The longest name.
const NAME_BYTES_MAX: usize = 256;

/// How many labels a container may have.
const LABELS_MAX: usize = 64;

/// A text of 1 to 256 bytes without control characters: a client's name, a session, an
/// idempotency key, a label.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(String);

/// The text is not a valid name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("must be 1 to {NAME_BYTES_MAX} bytes of text without control characters")]
pub struct NameError;

/// Labels that a caller sets on a container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Labels(BTreeMap<Name, String>);

/// Why a label is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LabelError {
    /// An invalid name or value.
    #[error(
        "label names are 1 to {NAME_BYTES_MAX} bytes, values at most {NAME_BYTES_MAX}, both without control characters"
    )]
    Text,
    /// Too many.
    #[error("more than {LABELS_MAX} labels")]
    TooMany,
}

impl Name {
    /// Validates a text that a caller chose.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let legal = (1..=NAME_BYTES_MAX).contains(&text.len()) && !text.contains(char::is_control);
        legal.then(|| Self(text.to_owned())).ok_or(NameError)
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Labels {
    /// Sets a label, replacing an earlier value.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), LabelError> {
        let name = Name::parse(name).map_err(|_| LabelError::Text)?;
        if value.len() > NAME_BYTES_MAX || value.contains(char::is_control) {
            return Err(LabelError::Text);
        }
        if self.0.len() >= LABELS_MAX && !self.0.contains_key(&name) {
            return Err(LabelError::TooMany);
        }
        self.0.insert(name, value.to_owned());
        Ok(())
    }

    /// The labels, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_short_and_printable() {
        for text in ["", "a\0", "a\nb", "\u{1b}[0m", &"x".repeat(257)] {
            assert_eq!(Name::parse(text), Err(NameError), "{text:?}");
        }
        assert!(Name::parse("Claude Desktop / späte Sitzung").is_ok());
    }

    #[test]
    fn labels_are_bounded() {
        let mut labels = Labels::default();
        for number in 0..LABELS_MAX {
            assert_eq!(labels.set(&number.to_string(), ""), Ok(()));
        }
        assert_eq!(labels.set("one-more", ""), Err(LabelError::TooMany));
        assert_eq!(labels.set("0", "again"), Ok(()));
        assert_eq!(labels.set("0", "a\0"), Err(LabelError::Text));
    }
}
