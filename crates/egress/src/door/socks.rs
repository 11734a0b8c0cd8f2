//! The part of SOCKS5 (RFC 1928) that a proxy by name needs: no authentication, `CONNECT`, names.

use std::net::{Ipv4Addr, Ipv6Addr};

use tokio::io::{AsyncRead, AsyncReadExt as _};

use super::target::{ProxyTarget, TargetError};

pub(super) const VERSION: u8 = 5;
const CONNECT: u8 = 1;

const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;

/// The answers to a greeting.
pub(super) const NO_AUTHENTICATION: [u8; 2] = [VERSION, 0];

pub(super) const NO_METHOD: [u8; 2] = [VERSION, 0xff];

/// The answers to a request: there is no address that could be told.
pub(super) const SUCCEEDED: [u8; 10] = reply(0);
pub(super) const NOT_ALLOWED: [u8; 10] = reply(2);

const fn reply(code: u8) -> [u8; 10] {
    [VERSION, code, 0, IPV4, 0, 0, 0, 0, 0, 0]
}

/// Why a program does not get its connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SocksError {
    #[error("the connection ended early")]
    Io(#[from] std::io::Error),
    #[error("this is not SOCKS5")]
    Version,
    #[error("the program wants to authenticate, and there is nothing to authenticate to")]
    Methods,
    #[error("only CONNECT is possible")]
    Command,
    #[error("unknown kind of address")]
    AddressKind,
    #[error("{0}:{1} is no host name: {2}")]
    Target(String, u16, TargetError),
}

impl SocksError {
    pub(super) fn reply(&self) -> [u8; 10] {
        match self {
            Self::Io(_) | Self::Version | Self::Methods => reply(1),
            Self::Target(..) => NOT_ALLOWED,
            Self::Command => reply(7),
            Self::AddressKind => reply(8),
        }
    }
}

/// Reads the methods of authentication, of which none has to be one.
pub(crate) async fn read_greeting(stream: &mut (impl AsyncRead + Unpin)) -> Result<(), SocksError> {
    let [version, count] = read_array(stream).await?;
    if version != VERSION {
        return Err(SocksError::Version);
    }
    let mut methods = [0; 255];
    let methods = &mut methods[..count.into()];
    stream.read_exact(methods).await?;
    methods
        .contains(&0)
        .then_some(())
        .ok_or(SocksError::Methods)
}

/// Reads what the program wants to be connected to.
pub(crate) async fn read_request(
    stream: &mut (impl AsyncRead + Unpin),
) -> Result<ProxyTarget, SocksError> {
    let [version, command, _, kind] = read_array(stream).await?;
    if version != VERSION {
        return Err(SocksError::Version);
    }
    let host = match kind {
        IPV4 => Ipv4Addr::from(read_array::<4>(stream).await?).to_string(),
        IPV6 => Ipv6Addr::from(read_array::<16>(stream).await?).to_string(),
        NAME => read_name(stream).await?,
        _ => return Err(SocksError::AddressKind),
    };
    let port = u16::from_be_bytes(read_array(stream).await?);
    if command != CONNECT {
        return Err(SocksError::Command);
    }
    ProxyTarget::new(&host, port).map_err(|error| SocksError::Target(host, port, error))
}

/// Whatever is no ASCII becomes a character that no name has.
async fn read_name(stream: &mut (impl AsyncRead + Unpin)) -> Result<String, SocksError> {
    let [length] = read_array(stream).await?;
    let mut bytes = [0; 255];
    let bytes = &mut bytes[..length.into()];
    stream.read_exact(bytes).await?;
    Ok(String::from_utf8_lossy(bytes).into_owned())
}

async fn read_array<const N: usize>(
    stream: &mut (impl AsyncRead + Unpin),
) -> Result<[u8; N], SocksError> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes).await?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn asked(kind: u8, address: &[u8]) -> String {
        let mut message = vec![VERSION, CONNECT, 0, kind];
        message.extend(address);
        message.extend(443_u16.to_be_bytes());
        match read_request(&mut &message[..]).await {
            Ok(target) => format!("{}:{}", target.name, target.port),
            Err(error) => error.to_string(),
        }
    }

    fn named(name: &[u8]) -> Vec<u8> {
        let mut bytes = vec![u8::try_from(name.len()).unwrap()];
        bytes.extend(name);
        bytes
    }

    #[tokio::test]
    async fn names_are_canonical_and_addresses_and_tricks_are_refused() {
        assert_eq!(
            asked(NAME, &named(b"EXAMPLE.com.")).await,
            "example.com:443"
        );
        for name in [
            &b"127.0.0.1"[..],
            b"127.1",
            b"a.com\0.b.com",
            b"a.com@b.com",
            b"",
            b"\xff\xfe.com",
            b"localhost",
        ] {
            let answer = asked(NAME, &named(name)).await;
            assert!(answer.contains("is no host name"), "{answer}");
        }
        assert!(
            asked(IPV4, &[169, 254, 169, 254])
                .await
                .contains("169.254.169.254:443 is no")
        );
        assert!(asked(IPV6, &[0; 16]).await.contains("is no host name"));
        assert_eq!(asked(9, &[]).await, "unknown kind of address");
    }

    #[tokio::test]
    async fn only_connect_without_authentication_is_offered() {
        assert!(read_greeting(&mut &[5, 2, 2, 0][..]).await.is_ok());
        for greeting in [&[5, 1, 2][..], &[5, 0], &[4, 1, 0], &[5, 2, 2], &[]] {
            assert!(read_greeting(&mut &greeting[..]).await.is_err());
        }
        for command in [0, 2, 3] {
            let mut message = vec![VERSION, command, 0, NAME];
            message.extend(named(b"example.com"));
            message.extend([1, 187]);
            let error = read_request(&mut &message[..]).await.unwrap_err();
            assert_eq!(error.reply()[1], 7);
        }
    }
}
