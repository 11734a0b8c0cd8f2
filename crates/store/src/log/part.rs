//! One file of a log: its name and its header.
//!
//! Part 0 is the head. Tail segments are numbered from 1, and their file names are reused in
//! rotation, so that all files of a log are found without listing a directory of thousands.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use hotcell_domain::ExecId;

use super::record::{check, u32_at, u64_at};

pub(super) const HEADER_BYTES: usize = 48;

/// Full tail segments that are kept beside the newest.
pub(super) const SEGMENTS: u64 = 8;

/// The number of file names of tail segments: more than exist at once.
const TAIL_NAMES: u64 = 2 * SEGMENTS;

const MAGIC: &[u8; 8] = b"hotlog\0\x01";

/// The header of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LogPart {
    /// 0 is the head.
    pub(super) number: u64,
    /// The smallest number that a message in it can have.
    pub(super) first_seq: u64,
    /// Bytes delivered by all parts before it.
    pub(super) base_bytes: u64,
    /// Bytes in the head; not known in the head's own header.
    pub(super) head_bytes: u64,
}

impl LogPart {
    pub(super) fn header(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        let numbers = [
            self.number,
            self.first_seq,
            self.base_bytes,
            self.head_bytes,
        ];
        for (position, number) in bytes[8..40].chunks_exact_mut(8).zip(numbers) {
            position.copy_from_slice(&number.to_le_bytes());
        }
        let check = check(0, &bytes[..40]);
        bytes[40..44].copy_from_slice(&check.to_le_bytes());
        bytes
    }

    /// Reads a file's header; `None` if it is not one of ours.
    pub(super) fn read(file: &File) -> io::Result<Option<Self>> {
        let mut bytes = [0; HEADER_BYTES];
        match file.read_exact_at(&mut bytes, 0) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            done => done?,
        }
        Ok(Self::parse(&bytes))
    }

    fn parse(bytes: &[u8; HEADER_BYTES]) -> Option<Self> {
        let is_ours = bytes.starts_with(MAGIC) && u32_at(bytes, 40)? == check(0, &bytes[..40]);
        let part = Self {
            number: u64_at(bytes, 8)?,
            first_seq: u64_at(bytes, 16)?,
            base_bytes: u64_at(bytes, 24)?,
            head_bytes: u64_at(bytes, 32)?,
        };
        is_ours.then_some(part)
    }

    /// Opens the file of this part for reading. `None` if it was removed, or its name reused.
    pub(super) fn open(&self, directory: &Path, id: &ExecId) -> io::Result<Option<File>> {
        let Some(file) = open(&path(directory, id, self.number))? else {
            return Ok(None);
        };
        let is_it = Self::read(&file)? == Some(*self);
        Ok(is_it.then_some(file))
    }
}

pub(super) fn path(directory: &Path, id: &ExecId, number: u64) -> PathBuf {
    directory.join(match number {
        0 => format!("{id}.head"),
        number => format!("{id}.tail{}", number % TAIL_NAMES),
    })
}

/// Every path that a log may use.
pub(super) fn all_paths(directory: &Path, id: &ExecId) -> impl Iterator<Item = PathBuf> {
    (0..=TAIL_NAMES).map(move |number| path(directory, id, number))
}

/// Every path that a log uses, and perhaps others. Most logs have only a head, which three lookups
/// show: the first segment is there until `SEGMENTS` others follow it, and of as many in a row one
/// has a number that is a multiple of `SEGMENTS`.
pub(super) fn paths(directory: &Path, id: &ExecId) -> impl Iterator<Item = PathBuf> {
    let landmarks = [1, SEGMENTS, TAIL_NAMES];
    let is_there = |number| path(directory, id, number).exists();
    let names = if landmarks.into_iter().any(is_there) {
        TAIL_NAMES
    } else {
        0
    };
    (0..=names).map(move |number| path(directory, id, number))
}

/// Opens a file for reading, if it exists.
pub(super) fn open(path: &Path) -> io::Result<Option<File>> {
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether a file of a log can have this name.
pub(crate) fn is_file_name(name: &str) -> bool {
    let file = |id: ExecId| {
        let directory = Path::new("");
        all_paths(directory, &id).any(|path| path == Path::new(name))
    };
    owner(name).is_some_and(file)
}

/// The exec to which a log file belongs.
pub(super) fn owner(file_name: &str) -> Option<ExecId> {
    let (id, _) = file_name.split_once('.')?;
    ExecId::parse(id).ok()
}
