//! Ids: opaque, unguessable, and safe as file names.

use std::fmt;

/// Crockford's base 32, in lower case.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// 128 bits in base 32.
const DIGITS: usize = 26;

/// A container's id: `c_` and 26 characters.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContainerId(String);

/// An exec's id: `e_` and 26 characters.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ExecId(String);

/// The id of a run of a script: `r_` and 26 characters.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RunId(String);

/// The text is not a valid id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a {kind} id is `{prefix}` and 26 characters of 0-9 and a-z")]
pub struct IdError {
    kind: &'static str,
    prefix: &'static str,
}

macro_rules! handle {
    ($name:ident, $kind:literal, $prefix:literal) => {
        impl $name {
            /// Creates an id from the time and ten random bytes, so that ids sort by age and cannot
            /// be guessed.
            pub fn from_parts(unix_ms: u64, random: [u8; 10]) -> Self {
                Self(format!("{}{}", $prefix, encode(unix_ms, random)))
            }

            /// Parses an id from a caller or a file.
            pub fn parse(text: &str) -> Result<Self, IdError> {
                let digits = text.strip_prefix($prefix).map(str::as_bytes);
                match digits {
                    Some(digits)
                        if digits.len() == DIGITS
                            && digits.iter().all(|digit| ALPHABET.contains(digit)) =>
                    {
                        Ok(Self(text.to_owned()))
                    }
                    _ => Err(IdError {
                        kind: $kind,
                        prefix: $prefix,
                    }),
                }
            }

            /// When the id was created, in milliseconds since 1970.
            pub fn unix_ms(&self) -> u64 {
                decode_unix_ms(&self.0[$prefix.len()..])
            }

            /// The id as callers see it.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

handle!(ContainerId, "container", "c_");
handle!(ExecId, "exec", "e_");
handle!(RunId, "run", "r_");

/// 48 bits of time, then 80 random bits; five bits per digit, most significant first.
fn encode(unix_ms: u64, random: [u8; 10]) -> String {
    let mut low = [0_u8; 16];
    low[..6].copy_from_slice(&unix_ms.to_be_bytes()[2..]);
    low[6..].copy_from_slice(&random);
    let value = u128::from_be_bytes(low);
    (0..DIGITS)
        .rev()
        .map(|digit| char::from(ALPHABET[(value >> (5 * digit)) as usize & 31]))
        .collect()
}

/// Decodes the time: the digits encode two zero bits and then 128 bits, of which the first 48 are
/// the time.
fn decode_unix_ms(digits: &str) -> u64 {
    let value = digits.bytes().fold(0_u128, |value, digit| {
        let digit = ALPHABET.iter().position(|known| *known == digit);
        value << 5 | digit.unwrap_or(0) as u128
    });
    (value >> 80) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_made_handle_can_be_read_back(ms in 0..1_u64 << 48, random: [u8; 10]) {
            let id = ContainerId::from_parts(ms, random);
            prop_assert_eq!(id.unix_ms(), ms);
            prop_assert_eq!(ContainerId::parse(id.as_str()), Ok(id));
        }

        #[test]
        fn later_handles_sort_after_earlier_ones(ms in 0..(1_u64 << 48) - 1, a: [u8; 10], b: [u8; 10]) {
            prop_assert!(ExecId::from_parts(ms, a) < ExecId::from_parts(ms + 1, b));
        }

        #[test]
        fn no_text_makes_parse_panic(text in ".*") {
            let _ = ContainerId::parse(&text);
        }
    }

    #[test]
    fn a_handle_with_a_path_in_it_is_refused() {
        for text in [
            "",
            "c_",
            "c_../../etc",
            "e_00000000000000000000000000",
            "c_0000000000000000000000000/",
        ] {
            assert!(ContainerId::parse(text).is_err(), "{text}");
        }
    }
}
