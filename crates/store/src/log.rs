//! The output of execs, byte for byte, in append-only files.
//!
//! If there is more than `output_bytes_max`, the first half and at least the last half are kept;
//! what is dropped in between is counted exactly. The limit applies to bytes on disk, headers
//! included. A log can exceed it by a sixteenth (the newest segment) and by the part of the last
//! record of each file that did not fit.
//!
//! ```text
//! .head  [file header][record][record]…             full at half of output_bytes_max
//! .tailN [file header][record]…  …  [record]…       SEGMENTS full ones and the newest
//! ```
//!
//! A record is one piece that was appended, with a checksum. Readers ignore what a crash left after
//! the last whole record, and opening the log for writing cuts it off. Each record contains the
//! whole state of its writer, so the last one is enough to continue.
//!
//! The 0 to 3 bytes of an incomplete UTF-8 character at the end of a record are stored in it, and
//! delivered with the next record of the same stream, which repeats them. So any record can be
//! delivered without having seen another.

mod cursors;
mod file_writer;
mod health;
mod layout;
mod logs;
mod part;
mod reader;
mod record;
mod recover;
mod scan;
mod utf8;
mod writer;

use std::sync::Arc;

use bytes::Bytes;
use hotcell_domain::{ExecId, Stream};

#[cfg(test)]
pub(crate) use file_writer::FileWriter;
pub(crate) use health::LogHealth;
pub(crate) use logs::Logs;
pub(crate) use part::is_file_name;
#[cfg(test)]
pub(crate) use reader::read;
pub use writer::{LogPiece, LogWriter};

use crate::{Store, StoreError, blocking};

/// A page of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogPage {
    /// In the order in which they were written.
    pub messages: Vec<LogMessage>,
    /// The `after_seq` of the next page: the number of the last message here, or `after_seq`.
    pub next_seq: u64,
    /// Whether the log currently has more messages.
    pub has_more: bool,
    /// Bytes dropped from the middle of the whole log.
    pub truncated_bytes: u64,
}

/// A piece of output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogMessage {
    /// From 1.
    pub seq: u64,
    /// Stdout or stderr.
    pub stream: Stream,
    /// When the container wrote it.
    pub unix_ms: u64,
    /// Never ends in the middle of a UTF-8 character.
    pub data: Bytes,
}

impl LogPage {
    /// Of a log without messages.
    pub fn empty(after_seq: u64) -> Self {
        Self {
            messages: Vec::new(),
            next_seq: after_seq,
            has_more: false,
            truncated_bytes: 0,
        }
    }
}

impl Store {
    /// The writer of an exec's log. There is one per exec: a second one fails while the first has
    /// the file open.
    pub fn log_writer(&self, id: &ExecId, output_bytes_max: u64) -> LogWriter {
        LogWriter::new(Arc::clone(&self.logs), id, output_bytes_max)
    }

    /// The size of an exec's log on disk.
    pub async fn log_bytes(&self, id: &ExecId) -> u64 {
        let (logs, id) = (Arc::clone(&self.logs), id.clone());
        let asked = blocking("look at an output log", move || Ok(logs.bytes(&id)));
        asked.await.unwrap_or(0)
    }

    /// Reads the messages after `after_seq`: at least one if there is one, about `bytes_max` bytes
    /// at most. An exec without output has an empty log.
    ///
    /// The disk is read on the blocking pool, and not at all if an open log has nothing new.
    pub async fn read_log(
        &self,
        id: &ExecId,
        after_seq: u64,
        bytes_max: usize,
    ) -> Result<LogPage, StoreError> {
        if let Some(page) = reader::without_news(&self.logs, id, after_seq) {
            return Ok(page);
        }
        let (logs, id) = (Arc::clone(&self.logs), id.clone());
        blocking("read an output log", move || {
            reader::read(&logs, &id, after_seq, bytes_max)
        })
        .await
    }
}

#[cfg(test)]
mod tests;
