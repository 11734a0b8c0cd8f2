//! Record after record out of one file.

use std::fs::File;
use std::io;

use bytes::{Buf, Bytes};
use rustix::buffer::spare_capacity;
use rustix::io::Errno;

use super::record::{self, Header};

/// Reads whole records. Messages are slices of what was read at once, not copies.
pub(super) struct RecordScan {
    file: File,
    offset: u64,
    chunk: Bytes,
    chunk_bytes: usize,
    is_torn: bool,
}

impl RecordScan {
    /// Begins at `offset`, reading about `chunk_bytes` at once.
    pub(super) fn new(file: File, offset: u64, chunk_bytes: usize) -> Self {
        Self {
            file,
            offset,
            chunk: Bytes::new(),
            chunk_bytes,
            is_torn: false,
        }
    }

    /// The next record, `None` behind the last whole one.
    pub(super) fn next(&mut self) -> io::Result<Option<(Header, Bytes)>> {
        loop {
            let Some(need) = self.need() else {
                self.is_torn = true;
                return Ok(None);
            };
            if self.chunk.len() < need {
                if !self.refill(need)? {
                    self.is_torn = !self.chunk.is_empty();
                    return Ok(None);
                }
            } else if need > record::HEADER_BYTES {
                return Ok(self.take(need));
            }
        }
    }

    /// Where the next record begins, or would.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Whether something follows that is not a whole record.
    pub(super) fn is_torn(&self) -> bool {
        self.is_torn
    }

    /// Bytes that must be here to go on; `None` if no record begins like this.
    fn need(&self) -> Option<usize> {
        if self.chunk.len() < record::HEADER_BYTES {
            return Some(record::HEADER_BYTES);
        }
        record::length(&self.chunk)
    }

    fn take(&mut self, length: usize) -> Option<(Header, Bytes)> {
        let Some(header) = Header::read(&self.chunk[..length]) else {
            self.is_torn = true;
            return None;
        };
        let payload = self.chunk.slice(record::HEADER_BYTES..length);
        self.chunk.advance(length);
        self.offset += length as u64;
        Some((header, payload))
    }

    /// Reads anew from `offset`. False if there is not as much.
    fn refill(&mut self, need: usize) -> io::Result<bool> {
        let there = self.file.metadata()?.len().saturating_sub(self.offset);
        let there = usize::try_from(there).unwrap_or(usize::MAX);
        let mut buffer = Vec::with_capacity(self.chunk_bytes.max(need).min(there));
        while buffer.len() < buffer.capacity() {
            let at = self.offset + buffer.len() as u64;
            match rustix::io::pread(&self.file, spare_capacity(&mut buffer), at) {
                Ok(0) => break,
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.chunk = Bytes::from(buffer);
        Ok(self.chunk.len() >= need)
    }
}
