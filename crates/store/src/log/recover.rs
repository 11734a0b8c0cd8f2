//! Finds where to continue a log after its writer died.

use std::fs::File;
use std::io;
use std::path::Path;

use hotcell_domain::{ExecId, Stream};

use super::layout::Layout;
use super::part::{self, LogPart};
use super::record::{Carry, Header};
use super::scan::RecordScan;

const CHUNK_BYTES: usize = 1 << 20;

/// The state of a writer.
#[derive(Debug, Default)]
pub(super) struct Recovered {
    pub(super) layout: Layout,
    /// The newest file and the length of its valid part.
    pub(super) current: Option<(File, u64)>,
    pub(super) state: WriterState,
}

/// The state in the last record.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct WriterState {
    pub(super) agent_seq: u64,
    pub(super) seq: u64,
    /// Bytes delivered by all messages.
    pub(super) total_bytes: u64,
    /// For stdout and stderr.
    pub(super) carries: [Carry; 2],
}

/// Finds the last whole record and cuts off what follows it.
pub(super) fn recover(directory: &Path, id: &ExecId) -> io::Result<Recovered> {
    let mut layout = Layout::on_disk(directory, id)?;
    while let Some(part) = layout.parts.last() {
        let path = part::path(directory, id, part.number);
        let file = File::options().read(true).write(true).open(&path)?;
        if let Some((state, length)) = last_record(part, &file)? {
            file.set_len(length)?;
            let current = Some((file, length));
            return Ok(Recovered {
                layout,
                current,
                state,
            });
        }
        // Not even its first record was complete.
        std::fs::remove_file(&path)?;
        layout.parts.pop();
    }
    Ok(Recovered::default())
}

pub(super) fn last_record(part: &LogPart, file: &File) -> io::Result<Option<(WriterState, u64)>> {
    let mut scan = RecordScan::new(file.try_clone()?, part::HEADER_BYTES as u64, CHUNK_BYTES);
    let mut delivered = part.base_bytes;
    let mut last = None;
    while let Some((header, payload)) = scan.next()? {
        delivered += (payload.len() - header.carry_bytes) as u64;
        last = Some((header, payload));
    }
    Ok(last.map(|(header, payload)| (state(&header, &payload, delivered), scan.offset())))
}

fn state(header: &Header, payload: &[u8], total_bytes: u64) -> WriterState {
    let own = Carry::new(&payload[payload.len() - header.carry_bytes..]);
    WriterState {
        agent_seq: header.agent_seq,
        seq: header.seq,
        total_bytes,
        carries: match header.stream {
            Stream::Stdout => [own, header.other],
            Stream::Stderr => [header.other, own],
        },
    }
}
