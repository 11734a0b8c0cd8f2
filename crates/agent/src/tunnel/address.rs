//! The address of a tunnel inside the container, validated.

use std::ffi::OsStr;
use std::net::{IpAddr, SocketAddr, SocketAddrV4};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use hotcell_agent_api::bounds::{TUNNEL_UNIX_PATH_BYTES_MAX, is_tunnel_purpose};
use hotcell_agent_api::v1::tunnel_address::Address;
use hotcell_agent_api::v1::{TcpAddress, TunnelAddress};

use super::TunnelError;

/// An address that is reachable only inside the container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LocalAddress {
    /// On a loopback interface.
    Tcp(SocketAddr),
    /// An absolute path.
    Unix(PathBuf),
    /// For datagrams, on a loopback interface.
    Udp(SocketAddrV4),
}

impl LocalAddress {
    pub(crate) fn parse(address: Option<TunnelAddress>) -> Result<Self, TunnelError> {
        match address.and_then(|address| address.address) {
            Some(Address::Tcp(tcp)) => parse_tcp(&tcp),
            Some(Address::UnixPath(path)) => parse_unix(&path),
            Some(Address::Udp(udp)) => parse_udp(&udp),
            None => Err(TunnelError::Request("the address is missing")),
        }
    }

    /// Whether a listener bound to `bound` satisfies a request for `self`.
    pub(super) fn is_served_by(&self, bound: &Self) -> bool {
        match (self, bound) {
            (Self::Tcp(asked), Self::Tcp(bound)) if asked.port() == 0 => asked.ip() == bound.ip(),
            (Self::Udp(asked), Self::Udp(bound)) if asked.port() == 0 => asked.ip() == bound.ip(),
            (asked, bound) => asked == bound,
        }
    }
}

impl From<&LocalAddress> for TunnelAddress {
    fn from(address: &LocalAddress) -> Self {
        let address = match address {
            LocalAddress::Tcp(tcp) => Address::Tcp(TcpAddress {
                ip: match tcp.ip() {
                    IpAddr::V4(ip) => ip.octets().to_vec().into(),
                    IpAddr::V6(ip) => ip.octets().to_vec().into(),
                },
                port: tcp.port().into(),
            }),
            LocalAddress::Unix(path) => {
                Address::UnixPath(path.as_os_str().as_bytes().to_vec().into())
            }
            LocalAddress::Udp(udp) => Address::Udp(TcpAddress {
                ip: udp.ip().octets().to_vec().into(),
                port: udp.port().into(),
            }),
        };
        Self {
            address: Some(address),
        }
    }
}

fn parse_tcp(tcp: &TcpAddress) -> Result<LocalAddress, TunnelError> {
    let ip = <[u8; 4]>::try_from(&tcp.ip[..])
        .map(IpAddr::from)
        .or_else(|_| <[u8; 16]>::try_from(&tcp.ip[..]).map(IpAddr::from))
        .ok()
        .filter(IpAddr::is_loopback)
        .ok_or(TunnelError::Request("ip is not a loopback address"))?;
    let port = u16::try_from(tcp.port).map_err(|_| TunnelError::Request("port is too large"))?;
    Ok(LocalAddress::Tcp(SocketAddr::new(ip, port)))
}

fn parse_udp(udp: &TcpAddress) -> Result<LocalAddress, TunnelError> {
    match parse_tcp(udp)? {
        LocalAddress::Tcp(SocketAddr::V4(address)) => Ok(LocalAddress::Udp(address)),
        LocalAddress::Tcp(SocketAddr::V6(_)) | LocalAddress::Udp(_) | LocalAddress::Unix(_) => Err(
            TunnelError::Request("datagrams need an IPv4 loopback address"),
        ),
    }
}

fn parse_unix(path: &[u8]) -> Result<LocalAddress, TunnelError> {
    let is_legal =
        path.starts_with(b"/") && path.len() <= TUNNEL_UNIX_PATH_BYTES_MAX && !path.contains(&0);
    if !is_legal {
        return Err(TunnelError::Request(
            "unix_path is not an absolute path that a socket can have",
        ));
    }
    Ok(LocalAddress::Unix(OsStr::from_bytes(path).into()))
}

/// Checks the name of a purpose.
pub(super) fn parse_purpose(purpose: String) -> Result<String, TunnelError> {
    is_tunnel_purpose(&purpose)
        .then_some(purpose)
        .ok_or(TunnelError::Request(
            "purpose must be 1 to 288 characters of a-z, 0-9, '.', '-' and '_', the first a letter or a digit",
        ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(ip: &[u8], port: u32) -> Result<LocalAddress, TunnelError> {
        LocalAddress::parse(Some(TunnelAddress {
            address: Some(Address::Tcp(TcpAddress {
                ip: ip.to_vec().into(),
                port,
            })),
        }))
    }

    #[test]
    fn only_loopback_addresses_are_inside() {
        let mut six = [0; 16];
        six[15] = 1;
        for ip in [&[127, 0, 0, 1][..], &[127, 77, 3, 9], &six] {
            let parsed = tcp(ip, 80).unwrap();
            assert_eq!(
                LocalAddress::parse(Some(TunnelAddress::from(&parsed))).unwrap(),
                parsed
            );
        }
        let mut mapped = [0; 16];
        mapped[10..].copy_from_slice(&[0xff, 0xff, 127, 0, 0, 1]);
        for ip in [
            &[][..],
            &[127, 0, 0],
            &[128, 0, 0, 1],
            &[0; 4],
            &[169, 254, 169, 254],
            &[0; 16],
            &mapped,
        ] {
            assert!(tcp(ip, 80).is_err(), "{ip:?}");
        }
        assert!(tcp(&[127, 0, 0, 1], 1 << 16).is_err());
    }

    #[test]
    fn a_socket_s_path_is_absolute_and_fits() {
        assert!(parse_unix(b"/tmp/socket").is_ok());
        for path in [&b""[..], b"tmp/socket", b"/a\0b", &[b'/'; 108]] {
            assert!(parse_unix(path).is_err(), "{path:?}");
        }
        assert!(parse_unix(&[b'/'; TUNNEL_UNIX_PATH_BYTES_MAX]).is_ok());
    }
}
