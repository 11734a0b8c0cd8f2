//! Who has the state directory: we, or a server that runs already.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use hotcell_mcp::transport::Socket;
use hotcell_store::{OpenError, Store};
use tokio::net::UnixStream;
use tokio::time::Instant;

use crate::state;

/// How long a server that has the directory may take until it answers, or is gone.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// How often we look.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Who has the state directory.
pub(super) enum StateDirectory {
    /// We, and this is what is in it.
    Ours(Store),
    /// Another server, and this is a connection to it.
    Theirs(UnixStream),
}

/// Takes the state directory for this server alone.
pub(super) fn take(directory: &Path) -> Result<Store> {
    state::prepare(directory)?;
    Ok(Store::open(directory)?)
}

/// Takes the state directory, or connects to the server that has it. One that is just
/// starting or just ending is waited for.
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
