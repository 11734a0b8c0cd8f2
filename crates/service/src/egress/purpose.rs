//! The purposes of an agent's listeners. They contain the name that an address stands for, so that
//! the next server learns it from the agent.

use std::net::{Ipv4Addr, SocketAddrV4};

use hotcell_agent_client::TunnelAddress;
use hotcell_egress::{HostName, PROXY, REFUSAL, Target};

/// What every purpose of egress begins with.
pub(super) const PREFIX: &str = "egress-";

/// Datagrams of the name server.
pub(super) const DNS: &str = "egress-dns";

/// Connections to the name server.
pub(super) const DNS_TCP: &str = "egress-dns-tcp";

/// Connections to the proxy.
const PROXY_PURPOSE: &str = "egress-proxy";

const NAME: &str = "egress-name-";
const REFUSED: &str = "egress-refused-";

/// Where the name server listens.
pub(super) const DNS_ADDRESS: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 53);

/// What a connection of a listener is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// To the name server.
    Dns,
    /// To the proxy.
    Proxy,
    /// To a name, or to the address of refused names.
    Target(Target),
}

impl Purpose {
    /// Parses what an agent reports; `None` if it is none of ours.
    pub(super) fn parse(text: &str) -> Option<Self> {
        if text == DNS_TCP {
            return Some(Self::Dns);
        }
        if text == PROXY_PURPOSE {
            return Some(Self::Proxy);
        }
        if let Some(port) = text.strip_prefix(REFUSED) {
            return Some(Self::Target(Target::Refused(port.parse().ok()?)));
        }
        let (port, name) = text.strip_prefix(NAME)?.split_once('-')?;
        let (port, name) = (port.parse().ok()?, HostName::parse(name).ok()?);
        Some(Self::Target(Target::Name(name, port)))
    }
}

pub(super) fn of_name(name: &HostName, port: u16) -> String {
    format!("{NAME}{port}-{name}")
}

/// The listener of the proxy.
pub(super) fn of_proxy() -> (String, TunnelAddress) {
    (PROXY_PURPOSE.to_owned(), TunnelAddress::Tcp(PROXY.into()))
}

/// The listener that answers for refused names.
pub(super) fn of_refusal(port: u16) -> (String, TunnelAddress) {
    let address = SocketAddrV4::new(REFUSAL, port);
    (
        format!("{REFUSED}{port}"),
        TunnelAddress::Tcp(address.into()),
    )
}

/// The name of a listener that an earlier server made, with its address.
pub(super) fn restored(purpose: &str, address: &TunnelAddress) -> Option<(HostName, SocketAddrV4)> {
    let TunnelAddress::Tcp(std::net::SocketAddr::V4(address)) = address else {
        return None;
    };
    match Purpose::parse(purpose)? {
        Purpose::Target(Target::Name(name, port)) if port == address.port() => {
            Some((name, *address))
        }
        Purpose::Target(_) | Purpose::Dns | Purpose::Proxy => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_purpose_contains_the_name_that_it_is_for() {
        let name = HostName::parse("a-b.example.com").unwrap();
        let purpose = of_name(&name, 443);
        assert_eq!(purpose, "egress-name-443-a-b.example.com");
        let target = Purpose::Target(Target::Name(name.clone(), 443));
        assert_eq!(Purpose::parse(&purpose), Some(target));
        let address = SocketAddrV4::new(Ipv4Addr::new(127, 77, 0, 1), 443);
        let found = restored(&purpose, &TunnelAddress::Tcp(address.into()));
        assert_eq!(found, Some((name, address)));
        let (refusal, _) = of_refusal(80);
        let refused = Purpose::Target(Target::Refused(80));
        assert_eq!(Purpose::parse(&refusal), Some(refused));
        let (proxy, at) = of_proxy();
        assert_eq!(Purpose::parse(&proxy), Some(Purpose::Proxy));
        assert_eq!(restored(&proxy, &at), None);
    }

    #[test]
    fn what_an_agent_invents_is_no_purpose() {
        for text in [
            "egress-name-443-",
            "egress-name-443-127.0.0.1",
            "egress-name-70000-a.example.com",
            "egress-name-a.example.com",
            "egress-refused-x",
            "egress-proxy-1",
            "run-1",
        ] {
            assert_eq!(Purpose::parse(text), None, "{text}");
        }
        let other = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 80).into();
        let purpose = "egress-name-443-a.example.com";
        assert_eq!(restored(purpose, &TunnelAddress::Tcp(other)), None);
    }
}
