//! The host and port that a program asks a proxy for.

use crate::{HostName, NameError};

/// A host in its canonical form, and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProxyTarget {
    pub(crate) name: HostName,
    pub(crate) port: u16,
}

/// Why a proxy's target is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TargetError {
    #[error("{0}")]
    Name(#[from] NameError),
    #[error("a port is a number from 1 to 65535")]
    Port,
    #[error(
        "this is a proxy: send CONNECT host:port, or a request with a whole http:// address in it"
    )]
    Form,
    #[error("the request names one host in its first line and another in `Host`")]
    Host,
}

impl ProxyTarget {
    /// Parses `host:port`.
    pub(crate) fn parse(text: &str) -> Result<Self, TargetError> {
        let (host, port) = split(text)?;
        Self::new(host, port.ok_or(TargetError::Port)?)
    }

    /// Parses `host` or `host:port`.
    pub(crate) fn parse_with_default(text: &str, default: u16) -> Result<Self, TargetError> {
        let (host, port) = split(text)?;
        Self::new(host, port.unwrap_or(default))
    }

    pub(super) fn new(host: &str, port: u16) -> Result<Self, TargetError> {
        let name = HostName::parse(host)?;
        if port == 0 {
            return Err(TargetError::Port);
        }
        Ok(Self { name, port })
    }
}

/// Splits at the one colon. An IPv6 address has more, and is refused as a name.
fn split(text: &str) -> Result<(&str, Option<u16>), TargetError> {
    let Some((host, port)) = text.split_once(':') else {
        return Ok((text, None));
    };
    if port.contains(':') {
        return Err(TargetError::Name(NameError::Address));
    }
    let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let port = port.parse().ok().filter(|_| is_number);
    Ok((host, Some(port.ok_or(TargetError::Port)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_one_host_are_one_target() {
        let expected = ProxyTarget::parse("example.com:443").unwrap();
        for text in ["EXAMPLE.com:443", "example.com.:443", "example.com:0443"] {
            assert_eq!(ProxyTarget::parse(text).unwrap(), expected, "{text}");
        }
        assert!(ProxyTarget::parse("xn--bcher-kva.example:443").is_ok());
    }

    #[test]
    fn addresses_and_tricks_are_no_targets() {
        for text in [
            "",
            ":443",
            "example.com",
            "example.com:",
            "example.com:0",
            "example.com:65536",
            "example.com:+443",
            "example.com:443:443",
            "127.0.0.1:443",
            "127.1:443",
            "0x7f000001:443",
            "2130706433:443",
            "0177.0.0.1:443",
            "[::1]:443",
            "[::ffff:169.254.169.254]:443",
            "::1",
            "a.com@b.com:443",
            "a.com%00.b.com:443",
            "a.com\0.b.com:443",
            "bücher.example:443",
        ] {
            assert!(ProxyTarget::parse(text).is_err(), "{text:?}");
        }
    }
}
