//! The channel to a notebook: an interpreter in the container that keeps its state between cells.
//!
//! The interpreter runs its owner's code, which can write to the channel, forge, flood or close it.
//! So nothing that arrives here is blamed on the agent, and nothing is trusted beyond the
//! notebook's own session: bytes become bounded types or a [`NotebookError`].

mod event;
mod frame;

use std::io;

use bytes::BytesMut;
use serde::Serialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

pub use self::event::{CellEnd, CellForm, CellValue, NotebookDeath, NotebookEvent, NotebookHello};
pub use self::frame::NotebookFrame;
use crate::{Agent, AgentError, TunnelAddress, TunnelStream};

/// How much is read at once.
const READ_BYTES: usize = 64 << 10;

/// Why a channel can no longer be used.
#[derive(Debug, thiserror::Error)]
pub enum NotebookError {
    /// It was closed in the container, or the connection to the agent was lost.
    #[error("the channel to the notebook is closed")]
    Closed(#[source] Option<io::Error>),
    /// An intact kernel cannot have sent this.
    #[error("the notebook broke its protocol: {0}")]
    Protocol(&'static str),
}

/// A request to a kernel. The numbers of cells increase.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub enum NotebookRequest<'a> {
    /// Runs a cell.
    Run {
        /// The number of the request.
        id: u64,
        /// The number in tracebacks.
        cell: u64,
        /// The source code.
        code: &'a str,
        /// Text for standard input; `None` means empty.
        stdin: Option<&'a str>,
        /// The arguments of the cell.
        args: &'a [String],
        /// The prefix of the names of its pictures.
        figures: &'a str,
    },
    /// Interrupts the request with this number, if it still runs.
    Interrupt {
        /// The number of the request.
        id: u64,
    },
}

/// An open channel. There is only one at a time. When it is closed, the kernel keeps its state and
/// interrupts the running cell.
#[derive(Debug)]
pub struct NotebookChannel {
    stream: TunnelStream,
    received: BytesMut,
}

impl Agent {
    /// Connects to the kernel that listens at a path in the container;
    /// [`crate::AgentRefusal::NotFound`] if there is none.
    pub async fn open_notebook(&self, path: &str) -> Result<NotebookChannel, AgentError> {
        let address = TunnelAddress::Unix(path.as_bytes().to_vec());
        Ok(NotebookChannel {
            stream: self.open_tunnel(&address).await?,
            received: BytesMut::new(),
        })
    }
}

impl NotebookChannel {
    /// Waits for the first event of the kernel.
    pub async fn hello(&mut self) -> Result<NotebookHello, NotebookError> {
        match self.next().await? {
            NotebookFrame::Event(NotebookEvent::Hello(hello)) => Ok(hello),
            NotebookFrame::Stdout(_) | NotebookFrame::Stderr(_) | NotebookFrame::Event(_) => {
                Err(NotebookError::Protocol("it does not say hello"))
            }
        }
    }

    /// Sends a request.
    pub async fn send(&mut self, request: &NotebookRequest<'_>) -> Result<(), NotebookError> {
        let frame = frame::pack(request)?;
        let sent = self.stream.write_all(&frame).await;
        sent.map_err(|error| NotebookError::Closed(Some(error)))
    }

    /// The next frame. Cancel-safe.
    pub async fn next(&mut self) -> Result<NotebookFrame, NotebookError> {
        loop {
            if let Some(frame) = frame::take(&mut self.received)? {
                return NotebookFrame::parse(frame);
            }
            self.received.reserve(READ_BYTES);
            let read = self.stream.read_buf(&mut self.received).await;
            let read = read.map_err(|error| NotebookError::Closed(Some(error)))?;
            if read == 0 {
                return Err(NotebookError::Closed(None));
            }
        }
    }
}

/// Parses bytes as a channel does, for fuzz targets and tests.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn parse_all(bytes: &[u8]) -> Result<Vec<NotebookFrame>, NotebookError> {
    let (mut received, mut frames) = (BytesMut::from(bytes), Vec::new());
    while let Some(frame) = frame::take(&mut received)? {
        frames.push(NotebookFrame::parse(frame)?);
    }
    Ok(frames)
}
