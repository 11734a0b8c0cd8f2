//! Where the server listens, and who can reach it there.

use std::net::SocketAddr;

use anyhow::{Context, Result, anyhow, bail};
use tokio::net::TcpListener;

use crate::cli::ServeArgs;

/// Takes the port. Nothing is accepted yet: clients that connect wait.
///
/// An address that others can reach is refused as long as nobody has to say who they are,
/// unless that is what was asked for.
pub(super) async fn bind(arguments: &ServeArgs) -> Result<TcpListener> {
    let addresses = resolve(arguments).await?;
    let reachable = addresses.iter().find(|address| !address.ip().is_loopback());
    if let Some(address) = reachable
        && !arguments.allow_anonymous
    {
        bail!(
            "{} can be reached by others, and without authentication all of them could use this server; \
             listen on 127.0.0.1, or say --allow-anonymous",
            address.ip()
        );
    }
    let bound = TcpListener::bind(addresses.as_slice()).await;
    bound.map_err(|error| refusal(error, arguments))
}

fn refusal(error: std::io::Error, arguments: &ServeArgs) -> anyhow::Error {
    let ServeArgs { host, port, .. } = arguments;
    if error.kind() == std::io::ErrorKind::AddrInUse {
        return anyhow!("port {port} of {host} is in use; choose another with --port");
    }
    anyhow::Error::new(error).context(format!("listen on {host}:{port}"))
}

async fn resolve(arguments: &ServeArgs) -> Result<Vec<SocketAddr>> {
    let host = arguments.host.trim_matches(['[', ']']);
    let found = tokio::net::lookup_host((host, arguments.port)).await;
    let found: Vec<_> = found
        .with_context(|| format!("there is no host {host}"))?
        .collect();
    if found.is_empty() {
        bail!("{host} has no address");
    }
    Ok(found)
}

/// Whether this means every address of the machine.
pub(super) fn is_unspecified(host: &str) -> bool {
    let host = host.trim_matches(['[', ']']);
    host.parse()
        .is_ok_and(|address: std::net::IpAddr| address.is_unspecified())
}
