//! Checks whether a log can be read to its end.

use std::fs::File;
use std::io;

use hotcell_domain::ExecId;

use super::layout::Layout;
use super::logs::Logs;
use super::part;
use super::recover::last_record;
use crate::StoreError;

/// The state of a log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LogHealth {
    /// Bytes of output that were ever logged, including those dropped from the middle.
    pub(crate) output_bytes: u64,
    /// Whether an incomplete record follows the last complete one: its writer died.
    pub(crate) is_torn: bool,
    /// Whether a part in the middle is unreadable.
    pub(crate) is_damaged: bool,
}

impl Logs {
    /// Reads a whole log, without changing it.
    pub(crate) fn health(&self, id: &ExecId) -> io::Result<LogHealth> {
        let layout = Layout::on_disk(self.directory(), id)?;
        let mut health = LogHealth {
            is_torn: self.files_count(id) != layout.parts.len(),
            ..LogHealth::default()
        };
        for (index, part) in layout.parts.iter().enumerate() {
            let Some(file) = part.open(self.directory(), id)? else {
                health.is_damaged = true;
                continue;
            };
            let length = file.metadata()?.len();
            let read = last_record(part, &file)?;
            let whole = read.map_or(0, |(_, whole)| whole);
            let is_cut = whole != length;
            if index + 1 < layout.parts.len() {
                health.is_damaged |= is_cut;
            } else {
                health.is_torn |= is_cut;
            }
            if let Some((state, _)) = read {
                let unfinished = state.carries.iter().map(|carry| carry.as_slice().len());
                health.output_bytes = state.total_bytes + unfinished.sum::<usize>() as u64;
            }
        }
        Ok(health)
    }

    fn files_count(&self, id: &ExecId) -> usize {
        let paths = part::all_paths(self.directory(), id);
        paths.filter(|path| path.exists()).count()
    }

    /// The files of a log, with their names and current lengths.
    pub(crate) fn files(&self, id: &ExecId) -> Result<Vec<(String, File, u64)>, StoreError> {
        let failed = |error| StoreError::io("open an output log", error);
        let mut files = Vec::new();
        for path in part::all_paths(self.directory(), id) {
            let name = path.file_name().and_then(|name| name.to_str());
            if let Some(file) = part::open(&path).map_err(failed)? {
                let bytes = file.metadata().map_err(failed)?.len();
                files.push((name.unwrap_or_default().to_owned(), file, bytes));
            }
        }
        Ok(files)
    }
}
