//! Writes a log file: one write per append, and no partial effects.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::sync::Arc;

use hotcell_domain::{ExecId, Stream};

use super::logs::{Logs, OpenLog};
use super::part::{self, LogPart, SEGMENTS};
use super::record::{Carry, Header, PAYLOAD_BYTES_MAX};
use super::recover::{Recovered, WriterState, recover};
use super::utf8::unfinished;
use crate::StoreError;

/// A buffer that has grown larger is not kept.
const BUFFER_BYTES_KEPT: usize = 256 << 10;

/// Writes the log of one exec. There is one writer per exec.
#[derive(Debug)]
pub(crate) struct FileWriter {
    logs: Arc<Logs>,
    log: Arc<OpenLog>,
    id: ExecId,
    half_bytes: u64,
    state: WriterState,
    current: Option<CurrentPart>,
    buffer: Vec<u8>,
}

/// The file that is being appended to.
#[derive(Debug)]
struct CurrentPart {
    file: File,
    part: LogPart,
    length: u64,
    /// The file may contain bytes after `length`, which must be cut off.
    needs_cut: bool,
}

impl FileWriter {
    pub(crate) fn open(
        logs: Arc<Logs>,
        id: &ExecId,
        output_bytes_max: u64,
    ) -> Result<Self, StoreError> {
        let step = "open an output log";
        let log = logs
            .open_for_writing(id)
            .ok_or_else(|| StoreError::failed(step, "it is being written already"))?;
        let mut writer = Self {
            logs,
            log,
            id: id.clone(),
            half_bytes: output_bytes_max.div_ceil(2).max(1),
            state: WriterState::default(),
            current: None,
            buffer: Vec::new(),
        };
        let found = recover(writer.logs.directory(), id);
        writer.go_on(found.map_err(|error| StoreError::io(step, error))?);
        Ok(writer)
    }

    /// Appends what the agent sent as number `agent_seq`; returns the number of the newest message.
    /// After `Ok` it may be acknowledged to the agent; after `Err` the log is unchanged and the
    /// call can be repeated.
    ///
    /// A number that is already in the log is not added again. Number 0 is for text that does not
    /// come from the agent and is always added.
    pub(crate) fn append(
        &mut self,
        agent_seq: u64,
        stream: Stream,
        unix_ms: u64,
        data: &[u8],
    ) -> Result<u64, StoreError> {
        if agent_seq != 0 && agent_seq <= self.state.agent_seq {
            return Ok(self.state.seq);
        }
        if data.len() + 3 > PAYLOAD_BYTES_MAX {
            return Err(StoreError::failed(STEP, "too much at once"));
        }
        let mut state = self.state;
        state.agent_seq = agent_seq.max(state.agent_seq);
        self.buffer.clear();
        if !data.is_empty() {
            let carry = carry_of(&state.carries[stream as usize], data);
            add(&mut self.buffer, &mut state, stream, unix_ms, data, carry);
        }
        self.commit(state)
    }

    /// Appends incomplete characters that were held back; returns the number of the newest message.
    /// Can be repeated.
    ///
    /// `agent_seq` is not stored: a server that dies before it has stored the exit resumes at a
    /// point where the agent sends the exit again.
    pub(crate) fn finish(&mut self, agent_seq: u64, unix_ms: u64) -> Result<u64, StoreError> {
        let mut state = self.state;
        self.buffer.clear();
        for stream in [Stream::Stdout, Stream::Stderr] {
            if !state.carries[stream as usize].as_slice().is_empty() {
                let none = Carry::default();
                add(&mut self.buffer, &mut state, stream, unix_ms, &[], none);
            }
        }
        state.agent_seq = agent_seq.max(state.agent_seq);
        self.commit(state)
    }

    /// Whether [`FileWriter::finish`] would append an incomplete character.
    pub(crate) fn has_carry(&self) -> bool {
        let mut carries = self.state.carries.iter();
        carries.any(|carry| !carry.as_slice().is_empty())
    }

    /// The agent's number up to which everything is stored: where to resume.
    pub(crate) fn agent_seq(&self) -> u64 {
        self.state.agent_seq
    }

    /// The number of the newest message.
    pub(crate) fn last_seq(&self) -> u64 {
        self.state.seq
    }

    fn go_on(&mut self, found: Recovered) {
        self.state = found.state;
        let part = found.layout.parts.last().copied();
        self.current = part
            .zip(found.current)
            .map(|(part, (file, length))| CurrentPart {
                file,
                part,
                length,
                needs_cut: false,
            });
        let mut open = self.log.state();
        open.layout = found.layout;
        open.last_seq = self.state.seq;
    }

