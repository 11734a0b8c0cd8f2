//! Serving one client on our standard input and output.
//!
//! Several desktop clients may each start such a server on the same state directory: the first
//! has the directory, the others pass bytes between their client and the first. So the first
//! stays, when its own client is gone, for as long as others use it.

use anyhow::{Context, Result};
use hotcell_mcp::transport::serve_stdio;
use tokio_util::sync::CancellationToken;

use super::bridge::bridge;
use super::own::{self, Owned};
use super::stop::Stops;
use super::whole::Whole;
use crate::cli::ServeArgs;
use crate::state;

/// Serves until the client is gone or we are told to stop. Answers whether it came to a good
/// end.
pub(super) async fn serve(arguments: &ServeArgs, mut stops: Stops) -> Result<bool> {
    let directory = state::directory(arguments.state.state_dir.clone())?;
    let store = match own::take_or_join(&directory).await? {
        Owned::Ours(store) => store,
        Owned::Theirs(server) => {
            return tokio::select! {
                passed = bridge(server) => passed.map(|()| true),
                () = stops.next() => Ok(true),
            };
        }
    };
    let whole = Whole::start(arguments, &directory, store, None).await?;
    tracing::info!(state = %directory.display(), "serving on stdin and stdout");
    let cut_off = CancellationToken::new();
    let served = tokio::spawn(serve_stdio(whole.server.clone(), cut_off.clone()));
    let is_good = tokio::select! {
        served = served => {
            served.context("serve the client")?.context("serve the client")?;
            if stay_for_others(&whole, &mut stops).await {
                whole.stop_without_client(arguments, &mut stops).await
            } else {
                whole.stop(arguments, &mut stops).await
            }
        }
        () = stops.next() => whole.stop(arguments, &mut stops).await,
    };
    cut_off.cancel();
    Ok(is_good)
}

/// Answers whether they are gone, and no signal came before.
async fn stay_for_others(whole: &Whole, stops: &mut Stops) -> bool {
    tracing::info!("the client is gone");
    tokio::select! {
        () = whole.no_clients() => true,
        () = stops.next() => false,
    }
}
