//! The log of a live exec, opened when there is something to write.

use hotcell_domain::{ExecId, Stream};
use hotcell_store::{LogWriter, Store, StoreError};

/// Where a live exec's output goes. A command that writes nothing costs no file.
#[derive(Debug)]
pub(super) struct Log {
    store: Store,
    id: ExecId,
    output_bytes_max: u64,
    writer: Option<LogWriter>,
}

impl Log {
    /// The log of an exec that wrote nothing yet.
    pub(super) fn new(store: Store, id: ExecId, output_bytes_max: u64) -> Self {
        Self {
            store,
            id,
            output_bytes_max,
            writer: None,
        }
    }

    /// Finds what another server wrote.
    pub(super) fn open(&mut self) -> Result<&mut LogWriter, StoreError> {
        let opened = match self.writer.take() {
            Some(writer) => writer,
            None => self.store.log_writer(&self.id, self.output_bytes_max)?,
        };
        Ok(self.writer.insert(opened))
    }

    /// Adds what the agent sent, and answers the number of the newest message. It can be
    /// repeated after an `Err`.
    pub(super) fn append(
        &mut self,
        agent_seq: u64,
        stream: Stream,
        unix_ms: u64,
        data: &[u8],
    ) -> Result<u64, StoreError> {
        self.open()?.append(agent_seq, stream, unix_ms, data)
    }

    /// Adds half characters that were held back. The agent's number stays: should we die
    /// before the end is stored, the agent tells the exit again.
    pub(super) fn finish(&mut self, unix_ms: u64) -> Result<u64, StoreError> {
        match &mut self.writer {
            Some(writer) => writer.finish(writer.agent_seq(), unix_ms),
            None => Ok(0),
        }
    }

    /// The agent's number up to which everything is here.
    pub(super) fn agent_seq(&self) -> u64 {
        self.writer.as_ref().map_or(0, LogWriter::agent_seq)
    }

    /// The number of the newest message.
    pub(super) fn last_seq(&self) -> u64 {
        self.writer.as_ref().map_or(0, LogWriter::last_seq)
    }
}
