//! The files of a log, and what was dropped between them.

use std::io;
use std::path::Path;

use hotcell_domain::ExecId;

use super::part::{self, LogPart};

/// The files of a log, oldest first.
#[derive(Debug, Clone, Default)]
pub(super) struct Layout {
    pub(super) parts: Vec<LogPart>,
}

impl Layout {
    /// Finds the files on disk; ignores files that are not ours.
    pub(super) fn on_disk(directory: &Path, id: &ExecId) -> io::Result<Self> {
        let mut parts = Vec::new();
        for path in part::paths(directory, id) {
            if let Some(file) = part::open(&path)? {
                parts.extend(LogPart::read(&file)?);
            }
        }
        parts.sort_unstable_by_key(|part| part.number);
        Ok(Self { parts })
    }

    /// Bytes dropped between the head and the oldest tail segment.
    pub(super) fn truncated_bytes(&self) -> u64 {
        let oldest = self.tail().first();
        oldest.map_or(0, |part| part.base_bytes.saturating_sub(part.head_bytes))
    }

    pub(super) fn tail(&self) -> &[LogPart] {
        let head = self
            .parts
            .iter()
            .take_while(|part| part.number == 0)
            .count();
        &self.parts[head..]
    }

    /// The index in `parts` where the first message after `seq` is.
    pub(super) fn index_after(&self, seq: u64) -> usize {
        let before = self
            .parts
            .partition_point(|part| part.first_seq <= seq.saturating_add(1));
        before.saturating_sub(1)
    }

    pub(super) fn index_of(&self, number: u64) -> Option<usize> {
        self.parts.iter().position(|part| part.number == number)
    }
}
