//! How long a value is, as far as anybody is told.

use std::fmt;

/// Values of this many bytes are long enough to be hard to guess.
const MEDIUM_BYTES_MIN: usize = 32;
const LONG_BYTES_MIN: usize = 256;

/// Roughly how long a value is: enough to see that it is a token and not a file name or a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretLength {
    /// 8 to 31 characters.
    Short,
    /// 32 to 255 characters.
    Medium,
    /// 256 to 4096 characters.
    Long,
}

impl SecretLength {
    pub(super) fn of(bytes: usize) -> Self {
        match bytes {
            0..MEDIUM_BYTES_MIN => Self::Short,
            MEDIUM_BYTES_MIN..LONG_BYTES_MIN => Self::Medium,
            LONG_BYTES_MIN.. => Self::Long,
        }
    }
}

impl fmt::Display for SecretLength {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Short => "8 to 31 characters",
            Self::Medium => "32 to 255 characters",
            Self::Long => "256 to 4096 characters",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_is_told_roughly() {
        let said = |bytes| SecretLength::of(bytes).to_string();
        assert_eq!(said(31), "8 to 31 characters");
        assert_eq!((said(32), said(255)), (said(100), said(40)));
        assert_eq!(said(256), "256 to 4096 characters");
    }
}
