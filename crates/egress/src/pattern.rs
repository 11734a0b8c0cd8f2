//! What a profile can list: a host, or every name below one, with ports.

use std::fmt;

use crate::{HostName, NameError};

/// Ports of an entry that names none.
pub(crate) const PORTS_DEFAULT: [u16; 2] = [443, 80];

/// An entry of a list: `example.com`, `*.example.com` (every name below it, at any depth, but not
/// itself), either with `:PORT`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pattern {
    /// The host, or the domain below which every name matches.
    pub name: HostName,
    /// Whether it was written as `*.name`.
    pub is_wildcard: bool,
    /// `None`: the default ports.
    pub port: Option<u16>,
}

/// Why a text is not a pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// The host is none.
    #[error("`{text}`: {source}")]
    Name {
        /// What was written.
        text: String,
        /// What is wrong with it.
        source: NameError,
    },
    /// `*`, `*.com`, `a*.example.com`, `*.*.example.com`.
    #[error(
        "`{0}`: a wildcard stands first and before at least two labels, as in *.example.com; `open = true` allows every host"
    )]
    Wildcard(String),
    /// Not a number from 1 to 65535.
    #[error("`{0}`: a port is a number from 1 to 65535")]
    Port(String),
}

impl Pattern {
    /// Parses an entry.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) => (host, Some(parse_port(text, port)?)),
            None => (text, None),
        };
        let (name, is_wildcard) = match host.strip_prefix("*.") {
            Some(name) => (name, true),
            None => (host, false),
        };
        if name.contains('*') || (is_wildcard && !name.contains('.')) {
            return Err(PatternError::Wildcard(text.to_owned()));
        }
        let name = HostName::parse(name).map_err(|source| PatternError::Name {
            text: text.to_owned(),
            source,
        })?;
        Ok(Self {
            name,
            is_wildcard,
            port,
        })
    }

    /// The ports that it stands for.
    pub fn ports(&self) -> impl Iterator<Item = u16> {
        let defaults = PORTS_DEFAULT.into_iter().filter(|_| self.port.is_none());
        self.port.into_iter().chain(defaults)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let star = if self.is_wildcard { "*." } else { "" };
        write!(f, "{star}{}", self.name)?;
        match self.port {
            Some(port) => write!(f, ":{port}"),
            None => Ok(()),
        }
    }
}

fn parse_port(text: &str, port: &str) -> Result<u16, PatternError> {
    let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let number = port.parse().ok().filter(|port| is_number && *port > 0);
    number.ok_or_else(|| PatternError::Port(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_a_host_or_everything_below_one() {
        for (text, shown, ports) in [
            ("Example.com", "example.com", &[443, 80][..]),
            ("*.example.com", "*.example.com", &[443, 80]),
            ("db.example.com:5432", "db.example.com:5432", &[5432]),
        ] {
            let pattern = Pattern::parse(text).unwrap();
            assert_eq!(pattern.to_string(), shown);
            assert_eq!(pattern.ports().collect::<Vec<_>>(), ports);
        }
    }

    #[test]
    fn wildcards_elsewhere_addresses_and_bad_ports_are_refused() {
        for text in [
            "*",
            "*.com",
            "a*.example.com",
            "*.*.example.com",
            "a.*.com",
            "10.0.0.1",
            "10.0.0.1:80",
            "[::1]:80",
            "example.com:",
            "example.com:0",
            "example.com:65536",
            "example.com:+1",
            "localhost",
            "",
            "https://example.com",
        ] {
            assert!(Pattern::parse(text).is_err(), "{text}");
        }
    }
}
