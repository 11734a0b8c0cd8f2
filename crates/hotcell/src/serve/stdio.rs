//! Serves one client on standard input and output.
//!
//! Several desktop clients may each start a server on the same state directory: the first one owns
//! the directory, the others forward bytes between their client and the first. So the first one
//! stays as long as others use it, even after its own client is gone.

use anyhow::{Context, Result};
use hotcell_mcp::transport::serve_stdio;
use tokio_util::sync::CancellationToken;

use super::audit;
use super::backend::Backend;
use super::bridge::bridge;
use super::state_directory::{self, StateDirectory};
use super::stop::StopSignals;
use crate::cli::ServeArgs;
use crate::config::Config;
use crate::state;

/// Serves until the client is gone or we are told to stop. Returns whether it drained completely.
pub(super) async fn serve(
    arguments: &ServeArgs,
    config: &Config,
    mut stops: StopSignals,
) -> Result<bool> {
    let directory = state::directory(arguments.state.state_dir.clone())?;
    let store = match state_directory::take_or_join(&directory).await? {
        StateDirectory::Ours(store) => store,
        StateDirectory::Theirs(server) => {
            return tokio::select! {
                passed = bridge(server) => passed.map(|()| true),
                () = stops.next() => Ok(true),
            };
        }
    };
    let backend = Backend::start(arguments, config, &directory, store, None, &stops).await?;
    tracing::info!(state = %directory.display(), "serving on stdin and stdout");
    let (cut_off, ledger) = (CancellationToken::new(), backend.ledger.clone());
    let served = tokio::spawn(serve_stdio(backend.server.clone(), cut_off.clone()));
    let is_good = tokio::select! {
        served = served => {
            served.context("serve the client")?.context("serve the client")?;
            if stay_for_others(&backend, &mut stops).await {
                backend.stop_without_client(arguments, &mut stops).await
            } else {
                backend.stop(arguments, &mut stops).await
            }
        }
        () = stops.next() => backend.stop(arguments, &mut stops).await,
    };
    cut_off.cancel();
    audit::close(ledger).await;
    Ok(is_good)
}

/// Waits until other clients are gone; false if a signal comes first.
async fn stay_for_others(backend: &Backend, stops: &mut StopSignals) -> bool {
    tracing::info!("the client is gone");
    tokio::select! {
        () = backend.no_clients() => true,
        () = stops.next() => false,
    }
}
