//! Serves HTTP.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use hotcell_http::{Guard, Http, HttpLimits, HttpSettings, Identify, endpoints, serve_http};
use tokio_util::sync::CancellationToken;

use super::address::{self, ListenUrls};
use super::backend::Backend;
use super::identity::RecordEvents;
use super::stop::StopSignals;
use super::{audit, identity, state_directory, systemd};
use crate::cli::{AuthMode, ServeArgs};
use crate::config::Config;
use crate::state;

/// Serves until told to stop. It still answers while it drains, so that clients learn how their
/// execs end; new work is refused. Returns whether it drained completely.
pub(super) async fn serve(
    arguments: &ServeArgs,
    config: &Config,
    inherited: Option<TcpListener>,
    mut stops: StopSignals,
) -> Result<bool> {
    let listener = address::bind(arguments, inherited).await?;
    let bound = listener.local_addr().context("ask for our address")?;
    let urls = ListenUrls::of(bound);
    let directory = state::directory(arguments.state.state_dir.clone())?;
    let failed_attempts = Arc::new(RecordEvents::default());
    let events = Arc::clone(&failed_attempts);
    let identify = identity::of_http(arguments, &directory, urls.for_everybody(), events)?;
    let settings = settings(arguments, bound, identify)?;
    let store = state_directory::take(&directory)?;
    let url = urls.for_everybody().to_owned();
    let backend = Backend::start(arguments, config, &directory, store, Some(url), &stops).await?;
    failed_attempts.record_with(backend.service.clone());
    let stop = CancellationToken::new();
    let endpoints = endpoints::router(backend.service.clone(), &settings.limits);
    let http = Http::new(backend.server.clone(), endpoints, &settings, &stop);
    let limits = settings.limits.clone();
    let served = tokio::spawn(serve_http(listener, http.router, limits, stop.clone()));
    tell(arguments, &urls, &directory);
    let path = &arguments.server.path;
    systemd::tell_ready(&format!("serving at {}{path}", urls.here));
    systemd::keep_watchdog_fed(backend.service.clone());
    stops.next().await;
    let ledger = backend.ledger.clone();
    let is_drained = backend.stop(arguments, &mut stops).await;
    stop.cancel();
    if is_drained {
        served.await.context("serve HTTP")?;
    }
    // Dropping it reports failed logins that were only counted so far.
    drop(settings);
    audit::close(ledger).await;
    Ok(is_drained)
}

/// Logs the addresses that clients need.
fn tell(arguments: &ServeArgs, urls: &ListenUrls, state: &Path) {
    let path = &arguments.server.path;
    tracing::info!(state = %state.display(), "serving at {}{path}", urls.here);
    if let Some(there) = &urls.elsewhere {
        tracing::info!("clients on other machines reach it at {there}{path}");
        if arguments.server.allowed_hosts.is_empty() {
            tracing::info!("requests are accepted for any Host; --allowed-host restricts that");
        }
        match arguments.auth.mode() {
            Ok(AuthMode::None) if arguments.server.admin_over_http => {
                tracing::warn!(
                    "--admin-over-http: everyone who can reach this server is its operator"
                );
            }
            Ok(AuthMode::None) | Err(_) => {}
            Ok(AuthMode::Bearer | AuthMode::Oidc) => {
                tracing::info!("tokens are sent in the clear unless a reverse proxy adds TLS");
            }
        }
    }
}

fn settings(
    arguments: &ServeArgs,
    bound: SocketAddr,
    identify: Arc<dyn Identify>,
) -> Result<HttpSettings> {
    let mut names = arguments.server.allowed_hosts.clone();
    names.extend(arguments.server.public_url.as_deref().and_then(authority));
    if !address::is_unspecified(&arguments.server.host) {
        names.push(arguments.server.host.clone());
    }
    let guard = Guard::new(names)?;
    // We cannot know which names other machines use for this one.
    let is_for_any_host = !bound.ip().is_loopback() && arguments.server.allowed_hosts.is_empty();
    Ok(HttpSettings {
        path: arguments.server.path.clone(),
        guard: if is_for_any_host {
            guard.with_any_host()
        } else {
            guard
        },
        limits: HttpLimits::default(),
        identify,
    })
}

/// The name and port in a URL.
fn authority(url: &str) -> Option<String> {
    let rest = url.split_once("://")?.1;
    rest.split('/').next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_in_the_public_url_is_one_of_ours() {
        assert_eq!(
            authority("https://cells.example:8443/a/b").as_deref(),
            Some("cells.example:8443")
        );
    }
}
