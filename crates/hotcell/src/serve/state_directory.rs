//! Takes ownership of the state directory, or finds the server that has it.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use hotcell_mcp::transport::Socket;
use hotcell_store::{OpenError, Store};
use tokio::net::UnixStream;
use tokio::time::Instant;

use crate::state;

/// How long the owner of the directory may take until it answers or is gone.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Poll interval.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// The owner of the state directory.
pub(super) enum StateDirectory {
    /// This server, with the opened store.
    Ours(Store),
    /// Another server, with a connection to it.
    Theirs(UnixStream),
}

/// Takes the state directory exclusively.
pub(super) fn take(directory: &Path) -> Result<Store> {
    state::prepare(directory)?;
    Ok(Store::open(directory)?)
}

/// Takes the state directory, or connects to the server that owns it. Waits for a server that is
/// just starting or stopping.
pub(super) async fn take_or_join(directory: &Path) -> Result<StateDirectory> {
    let deadline = Instant::now() + ANSWER_TIMEOUT;
    loop {
        let locked = match take(directory) {
            Ok(store) => return Ok(StateDirectory::Ours(store)),
            Err(error) => match error.downcast_ref() {
                Some(OpenError::Locked { .. }) => error,
                _ => return Err(error),
            },
        };
        match Socket::connect(&state::socket(directory)).await {
            Ok(stream) => return Ok(StateDirectory::Theirs(stream)),
            Err(_) if Instant::now() < deadline => tokio::time::sleep(LOOK_INTERVAL).await,
            Err(error) => {
                return Err(locked.context(format!("it does not answer: {error}")));
            }
        }
    }
}
