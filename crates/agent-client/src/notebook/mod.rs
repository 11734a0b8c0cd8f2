//! The channel to a notebook: an interpreter in the container that keeps its state between cells.
//!
//! The interpreter runs the code of its owner, which can write to the channel, forge, flood or
//! close it. So nothing that arrives here is blamed on the agent, and nothing counts beyond the
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

/// Why a channel cannot be used any longer.
#[derive(Debug, thiserror::Error)]
pub enum NotebookError {
    /// It was closed, inside or with the connection to the agent.
    #[error("the channel to the notebook is closed")]
    Closed(#[source] Option<io::Error>),
    /// What arrived cannot be from a kernel that is intact.
    #[error("the notebook broke its protocol: {0}")]
    Protocol(&'static str),
}

/// What a kernel is asked. Cells are numbered, each higher than the one before.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub enum NotebookRequest<'a> {
    /// Runs a cell.
    Run {
        /// Its number.
        id: u64,
        /// The number in tracebacks.
        cell: u64,
        /// What it says.
        code: &'a str,
        /// What it reads; nothing if there is none.
        stdin: Option<&'a str>,
        /// Its arguments.
        args: &'a [String],
        /// How the names of its pictures begin.
        figures: &'a str,
    },
    /// Interrupts the request of this number, if it still runs.
    Interrupt {
        /// Its number.
        id: u64,
    },
}

/// An open channel. There is one at a time; the kernel keeps its state when it is closed, and
/// interrupts the cell that runs.
#[derive(Debug)]
pub struct NotebookChannel {
    stream: TunnelStream,
    received: BytesMut,
}

impl Agent {
    /// Connects to the kernel that listens at a path inside; [`crate::AgentRefusal::NotFound`] if
    /// none does.
    pub async fn open_notebook(&self, path: &str) -> Result<NotebookChannel, AgentError> {
        let address = TunnelAddress::Unix(path.as_bytes().to_vec());
        Ok(NotebookChannel {
            stream: self.open_tunnel(&address).await?,
            received: BytesMut::new(),
        })
    }
}

impl NotebookChannel {
    /// What the kernel says first.
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
