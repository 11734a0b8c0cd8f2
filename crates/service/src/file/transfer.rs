//! Streams to and from a container.

use std::sync::Arc;

use bytes::Bytes;
use hotcell_agent_client::{AgentError, ByteReader, ByteWriter};

use super::error::{Effect, from_agent};
use crate::ServiceError;
use crate::connection::{Connected, Connection};
use crate::disk::Writing;
use crate::operation::{Operation, Recording};

/// A stream of bytes from a container. Dropping it before its end abandons the operation, unless
/// [`FileReader::close`] was called.
pub struct FileReader {
    bytes: ByteReader,
    peer: Peer,
    /// `None` once the operation has ended.
    operation: Option<Operation>,
    /// The pending audit event, which the last chunk waits for.
    recording: Recording,
    /// The number of bytes to come, if known.
    left: Option<u64>,
}

/// A stream of bytes to a container. Dropping it before [`FileWriter::finish`] abandons the
/// transfer: an existing file is unchanged.
pub struct FileWriter<T> {
    bytes: ByteWriter<T>,
    peer: Peer,
    writing: Writing,
    operation: Operation,
}

/// The container of a transfer, and its path.
pub(super) struct Peer {
    pub(super) connection: Arc<Connection>,
    pub(super) connected: Connected,
    /// The path that the caller used.
    pub(super) path: Vec<u8>,
}

impl Peer {
    fn error(&self, error: AgentError, effect: Effect) -> ServiceError {
        self.connection.report(&self.connected, &error);
        from_agent(error, &self.path, effect)
    }
}

impl FileReader {
    pub(super) fn new(
        bytes: ByteReader,
        peer: Peer,
        operation: Operation,
        expected: Option<u64>,
    ) -> Self {
        let mut this = Self {
            bytes,
            peer,
            operation: Some(operation),
            recording: Recording::default(),
            left: expected,
        };
        this.end_if_complete();
        this
    }

    /// The next chunk; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ServiceError> {
        match self.bytes.next().await {
            Ok(Some(piece)) => {
                self.count(piece.len());
                std::mem::take(&mut self.recording).written().await?;
                Ok(Some(piece))
            }
            Ok(None) => {
                self.end();
                std::mem::take(&mut self.recording).written().await?;
                Ok(None)
            }
            Err(error) => {
                let error = self.peer.error(error, Effect::None);
                if let Some(operation) = &mut self.operation {
                    operation.fail(&error);
                    operation.recorded().await;
                }
                Err(error)
            }
        }
    }

    /// Ends the reading early without an error: the caller needs no more.
    pub fn close(mut self) {
        self.end();
    }

    /// The last expected byte ends the operation: a receiver that knows the length does not read
    /// on.
    fn count(&mut self, bytes: usize) {
        if let Some(operation) = &mut self.operation {
            operation.count_bytes(bytes);
        }
        self.left = self.left.map(|left| left.saturating_sub(bytes as u64));
        self.end_if_complete();
    }

    fn end_if_complete(&mut self) {
        if self.left == Some(0) {
            self.end();
        }
    }

    fn end(&mut self) {
        if let Some(operation) = self.operation.take() {
            self.recording = operation.end();
        }
    }

    /// Reads everything, which must not be more than `bytes_max`.
    pub async fn collect(mut self, bytes_max: usize) -> Result<Vec<u8>, ServiceError> {
        let mut all = Vec::new();
        while let Some(piece) = self.next().await? {
            if all.len() + piece.len() > bytes_max {
                return Err(ServiceError::Exhausted {
                    reason: format!("it has more than {bytes_max} bytes"),
                });
            }
            all.extend_from_slice(&piece);
        }
        Ok(all)
    }
}

impl<T: Send + 'static> FileWriter<T> {
    pub(super) fn new(
        bytes: ByteWriter<T>,
        peer: Peer,
        writing: Writing,
        operation: Operation,
    ) -> Self {
        Self {
            bytes,
            peer,
            writing,
            operation,
        }
    }

    /// Sends a chunk of any size.
    pub async fn write(&mut self, data: Bytes) -> Result<(), ServiceError> {
        self.operation.count_bytes(data.len());
        let error = match self.writing.go_on() {
            Err(error) => error,
            Ok(()) => match self.bytes.write(data).await {
                Ok(()) => return Ok(()),
                Err(error) => self.error(error),
            },
        };
        self.operation.fail(&error);
        self.operation.recorded().await;
        Err(error)
    }

    fn error(&self, error: AgentError) -> ServiceError {
        let error = self.peer.error(error, Effect::Unknown);
        self.writing.explain(error)
    }

    /// Completes the transfer: the file becomes visible.
    pub async fn finish(self) -> Result<T, ServiceError> {
        let Self {
            bytes,
            peer,
            writing,
            operation,
        } = self;
        let finish = async {
            let done = bytes.finish().await;
            done.map_err(|error| writing.explain(peer.error(error, Effect::Unknown)))
        };
        operation.run(finish).await
    }
}
