//! The journal of a merge. Each step is written before it is done, so that the next agent can
//! undo the merge of one that died.
//!
//! ```text
//!  file:    dest u16 length, bytes; then steps
//!  step:    kind u8 · device u64 · inode u64 · path u16 length, bytes · beside u16 length, bytes
//! ```
//!
//! Numbers are little-endian. The file exists from before the first change until the merge is
//! final. It is not synced: it protects against the death of an agent, not of its host. Its
//! content is untrusted, because the container can write to it.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags, Stat};
use rustix::io::Errno;

use super::beneath::open_child;
use super::copy::write_all;
use super::error::{Error, Step};
use super::path::{Name, RelPath};
use super::tree;

/// Its name in the staging directory.
const NAME: &[u8] = b"journal";

/// The largest journal, on disk and in memory: some hundred thousand replaced files.
pub(super) const JOURNAL_BYTES_MAX: usize = 64 << 20;

/// Identifies a file even after renames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileId {
    device: u64,
    inode: u64,
}

impl From<&Stat> for FileId {
    fn from(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
        }
    }
}

/// How a name at the destination changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// The unpacked file is moved to an unused name.
    Moved = 1,
    /// The unpacked file is exchanged with the existing one.
    Exchanged = 2,
    /// An empty directory is created.
    Made = 3,
    /// A copy of the unpacked file is moved to an unused name.
    Copied = 4,
    /// A copy, created under a hidden name beside the target, is exchanged with the existing file.
    Replaced = 5,
}

impl Change {
    fn parse(kind: u8) -> Option<Self> {
        let all = [
            Self::Moved,
            Self::Exchanged,
            Self::Made,
            Self::Copied,
            Self::Replaced,
        ];
        all.into_iter().find(|change| *change as u8 == kind)
    }
}

/// One step of a merge. Its path is the same in the staging directory and at the destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MergeStep {
    pub(super) path: RelPath,
    pub(super) change: Change,
    /// The file at the path once the step is done; unknown for a directory that is yet to be
    /// created.
    pub(super) new: Option<FileId>,
    /// The hidden name of the replaced file.
    pub(super) beside: Option<Name>,
}

/// A journal that is being written.
#[derive(Debug)]
pub(super) struct MergeJournal {
    file: OwnedFd,
    bytes: usize,
}

impl MergeJournal {
    /// Creates the journal of a merge to `dest`.
    pub(super) fn create(staging: impl AsFd, dest: &RelPath) -> Result<Self, Error> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = rustix::fs::openat(staging, NAME, flags, Mode::RUSR | Mode::WUSR);
        let mut journal = Self {
            file: file.step("make the journal")?,
            bytes: 0,
        };
        let mut header = Vec::new();
        put_bytes(&mut header, dest.as_bytes());
        journal.write(&header)?;
        Ok(journal)
    }

    /// Records a step in advance.
    pub(super) fn note(&mut self, step: &MergeStep) -> Result<(), Error> {
        let mut record = vec![step.change as u8];
        let id = step.new.unwrap_or(FileId {
            device: 0,
            inode: 0,
        });
        record.extend(id.device.to_le_bytes());
        record.extend(id.inode.to_le_bytes());
        put_bytes(&mut record, step.path.as_bytes());
        put_bytes(
            &mut record,
            step.beside.as_ref().map_or(b"", Name::as_bytes),
        );
        self.write(&record)
    }

    fn write(&mut self, record: &[u8]) -> Result<(), Error> {
        self.bytes += record.len();
        if self.bytes > JOURNAL_BYTES_MAX {
            return Err(Error::Exhausted("the archive replaces too many files"));
        }
        write_all(&self.file, record)
    }
}

/// Removes the journal: from here on the merge will not be undone.
pub(super) fn commit(staging: impl AsFd) -> Result<(), Error> {
    tree::unlink(staging, NAME).step("end the journal")
}

/// Reads the journal that a dead agent left, if its merge had begun: the destination and all
/// complete steps. A truncated last step was never done.
pub(super) fn read(staging: impl AsFd) -> Result<Option<(RelPath, Vec<MergeStep>)>, Error> {
    let file = match open_child(staging, NAME, OFlags::RDONLY) {
        Err(Errno::NOENT) => return Ok(None),
        file => file.step("open the journal")?,
    };
    let mut bytes = Vec::new();
    loop {
        bytes.reserve(64 << 10);
        let count = rustix::io::read(&file, rustix::buffer::spare_capacity(&mut bytes));
        if count.step("read the journal")? == 0 {
            break;
        }
        if bytes.len() > JOURNAL_BYTES_MAX {
            return Err(Error::Exhausted("the journal is too long"));
        }
    }
    parse(&bytes).map(Some)
}

