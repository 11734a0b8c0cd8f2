//! Output of an exec as the server sends it.

use anyhow::{Context, Result};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hotcell_domain::Stream;
use serde::Deserialize;

use crate::terminal::OutputSink;

/// What fails when our stdout or stderr cannot be written to.
const WRITE: &str = "write the command's output";

/// A piece of output, as `exec_poll` returns it.
#[derive(Debug, Deserialize)]
pub(super) struct Message {
    stream: String,
    data: String,
    encoding: Option<String>,
}

impl Message {
    fn stream(&self) -> Stream {
        match self.stream.as_str() {
            "stderr" => Stream::Stderr,
            _ => Stream::Stdout,
        }
    }

    /// Writes the output to `sink`.
    pub(super) async fn write_to(self, sink: &mut OutputSink) -> Result<()> {
        let stream = self.stream();
        let written = sink.take(stream, &self.bytes()?).await;
        written.context(WRITE)
    }

    fn bytes(self) -> Result<Vec<u8>> {
        match self.encoding.as_deref() {
            Some("base64") => BASE64_STANDARD
                .decode(&self.data)
                .context("read base64 from the server"),
            _ => Ok(self.data.into_bytes()),
        }
    }
}

/// Whether an error means that nobody reads our output any more.
pub(super) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let io = error.downcast_ref::<std::io::Error>();
    io.is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

/// Shows what the sink held back. A reader that has gone away is not an error.
pub(super) async fn finish(sink: &mut OutputSink) -> Result<()> {
    match sink.finish().await {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => written.context(WRITE),
    }
}
