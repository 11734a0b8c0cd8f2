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

pub(crate) use logs::Logs;
pub use writer::LogWriter;

use crate::{Store, StoreError};

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
    /// Opens the log of an exec for writing. What another server wrote before it died is
    /// there, up to the last whole record. There is one writer per exec: while one lives,
    /// another is refused.
    pub fn log_writer(&self, id: &ExecId, output_bytes_max: u64) -> Result<LogWriter, StoreError> {
        LogWriter::open(Arc::clone(&self.logs), id, output_bytes_max)
    }

    /// Reads what comes after message `after_seq`: at least one message if there is one, at
    /// most about `bytes_max` bytes. An exec that wrote nothing has an empty log.
    pub fn read_log(
        &self,
        id: &ExecId,
        after_seq: u64,
        bytes_max: usize,
    ) -> Result<LogPage, StoreError> {
        reader::read(&self.logs, id, after_seq, bytes_max)
    }
}

#[cfg(test)]
mod tests;
