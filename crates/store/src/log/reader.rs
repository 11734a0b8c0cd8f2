//! Reads a log page by page, also while it is written and segments are dropped.

use std::fs::File;
use std::io;

use hotcell_domain::ExecId;

use super::cursors::LogPosition;
use super::layout::Layout;
use super::logs::Logs;
use super::part;
use super::scan::RecordScan;
use super::{LogMessage, LogPage};
use crate::StoreError;

/// Read in addition to the requested size, for headers.
const CHUNK_BYTES_MORE: usize = 8 << 10;

/// The largest single read.
const CHUNK_BYTES_MAX: usize = 1 << 20;

/// Messages per page: each costs over a hundred bytes besides its text.
pub(super) const MESSAGES_MAX: usize = 16 << 10;

/// Reads what comes after message `after_seq`.
pub(crate) fn read(
    logs: &Logs,
    id: &ExecId,
    after_seq: u64,
    bytes_max: usize,
) -> Result<LogPage, StoreError> {
    let failed = |error| StoreError::io("read an output log", error);
    if let Some(page) = without_news(logs, id, after_seq) {
        return Ok(page);
    }
    let mut page = PageBuilder::new(after_seq, bytes_max);
    let layout = match logs.open_log(id) {
        Some(log) => log.state().layout.clone(),
        None => Layout::on_disk(logs.directory(), id).map_err(failed)?,
    };
    page.fill(logs, id, &layout).map_err(failed)?;
    // Segments dropped while we read are missing in this page, so they must be counted in it.
    let truncated_bytes = match logs.open_log(id) {
        Some(log) => log.state().layout.truncated_bytes(),
        None => layout.truncated_bytes(),
    };
    Ok(page.finish(truncated_bytes))
}

/// The empty page of an open log without messages after `after_seq`. Answered from memory.
pub(super) fn without_news(logs: &Logs, id: &ExecId, after_seq: u64) -> Option<LogPage> {
    let log = logs.open_log(id)?;
    let state = log.state();
    let truncated_bytes = state.layout.truncated_bytes();
    (state.last_seq <= after_seq).then(|| PageBuilder::new(after_seq, 0).finish(truncated_bytes))
}

struct PageBuilder {
    after_seq: u64,
    bytes_max: usize,
    bytes: usize,
    messages: Vec<LogMessage>,
    has_more: bool,
}

impl PageBuilder {
    fn new(after_seq: u64, bytes_max: usize) -> Self {
        Self {
            after_seq,
            bytes_max,
            bytes: 0,
            messages: Vec::new(),
            has_more: false,
        }
    }

    fn finish(self, truncated_bytes: u64) -> LogPage {
        LogPage {
            next_seq: self.next_seq(),
            messages: self.messages,
            has_more: self.has_more,
            truncated_bytes,
        }
    }

    fn next_seq(&self) -> u64 {
        self.messages
            .last()
            .map_or(self.after_seq, |message| message.seq)
    }

    fn fill(&mut self, logs: &Logs, id: &ExecId, layout: &Layout) -> io::Result<()> {
        let cursor = logs.cursors().get(id, self.after_seq);
        let known =
            cursor.and_then(|position| Some((layout.index_of(position.part)?, position.offset)));
        let start = part::HEADER_BYTES as u64;
        let (index, mut offset) = known.unwrap_or((layout.index_after(self.after_seq), start));
        for (at, part) in layout.parts.iter().enumerate().skip(index) {
            if let Some(file) = part.open(logs.directory(), id)? {
                let (offset, is_torn) = self.fill_from(file, offset)?;
                let position = LogPosition {
                    part: part.number,
                    offset,
                };
                logs.cursors().put(id, self.next_seq(), position);
                if is_torn && at + 1 < layout.parts.len() {
                    tracing::warn!(exec.id = %id, part = part.number, offset, "a log is damaged");
                }
            }
            if self.has_more {
                break;
            }
            offset = start;
        }
        Ok(())
    }

    /// Adds messages of one file until the page is full. Returns the offset of the first one not
    /// added, and whether it is torn.
    fn fill_from(&mut self, file: File, offset: u64) -> io::Result<(u64, bool)> {
        let wanted = self.bytes_max - self.bytes.min(self.bytes_max);
        let chunk_bytes = wanted.saturating_add(CHUNK_BYTES_MORE).min(CHUNK_BYTES_MAX);
        let mut scan = RecordScan::new(file, offset, chunk_bytes);
        loop {
            let offset = scan.offset();
            let Some((header, mut data)) = scan.next()? else {
                return Ok((offset, scan.is_torn()));
            };
            data.truncate(data.len() - header.carry_bytes);
            if data.is_empty() || header.seq <= self.after_seq {
                continue;
            }
            let is_full = self.bytes + data.len() > self.bytes_max;
            if !self.messages.is_empty() && (is_full || self.messages.len() >= MESSAGES_MAX) {
                self.has_more = true;
                return Ok((offset, false));
            }
            debug_assert!(
                header.seq > self.next_seq(),
                "sequence numbers of a log rise"
            );
            self.bytes += data.len();
            self.messages.push(LogMessage {
                seq: header.seq,
                stream: header.stream,
                unix_ms: header.unix_ms,
                data,
            });
        }
    }
}
