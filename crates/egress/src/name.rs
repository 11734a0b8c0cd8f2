//! Host names in one canonical form.
//!
//! Matching, resolving, dialling, comparing with SNI and logging all use this one type. A matcher
//! and a resolver that read the same bytes differently are how allow-lists are escaped.

use std::fmt;

/// Longest host name of DNS, without the final dot.
pub(crate) const NAME_BYTES_MAX: usize = 253;
const LABEL_BYTES_MAX: usize = 63;

/// Top-level names that no public server answers for. They are not sent to a resolver unless a
/// profile lists them.
const SPECIAL: [&str; 9] = [
    "alt",
    "arpa",
    "home",
    "internal",
    "invalid",
    "local",
    "localhost",
    "onion",
    "test",
];

/// A host name: lower case, at least two labels of letters, digits, `-` and `_`, no final dot, and
/// nothing that any program could read as an IP address.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostName(Box<str>);

/// Why something is not a host name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Nothing, or more than DNS can carry.
    #[error("a host name has 1 to 253 characters")]
    Length,
    /// `localhost`, `db`: what it means depends on who resolves it.
    #[error("a host name has at least two labels, such as example.com")]
    SingleLabel,
    /// An empty or overlong label, or one with characters that host names do not have.
    #[error(
        "each label of a host name has 1 to 63 letters, digits, '-' and '_'; write international names in their xn-- form"
    )]
    Label,
    /// An IP address in any spelling, `127.1` and `0x7f.1` included.
    #[error("IP addresses are not host names")]
    Address,
}

impl HostName {
    /// Parses a name and brings it into its canonical form.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let text = text.strip_suffix('.').unwrap_or(text);
        if text.is_empty() || text.len() > NAME_BYTES_MAX {
            return Err(NameError::Length);
        }
        if text.starts_with('[') || text.contains(':') {
            return Err(NameError::Address);
        }
        if !text.split('.').all(is_label) {
            return Err(NameError::Label);
        }
        let (_, last) = text.rsplit_once('.').unwrap_or(("", text));
        if is_number(last) {
            return Err(NameError::Address);
        }
        if !text.contains('.') {
            return Err(NameError::SingleLabel);
        }
        Ok(Self(text.to_ascii_lowercase().into()))
    }

    /// The canonical text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it ends in a name for special use, such as `.local` or `.internal`.
    pub fn is_special(&self) -> bool {
        let last = self.0.rsplit('.').next().unwrap_or_default();
        SPECIAL.contains(&last)
    }

    /// The names above this one, the nearest first: `b.c` and `c` for `a.b.c`.
    pub(crate) fn parents(&self) -> impl Iterator<Item = &str> {
        self.0.match_indices('.').map(|(dot, _)| &self.0[dot + 1..])
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn is_label(label: &str) -> bool {
    let bytes = label.as_bytes();
    (1..=LABEL_BYTES_MAX).contains(&bytes.len())
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
        && !label.starts_with('-')
        && !label.ends_with('-')
}

/// Whether a last label makes the whole name an IPv4 address for `inet_aton`, browsers or curl:
/// decimal, octal or hexadecimal.
fn is_number(label: &str) -> bool {
    let hexadecimal = label
        .strip_prefix("0x")
        .or_else(|| label.strip_prefix("0X"));
    match hexadecimal {
        Some(digits) => digits.bytes().all(|byte| byte.is_ascii_hexdigit()),
        None => label.bytes().all(|byte| byte.is_ascii_digit()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_have_one_canonical_form() {
        for text in ["example.com", "EXAMPLE.com", "example.com.", "Example.Com."] {
            assert_eq!(HostName::parse(text).unwrap().as_str(), "example.com");
        }
        assert!(HostName::parse("_dmarc.xn--bcher-kva.example").is_ok());
    }

    #[test]
    fn what_could_be_read_as_an_address_is_no_name() {
        for text in [
            "127.0.0.1",
            "127.1",
            "2130706433",
            "0x7f000001",
            "0x7f.1",
            "a.0x7f",
            "0x",
            "a.0x",
            "0177.0.0.1",
            "example.1",
            "[::1]",
            "[::ffff:169.254.169.254]",
            "::1",
            "fe80::1%eth0",
        ] {
            assert!(HostName::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_two_parsers_could_read_differently_is_no_name() {
        for text in [
            "",
            ".",
            "..",
            ".com",
            "a..com",
            "a.com..",
            "localhost",
            "a.com@b.com",
            "a.com%00.b.com",
            "a.com\0.b.com",
            "a.com .b.com",
            "a.com/b.com",
            "a.com:443",
            "a.com#b.com",
            "a.com\\b.com",
            "bücher.example",
            "a。com",
            "-a.com",
            "a-.com",
        ] {
            assert!(HostName::parse(text).is_err(), "{text:?}");
        }
        assert!(HostName::parse(&format!("{}.com", "a".repeat(64))).is_err());
        assert!(HostName::parse(&format!("{}com", "a.".repeat(126))).is_err());
        assert!(HostName::parse(&format!("{}a", "a.".repeat(126))).is_ok());
    }

    #[test]
    fn special_names_are_known() {
        for (text, is_special) in [
            ("printer.local", true),
            ("metadata.google.internal", true),
            ("1.0.0.127.in-addr.arpa", true),
            ("local.example.com", false),
        ] {
            assert_eq!(HostName::parse(text).unwrap().is_special(), is_special);
        }
    }

    proptest! {
        #[test]
        fn a_parsed_name_parses_to_itself(text in "\\PC{0,40}") {
            if let Ok(name) = HostName::parse(&text) {
                prop_assert_eq!(HostName::parse(name.as_str()), Ok(name.clone()));
                prop_assert!(name.as_str().parse::<std::net::IpAddr>().is_err());
            }
        }
    }
}
