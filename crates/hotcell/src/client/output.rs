//! What an exec wrote, to where it belongs.

use anyhow::{Context, Result};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;

use crate::terminal::Screen;

/// Output kept of each stream for `--json`.
const CAPTURED_BYTES_MAX: usize = 4 << 20;

/// Something an exec wrote, as `exec_poll` tells it.
#[derive(Debug, Deserialize)]
pub(super) struct Message {
    stream: String,
    data: String,
    encoding: Option<String>,
}

impl Message {
    pub(super) fn is_stderr(&self) -> bool {
        self.stream == "stderr"
    }

    /// The bytes that were written.
    pub(super) fn bytes(self) -> Result<Vec<u8>> {
        match self.encoding.as_deref() {
            Some("base64") => BASE64_STANDARD
                .decode(&self.data)
                .context("read base64 from the server"),
            _ => Ok(self.data.into_bytes()),
        }
    }
}

/// Where output goes.
pub(super) enum Sink {
    /// To our stdout and stderr.
    Ours(Screen),
    /// Kept for the end.
    Memory(Captured),
    /// Our reader went away.
    Nowhere,
}

/// Output that was not streamed.
#[derive(Default)]
pub(super) struct Captured {
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: Vec<u8>,
    pub(super) dropped: u64,
}

impl Sink {
    /// Passes a message on.
    pub(super) async fn take(&mut self, message: Message) -> Result<()> {
        let is_stderr = message.is_stderr();
        let data = message.bytes()?;
        let written = match self {
            Self::Nowhere => Ok(()),
            Self::Memory(captured) => {
                captured.take(is_stderr, &data);
                Ok(())
            }
            Self::Ours(screen) => screen.write(is_stderr, &data).await,
        };
        written.context("write the command's output")
    }

    /// Shows what was held back.
    pub(super) async fn finish(&mut self) -> Result<()> {
        match self {
            Self::Ours(screen) => screen.finish().await.context("write the command's output"),
            Self::Nowhere | Self::Memory(_) => Ok(()),
        }
    }
}

impl Captured {
    fn take(&mut self, is_stderr: bool, data: &[u8]) {
        let kept = if is_stderr {
            &mut self.stderr
        } else {
            &mut self.stdout
        };
        let room = CAPTURED_BYTES_MAX - kept.len();
        let (taken, dropped) = data.split_at(data.len().min(room));
        kept.extend_from_slice(taken);
        self.dropped += dropped.len() as u64;
    }
}

/// Whether an error means that nobody reads our output any more.
pub(super) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let io = error.downcast_ref::<std::io::Error>();
    io.is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

/// It is no failure of ours that nobody reads any more.
pub(super) fn ignore_broken_pipe(written: Result<()>) -> Result<()> {
    match written {
        Err(error) if is_broken_pipe(&error) => Ok(()),
        written => written,
    }
}
