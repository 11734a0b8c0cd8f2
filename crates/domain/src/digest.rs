//! Content digests, which identify exact bytes.

use std::fmt;

const PREFIX: &str = "sha256:";

/// Hexadecimal digits of 256 bits.
const HEX_DIGITS: usize = 64;

/// `sha256:` and 64 hexadecimal digits, lower case. Its digits are safe as a file name.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest(String);

/// The text is not a valid digest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a digest is `sha256:` and {HEX_DIGITS} hexadecimal digits in lower case")]
pub struct DigestError;

impl Digest {
    /// Parses a digest. Refuses other algorithms: no relevant registry uses them.
    pub fn parse(text: &str) -> Result<Self, DigestError> {
        let hex = text.strip_prefix(PREFIX).ok_or(DigestError)?;
        let legal = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if hex.len() == HEX_DIGITS && hex.bytes().all(legal) {
            return Ok(Self(text.to_owned()));
        }
        Err(DigestError)
    }

    /// The digest of these 256 bits.
    pub fn from_sha256(hash: [u8; 32]) -> Self {
        use fmt::Write;
        let mut text = PREFIX.to_owned();
        for byte in hash {
            let _ = write!(text, "{byte:02x}");
        }
        Self(text)
    }

    /// With the algorithm: `sha256:…`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Without the algorithm.
    pub fn hex(&self) -> &str {
        &self.0[PREFIX.len()..]
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_no_digest_is_refused() {
        let upper = format!("sha256:{}", "A".repeat(64));
        let short = format!("sha256:{}", "a".repeat(63));
        let path = format!("sha256:{}", "../".repeat(21) + "a");
        let other = format!("sha512:{}", "a".repeat(128));
        for text in ["", "sha256:", &upper, &short, &path, &other] {
            assert_eq!(Digest::parse(text), Err(DigestError), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_hash_can_be_read_back(hash: [u8; 32]) {
            let digest = Digest::from_sha256(hash);
            prop_assert_eq!(Digest::parse(digest.as_str()), Ok(digest));
        }
    }
}
