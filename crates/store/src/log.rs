//! What execs wrote, byte for byte, in files that only grow.
//!
//! Of more than `output_bytes_max` the first half stays and, at the end, at least the last
//! half; what fell out between is counted exactly. These are bytes on the disk, headers
//! included: a log has `output_bytes_max`, a sixteenth of it (the newest segment), and what
//! the last record of each file is longer than the room that was left.
//!
//! ```text
//! .head  [file header][record][record]…             full at half of output_bytes_max
//! .tailN [file header][record]…  …  [record]…       SEGMENTS full ones and the newest
//! ```
//!
//! A record is what one `append` added, with a checksum over all of it: whatever a crash
//! left behind the last whole record is cut off when the log is opened for writing, and not
//! seen by readers. Each record also carries all that its writer had to remember, so the last
//! one alone says where to go on.
//!
//! The 0 to 3 bytes of an unfinished UTF-8 character at the end of a record are stored in it,
//! and delivered in front of the next record of the same stream, which repeats them. So
//! any record can be delivered without having seen another.

mod cursors;
mod file_writer;
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
pub(crate) use logs::Logs;
#[cfg(test)]
pub(crate) use reader::read;
pub use writer::LogWriter;

use crate::{Store, StoreError, blocking};

/// A part of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogPage {
    /// In the order in which they were written.
    pub messages: Vec<LogMessage>,
    /// What to ask for next: the number of the last message here, or `after_seq`.
    pub next_seq: u64,
    /// Whether the log holds more than this page, as of now.
    pub has_more: bool,
    /// Bytes of the whole log that were dropped from its middle.
    pub truncated_bytes: u64,
}

/// Something an exec wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogMessage {
    /// Counted from 1.
    pub seq: u64,
    /// Where it was written.
    pub stream: Stream,
    /// When.
    pub unix_ms: u64,
    /// What. It never ends in the middle of a UTF-8 character.
    pub data: Bytes,
}

impl Store {
    /// The log of an exec, for writing. There is one writer per exec: while one has its file
    /// open, another cannot write.
    pub fn log_writer(&self, id: &ExecId, output_bytes_max: u64) -> LogWriter {
        LogWriter::new(Arc::clone(&self.logs), id, output_bytes_max)
    }

    /// Reads what comes after message `after_seq`: at least one message if there is one, at
    /// most about `bytes_max` bytes. An exec that wrote nothing has an empty log.
    ///
    /// The disk is read on the blocking pool, and not at all where a log that is being written
    /// has nothing new.
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