    /// Writes the buffer, and only then takes over `state`.
    fn commit(&mut self, state: WriterState) -> Result<u64, StoreError> {
        assert!(
            state.seq >= self.state.seq && state.agent_seq >= self.state.agent_seq,
            "sequence numbers of a log never fall"
        );
        if !self.buffer.is_empty() {
            let written = match &mut self.current {
                Some(current) if !current.is_full(self.half_bytes) => current.write(&self.buffer),
                _ => self.begin_part(),
            };
            if self.buffer.capacity() > BUFFER_BYTES_KEPT {
                self.buffer = Vec::new();
            }
            written.map_err(|error| StoreError::io(STEP, error))?;
        }
        self.state = state;
        self.log.state().last_seq = state.seq;
        Ok(state.seq)
    }

    /// Writes the buffer to a new file, and drops old segments.
    fn begin_part(&mut self) -> io::Result<()> {
        let part = self.next_part();
        let path = part::path(self.logs.directory(), &self.id, part.number);
        let mut bytes = part.header().to_vec();
        bytes.extend_from_slice(&self.buffer);
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&path)?;
        if let Err(error) = file.write_all_at(&bytes, 0) {
            let _ = std::fs::remove_file(&path);
            return Err(error);
        }
        self.current = Some(CurrentPart {
            file,
            part,
            length: bytes.len() as u64,
            needs_cut: false,
        });
        self.log.state().layout.parts.push(part);
        self.drop_old();
        Ok(())
    }

    fn next_part(&self) -> LogPart {
        let before = self.current.as_ref().map(|current| current.part);
        LogPart {
            number: before.map_or(0, |part| part.number + 1),
            first_seq: self.state.seq + 1,
            base_bytes: self.state.total_bytes,
            head_bytes: match before {
                Some(part) if part.number > 0 => part.head_bytes,
                _ => self.state.total_bytes,
            },
        }
    }

    /// Removes old segments, after readers have stopped looking for them.
    fn drop_old(&self) {
        let mut old = Vec::new();
        {
            let mut open = self.log.state();
            let parts = open.layout.tail();
            let newest = parts.last().map_or(0, |part| part.number);
            let is_old = |part: &LogPart| part.number > 0 && part.number + SEGMENTS < newest;
            old.extend(parts.iter().filter(|part| is_old(part)).copied());
            open.layout.parts.retain(|part| !is_old(part));
        }
        for part in old {
            let path = part::path(self.logs.directory(), &self.id, part.number);
            if let Err(error) = std::fs::remove_file(path) {
                tracing::warn!(exec.id = %self.id, %error, "a log segment stays on disk");
            }
        }
    }
}

impl Drop for FileWriter {
    fn drop(&mut self) {
        self.logs.close(&self.id);
    }
}

const STEP: &str = "write an output log";

impl CurrentPart {
    /// Headers count too: the bound on output is a bound on disk usage.
    fn is_full(&self, half_bytes: u64) -> bool {
        let share = match self.part.number {
            0 => half_bytes,
            _ => half_bytes.div_ceil(SEGMENTS),
        };
        self.length >= share
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.file.metadata()?.nlink() == 0 {
            return Err(io::Error::other("the log was deleted while it was written"));
        }
        if self.needs_cut {
            self.file.set_len(self.length)?;
            self.needs_cut = false;
        }
        if let Err(error) = self.file.write_all_at(bytes, self.length) {
            self.needs_cut = self.file.set_len(self.length).is_err();
            return Err(error);
        }
        self.length += bytes.len() as u64;
        Ok(())
    }
}

/// Appends one record to `buffer`, and updates `state` to what holds once it is written.
fn add(
    buffer: &mut Vec<u8>,
    state: &mut WriterState,
    stream: Stream,
    unix_ms: u64,
    data: &[u8],
    carry: Carry,
) {
    let (own, other) = match stream {
        Stream::Stdout => (0, 1),
        Stream::Stderr => (1, 0),
    };
    let front = state.carries[own];
    let carry_bytes = carry.as_slice().len();
    let delivered = front.as_slice().len() + data.len() - carry_bytes;
    state.seq += u64::from(delivered > 0);
    state.total_bytes += delivered as u64;
    state.carries[own] = carry;
    let header = Header {
        agent_seq: state.agent_seq,
        seq: state.seq,
        stream,
        unix_ms,
        carry_bytes,
        other: state.carries[other],
    };
    header.write([front.as_slice(), data], buffer);
}

/// The incomplete character at the end of `front` and `data` together.
fn carry_of(front: &Carry, data: &[u8]) -> Carry {
    let near = &data[data.len().saturating_sub(3)..];
    let mut end = [0; 6];
    let mut length = 0;
    // An incomplete character has at most 3 bytes, so it can only start in `front` if `data` is
    // shorter.
    let front = if data.len() < 3 {
        front.as_slice()
    } else {
        &[]
    };
    for byte in front.iter().chain(near) {
        end[length] = *byte;
        length += 1;
    }
    let end = &end[..length];
    Carry::new(&end[end.len() - unfinished(end)..])
}
