//! Reads the records of one file in sequence.

use std::fs::File;
use std::io;

use bytes::{Buf, Bytes};
use rustix::buffer::spare_capacity;
use rustix::io::Errno;

use super::record::{self, Header};

/// Reads whole records. Messages are slices of one large read, not copies.
pub(super) struct RecordScan {
    file: File,
    offset: u64,
    chunk: Bytes,
    chunk_bytes: usize,
    is_torn: bool,
}

impl RecordScan {
    /// Starts at `offset` and reads about `chunk_bytes` at once.
    pub(super) fn new(file: File, offset: u64, chunk_bytes: usize) -> Self {
        Self {
            file,
            offset,
            chunk: Bytes::new(),
            chunk_bytes,
            is_torn: false,
        }
    }

    /// The next record; `None` after the last whole one.
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

    /// Where the next record begins, or would begin.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Whether something follows that is not a whole record.
    pub(super) fn is_torn(&self) -> bool {
        self.is_torn
    }

    /// How many bytes the next record needs; `None` if it cannot be one.
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

    /// Reads again from `offset`. False if the file is too short.
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
