//! The addresses at which the server listens and can be reached.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use anyhow::{Context, Result, anyhow, bail};
use tokio::net::TcpListener;

use crate::cli::{AuthMode, ServeArgs, ServerArgs};

/// Binds the port, or takes the socket that the service manager opened. Nothing is accepted yet:
/// clients that connect wait.
///
/// A non-loopback address without authentication is an error, unless the operator allows it.
pub(super) async fn bind(
    arguments: &ServeArgs,
    inherited: Option<std::net::TcpListener>,
) -> Result<TcpListener> {
    if let Some(listener) = inherited {
        let address = listener.local_addr().context("ask for our address")?;
        refuse_strangers(arguments, &[address])?;
        return TcpListener::from_std(listener).context("use the service manager's socket");
    }
    let addresses = resolve(arguments).await?;
    refuse_strangers(arguments, &addresses)?;
    let bound = TcpListener::bind(addresses.as_slice()).await;
    bound.map_err(|error| refusal(error, arguments))
}

fn refuse_strangers(arguments: &ServeArgs, addresses: &[SocketAddr]) -> Result<()> {
    let is_anonymous = arguments.auth.mode()? == AuthMode::None;
    let reachable = addresses.iter().find(|address| !address.ip().is_loopback());
    if let Some(address) = reachable
        && is_anonymous
        && !arguments.server.allow_anonymous
    {
        bail!(
            "{} can be reached by others, and without authentication all of them could use this server; \
             use --auth bearer (and `hotcell token add NAME`), listen on 127.0.0.1, or say --allow-anonymous",
            address.ip()
        );
    }
    Ok(())
}

fn refusal(error: std::io::Error, arguments: &ServeArgs) -> anyhow::Error {
    let ServerArgs { host, port, .. } = &arguments.server;
    if error.kind() == std::io::ErrorKind::AddrInUse {
        return anyhow!("port {port} of {host} is in use; choose another with --port");
    }
    anyhow::Error::new(error).context(format!("listen on {host}:{port}"))
}

async fn resolve(arguments: &ServeArgs) -> Result<Vec<SocketAddr>> {
    let host = arguments.server.host.trim_matches(['[', ']']);
    let found = tokio::net::lookup_host((host, arguments.server.port)).await;
    let found: Vec<_> = found
        .with_context(|| format!("there is no host {host}"))?
        .collect();
    if found.is_empty() {
        bail!("{host} has no address");
    }
    Ok(found)
}

/// Whether the host means every address of the machine.
pub(super) fn is_unspecified(host: &str) -> bool {
    let host = host.trim_matches(['[', ']']);
    host.parse()
        .is_ok_and(|address: IpAddr| address.is_unspecified())
}

/// The URLs of this server.
#[derive(Debug)]
pub(super) struct ListenUrls {
    /// For clients on this machine.
    pub(super) here: String,
    /// For clients on other machines, if the address is not a loopback one.
    pub(super) elsewhere: Option<String>,
}

impl ListenUrls {
    pub(super) fn of(bound: SocketAddr) -> Self {
        let (ip, port) = (bound.ip(), bound.port());
        if !ip.is_unspecified() {
            let url = format!("http://{bound}");
            return Self {
                elsewhere: (!ip.is_loopback()).then(|| url.clone()),
                here: url,
            };
        }
        let elsewhere = match outward_ip() {
            Some(ip) => format!("http://{}", SocketAddr::new(ip, port)),
            None => format!("http://{}:{port}", host_name()),
        };
        Self {
            here: format!("http://{}:{port}", Ipv4Addr::LOCALHOST),
            elsewhere: Some(elsewhere),
        }
    }

    /// The URL that clients on any machine can use.
    pub(super) fn for_everybody(&self) -> &str {
        self.elsewhere.as_deref().unwrap_or(&self.here)
    }
}

/// The address from which this machine reaches others. Connecting a UDP socket sends nothing: it
/// only asks the kernel for a route, here to reserved documentation addresses.
fn outward_ip() -> Option<IpAddr> {
    let nobody_v4 = IpAddr::from(Ipv4Addr::new(192, 0, 2, 1));
    let nobody_v6 = IpAddr::from(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1));
    let from = |any: IpAddr, nobody: IpAddr| {
        let socket = UdpSocket::bind((any, 0)).ok()?;
        socket.connect((nobody, 9)).ok()?;
        Some(socket.local_addr().ok()?.ip())
    };
    from(Ipv4Addr::UNSPECIFIED.into(), nobody_v4)
        .or_else(|| from(Ipv6Addr::UNSPECIFIED.into(), nobody_v6))
}

fn host_name() -> String {
    let name = rustix::system::uname();
    name.nodename().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reach(address: &str) -> ListenUrls {
        ListenUrls::of(address.parse().expect("an address"))
    }

    #[test]
    fn a_loopback_address_is_for_this_machine_alone() {
        for address in ["127.0.0.1:8000", "[::1]:8000"] {
            let reach = reach(address);
            assert_eq!(reach.here, format!("http://{address}"));
            assert_eq!(reach.elsewhere, None);
            assert_eq!(reach.for_everybody(), reach.here);
        }
    }

    #[test]
    fn an_address_of_this_machine_is_for_everybody() {
        let reach = reach("192.0.2.7:8000");
        assert_eq!(reach.here, "http://192.0.2.7:8000");
        assert_eq!(reach.for_everybody(), reach.here);
    }

    #[test]
    fn every_address_is_told_as_one_that_can_be_opened() {
        for address in ["0.0.0.0:8000", "[::]:8000"] {
            let reach = reach(address);
            assert_eq!(reach.here, "http://127.0.0.1:8000");
            let elsewhere = reach.elsewhere.expect("others reach it");
            assert!(elsewhere.ends_with(":8000"), "{elsewhere}");
            for useless in ["0.0.0.0", "[::]", "127.0.0.1"] {
                assert!(!elsewhere.contains(useless), "{elsewhere}");
            }
        }
    }
}