fn parse(mut bytes: &[u8]) -> Result<(RelPath, Vec<MergeStep>), Error> {
    let dest = take_bytes(&mut bytes).ok_or(Error::Archive("its journal is cut off"))?;
    let dest = RelPath::parse(dest, b"/")?;
    let mut steps = Vec::new();
    while let Some(step) = parse_step(&mut bytes)? {
        steps.push(step);
    }
    Ok((dest, steps))
}

fn parse_step(bytes: &mut &[u8]) -> Result<Option<MergeStep>, Error> {
    let mut rest = *bytes;
    let (Some(kind), Some(device), Some(inode), Some(path), Some(beside)) = (
        take::<1>(&mut rest),
        take::<8>(&mut rest),
        take::<8>(&mut rest),
        take_bytes(&mut rest),
        take_bytes(&mut rest),
    ) else {
        return Ok(None);
    };
    *bytes = rest;
    let wrong = || Error::Archive("its journal is not one of ours");
    let change = Change::parse(kind[0]).ok_or_else(wrong)?;
    let is_name = !beside.contains(&b'/') && !matches!(beside, b"." | b"..");
    if !is_name || beside.is_empty() == (change == Change::Replaced) {
        return Err(wrong());
    }
    let id = FileId {
        device: u64::from_le_bytes(device),
        inode: u64::from_le_bytes(inode),
    };
    Ok(Some(MergeStep {
        path: RelPath::parse_inner(path)?,
        change,
        new: (change != Change::Made).then_some(id),
        beside: (!beside.is_empty()).then(|| Name::listed(beside)),
    }))
}

fn put_bytes(record: &mut Vec<u8>, bytes: &[u8]) {
    // Paths are shorter than 4096 bytes.
    let length = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
    record.extend(length.to_le_bytes());
    record.extend(&bytes[..length.into()]);
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*taken)
}

fn take_bytes<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = u16::from_le_bytes(take(bytes)?);
    let (taken, rest) = bytes.split_at_checked(length.into())?;
    *bytes = rest;
    Some(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(path: &str, change: Change) -> MergeStep {
        let id = FileId {
            device: 1,
            inode: u64::MAX,
        };
        MergeStep {
            path: RelPath::parse_inner(path.as_bytes()).unwrap(),
            change,
            new: (change != Change::Made).then_some(id),
            beside: (change == Change::Replaced).then(|| Name::listed(b".hidden")),
        }
    }

    #[test]
    fn a_journal_is_read_as_it_was_written_and_a_step_cut_off_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let staging: OwnedFd = std::fs::File::open(dir.path()).unwrap().into();
        assert_eq!(read(&staging).unwrap(), None);
        let dest = RelPath::parse(b"to/../here", b"/").unwrap();
        let mut journal = MergeJournal::create(&staging, &dest).unwrap();
        let steps = [
            step("a", Change::Moved),
            step("b/c", Change::Exchanged),
            step("d", Change::Made),
            step("e", Change::Copied),
            step("f", Change::Replaced),
        ];
        for step in &steps {
            journal.note(step).unwrap();
        }
        assert_eq!(read(&staging).unwrap(), Some((dest, steps.to_vec())));
        let path = dir.path().join("journal");
        let whole = std::fs::read(&path).unwrap();
        for cut in 1..whole.len() {
            std::fs::write(&path, &whole[..whole.len() - cut]).unwrap();
            if let Ok(Some((_, left))) = read(&staging) {
                assert!(steps.starts_with(&left) && left.len() < steps.len());
            }
        }
        commit(&staging).unwrap();
        assert_eq!(read(&staging).unwrap(), None);
    }

    #[test]
    fn a_journal_that_leads_elsewhere_is_refused() {
        let record = |kind: u8, path: &[u8], beside: &[u8]| {
            let mut bytes = vec![0, 0, kind];
            bytes.extend([0; 16]);
            put_bytes(&mut bytes, path);
            put_bytes(&mut bytes, beside);
            bytes
        };
        assert!(parse(&record(1, b"a", b"")).is_ok());
        for wrong in [
            record(0, b"a", b""),
            record(6, b"a", b""),
            record(1, b"../a", b""),
            record(1, b"/a", b""),
            record(1, b"a", b"x"),
            record(5, b"a", b""),
            record(5, b"a", b"../x"),
            record(5, b"a", b".."),
            vec![9, 0, b'/', b'.', b'.', b'/', b'.', b'.', b'/', b'a', b'b'],
        ] {
            assert!(parse(&wrong).is_err(), "{wrong:?}");
        }
    }
}
