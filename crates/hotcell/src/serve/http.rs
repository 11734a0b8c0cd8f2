//! Serving over HTTP.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::{Context, Result};
use hotcell_mcp::endpoints;
use hotcell_mcp::transport::{
    Anonymous, Guard, Http, HttpLimits, HttpSettings, MCP_PATH, serve_http,
};
use tokio_util::sync::CancellationToken;

use super::stop::Stops;
use super::whole::Whole;
use super::{address, own};
use crate::cli::ServeArgs;
use crate::state;

/// Serves until told to stop. While it drains it still answers, so that clients learn how
/// their execs end; new work is refused. Answers whether it came to a good end.
pub(super) async fn serve(arguments: &ServeArgs, mut stops: Stops) -> Result<bool> {
    let settings = settings(arguments)?;
    let listener = address::bind(arguments).await?;
    let url = url(listener.local_addr().context("ask for our address")?);
    let directory = state::directory(arguments.state.state_dir.clone())?;
    let store = own::take(&directory)?;
    let whole = Whole::start(arguments, &directory, store, Some(url.clone())).await?;
    let stop = CancellationToken::new();
    let endpoints = endpoints::router(whole.service.clone(), &settings.limits);
    let http = Http::new(whole.server.clone(), endpoints, &settings, &stop);
    let limits = settings.limits.clone();
    let served = tokio::spawn(serve_http(listener, http.router, limits, stop.clone()));
    tracing::info!(state = %directory.display(), "serving at {url}{MCP_PATH}");
    stops.next().await;
    let is_drained = whole.stop(arguments, &mut stops).await;
    stop.cancel();
    if is_drained {
        served.await.context("serve HTTP")?;
    }
    Ok(is_drained)
}

fn settings(arguments: &ServeArgs) -> Result<HttpSettings> {
    let mut names = arguments.allowed_hosts.clone();
    names.extend(arguments.public_url.as_deref().and_then(authority));
    if arguments.allow_anonymous && !address::is_unspecified(&arguments.host) {
        names.push(arguments.host.clone());
    }
    Ok(HttpSettings {
        path: MCP_PATH.to_owned(),
        guard: Guard::new(names)?,
        limits: HttpLimits::default(),
        identify: Arc::new(Anonymous),
    })
}

/// The name and port in a URL.
fn authority(url: &str) -> Option<String> {
    let rest = url.split_once("://")?.1;
    rest.split('/').next().map(str::to_owned)
}

/// Where a client on this machine reaches us.
fn url(address: SocketAddr) -> String {
    let ip = if address.ip().is_unspecified() {
        IpAddr::from(Ipv4Addr::LOCALHOST)
    } else {
        address.ip()
    };
    format!("http://{}", SocketAddr::new(ip, address.port()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_is_one_that_a_client_on_this_machine_can_open() {
        let of = |address: &str| url(address.parse().expect("an address"));
        assert_eq!(of("127.0.0.1:8000"), "http://127.0.0.1:8000");
        assert_eq!(of("0.0.0.0:8000"), "http://127.0.0.1:8000");
        assert_eq!(of("[::1]:8000"), "http://[::1]:8000");
    }

    #[test]
    fn the_name_in_the_public_url_is_one_of_ours() {
        assert_eq!(
            authority("https://cells.example:8443/a/b").as_deref(),
            Some("cells.example:8443")
        );
    }
}
