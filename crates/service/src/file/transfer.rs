//! Bytes that go to a container or come from it.

use std::sync::Arc;

use bytes::Bytes;
use hotcell_agent_client::{AgentError, ByteReader, ByteWriter};

use super::error::{Effect, from_agent};
use crate::ServiceError;
use crate::connection::{Connected, Connection};
use crate::environment::Environment;

/// Bytes that come from a container.
pub struct FileReader {
    bytes: ByteReader,
    peer: Peer,
}

/// Bytes that go to a container. Dropping it before [`FileWriter::finish`] abandons the
/// transfer: a file stays as it was.
pub struct FileWriter<T> {
    bytes: ByteWriter<T>,
    peer: Peer,
    metered: Metered,
}

/// Counts a transfer when it has ended, also one that was abandoned.
pub(super) struct Metered {
    environment: Arc<Environment>,
    operation: &'static str,
    is_ok: bool,
}

/// With whom bytes are exchanged, and what about.
pub(super) struct Peer {
    pub(super) connection: Arc<Connection>,
    pub(super) connected: Connected,
    /// As the caller named it.
    pub(super) path: Vec<u8>,
}

impl Peer {
    fn error(&self, error: AgentError, effect: Effect) -> ServiceError {
        self.connection.report(&self.connected, &error);
        from_agent(error, &self.path, effect)
    }
}

impl FileReader {
    pub(super) fn new(bytes: ByteReader, peer: Peer) -> Self {
        Self { bytes, peer }
    }

    /// The next piece, `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ServiceError> {
        let next = self.bytes.next().await;
        next.map_err(|error| self.peer.error(error, Effect::None))
    }

    /// All of it, which must not be more than `bytes_max`.
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
    pub(super) fn new(bytes: ByteWriter<T>, peer: Peer, metered: Metered) -> Self {
        Self {
            bytes,
            peer,
            metered,
        }
    }

    /// Sends a piece of any size.
    pub async fn write(&mut self, data: Bytes) -> Result<(), ServiceError> {
        let sent = self.bytes.write(data).await;
        sent.map_err(|error| self.peer.error(error, Effect::Unknown))
    }

    /// Ends it: what was sent appears.
    pub async fn finish(self) -> Result<T, ServiceError> {
        let Self {
            bytes,
            peer,
            mut metered,
        } = self;
        let done = bytes.finish().await;
        metered.is_ok = done.is_ok();
        done.map_err(|error| peer.error(error, Effect::Unknown))
    }
}

impl Metered {
    pub(super) fn new(environment: &Arc<Environment>, operation: &'static str) -> Self {
        Self {
            environment: Arc::clone(environment),
            operation,
            is_ok: false,
        }
    }
}

impl Drop for Metered {
    fn drop(&mut self) {
        let metrics = &self.environment.metrics;
        metrics.file_operation(self.operation, self.is_ok);
    }
}
