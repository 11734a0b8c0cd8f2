//! The two ends of an export: reading a file, and sending chunks.

use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;

use bytes::Bytes;
use hotcell_agent_api::bounds::CHUNK_BYTES_MAX;
use hotcell_agent_api::v1::ExportReply;
use tokio::sync::mpsc;
use tonic::Status;

use super::error::Error;

/// Receives the chunks of the archive, or the error that ended it.
pub(super) type Chunks = mpsc::Sender<Result<ExportReply, Status>>;

/// A reader of exactly as many bytes as the tar header says.
#[derive(Debug)]
pub(super) struct Exact {
    fd: OwnedFd,
    left: u64,
}

impl Exact {
    /// Reads `bytes` bytes of a file: truncated if it has more, zero-filled if fewer.
    pub(super) fn new(fd: OwnedFd, bytes: u64) -> Self {
        Self { fd, left: bytes }
    }
}

impl Read for Exact {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let want = usize::try_from(self.left).map_or(buffer.len(), |left| left.min(buffer.len()));
        let buffer = &mut buffer[..want];
        let count = match rustix::io::read(&self.fd, &mut *buffer) {
            Ok(count) if count > 0 => count,
            Ok(_) | Err(_) => {
                buffer.fill(0);
                want
            }
        };
        self.left -= count as u64;
        Ok(count)
    }
}

/// A writer that sends chunks, and blocks while the receiver is slow.
#[derive(Debug)]
pub(super) struct ChunkWriter {
    chunks: Chunks,
    held: Vec<u8>,
}

impl ChunkWriter {
    pub(super) fn new(chunks: Chunks) -> Self {
        let held = Vec::with_capacity(CHUNK_BYTES_MAX);
        Self { chunks, held }
    }

    /// Whether the receiver has gone away.
    pub(super) fn is_closed(&self) -> bool {
        self.chunks.is_closed()
    }

    /// Ends the stream with an error.
    pub(super) fn fail(self, error: Error) {
        // Fails if the receiver has gone away, which is fine.
        let _ = self.chunks.blocking_send(Err(error.into()));
    }
}

impl Write for ChunkWriter {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let count = data.len().min(CHUNK_BYTES_MAX - self.held.len());
        self.held.extend_from_slice(&data[..count]);
        if self.held.len() == CHUNK_BYTES_MAX {
            self.flush()?;
        }
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.held.is_empty() {
            return Ok(());
        }
        let next = Vec::with_capacity(CHUNK_BYTES_MAX);
        let data = Bytes::from(std::mem::replace(&mut self.held, next));
        let sent = self.chunks.blocking_send(Ok(ExportReply { data }));
        sent.map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}
