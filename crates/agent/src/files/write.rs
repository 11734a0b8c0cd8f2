//! Writes a file atomically.
//!
//! The content is received first: in memory while it is small, else in a temporary file beside the
//! target. Only then is the change lock taken, the precondition checked and the file moved into
//! place, so that a slow sender blocks nobody.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use bytes::Bytes;
use hotcell_agent_api::v1::{FileInfo, WriteHeader};
use rustix::fs::{FileType, Mode, OFlags, SeekFrom, Stat};
use rustix::io::Errno;

use super::beneath::{Beneath, Location};
use super::blocking::{self, Stop};
use super::copy::{copy_bytes, copy_content, write_all};
use super::error::{Error, Step};
use super::info::{describe_open, is, size};
use super::path::RelPath;
use super::precondition::Expect;
use super::relocate::parse_mode;
use super::stage::{Stage, make_directories};
use super::temp::Temp;

/// Content kept in memory before it is written to the temporary file.
const HELD_BYTES_MAX: usize = 256 << 10;

/// Chunks kept in memory, whatever their size.
const HELD_PIECES_MAX: usize = 1024;

const FILE_MODE: u32 = 0o644;

/// A parsed header.
#[derive(Debug)]
pub(super) struct Write {
    path: RelPath,
    expect: Expect,
    mode: Option<u32>,
    create_parents: bool,
    append: bool,
}

/// The content received so far.
#[derive(Debug)]
pub(super) struct Received {
    held: Vec<Bytes>,
    held_bytes: usize,
    spilled: Option<(Temp, Arc<OwnedFd>)>,
}

impl Write {
    pub(super) fn parse(header: &WriteHeader, root: &[u8]) -> Result<Self, Error> {
        Ok(Self {
            path: RelPath::parse(&header.path, root)?,
            expect: Expect::parse(header.precondition.as_ref())?,
            mode: parse_mode(header.mode)?,
            create_parents: header.create_parents,
            append: header.append,
        })
    }

    /// The location of the file; a trailing symlink is followed.
    pub(super) fn locate(&self, root: &Beneath, stage: &mut impl Stage) -> Result<Location, Error> {
        if self.create_parents {
            make_directories(root, &self.path.split()?.0, stage)?;
        }
        let location = root.locate_through(&self.path)?;
        self.check(&location)?;
        Ok(location)
    }

    /// Checks the precondition and moves the content into place. Does not wait for other callers.
    pub(super) fn finish(
        &self,
        location: &Location,
        received: Received,
        stage: &mut impl Stage,
        whole: bool,
    ) -> Result<FileInfo, Error> {
        let now = self.check(location)?;
        let fd = match now {
            Some(now) if self.append && !whole => append_to(location, &now, &received)?,
            now => self.replace(location, now.as_ref(), received, stage)?,
        };
        describe_open(self.path.as_bytes(), fd)
    }

    /// Whether `finish` may take long.
    pub(super) fn is_long(&self, received: &Received) -> bool {
        self.append && received.spilled.is_some()
    }

    fn check(&self, location: &Location) -> Result<Option<Stat>, Error> {
        let now = location.stat()?;
        self.expect.check(now.as_ref())?;
        match now {
            Some(stat) if !is(&stat, FileType::RegularFile) => {
                Err(Error::WrongKind("only regular files can be written"))
            }
            now => Ok(now),
        }
    }

    /// Creates the new file, including the old content for an append that must be undoable, and
    /// replaces the old one.
    fn replace(
        &self,
        location: &Location,
        now: Option<&Stat>,
        mut received: Received,
        stage: &mut impl Stage,
    ) -> Result<Arc<OwnedFd>, Error> {
        let (temp, fd) = match received.spilled.take() {
            Some(spilled) => spilled,
            None => new_file(&stage.temp_dir(location))?,
        };
        if let (true, Some(now)) = (self.append, now) {
            let old = location.open(OFlags::RDONLY).step("open the file")?;
            copy_content(&old, &fd, now, &Stop::default())?;
        }
        received
            .held
            .iter()
            .try_for_each(|chunk| write_all(&fd, chunk))?;
        let old_mode = now.map(|now| now.st_mode & 0o777);
        let mode = self.mode.or(old_mode).unwrap_or(FILE_MODE);
        rustix::fs::fchmod(&fd, Mode::from_raw_mode(mode)).step("set the mode")?;
        stage.publish(temp, location, self.expect != Expect::Absent)?;
        Ok(fd)
    }
}

impl Received {
    pub(super) fn new() -> Self {
        Self {
            held: Vec::new(),
            held_bytes: 0,
            spilled: None,
        }
    }

    /// Adds a chunk; content that is too large goes to a temporary file in `dir`.
    pub(super) async fn take(&mut self, piece: Bytes, dir: &Arc<OwnedFd>) -> Result<(), Error> {
        self.held_bytes += piece.len();
        self.held.push(piece);
        if self.held_bytes > HELD_BYTES_MAX || self.held.len() > HELD_PIECES_MAX {
            self.spill(dir).await?;
        }
        Ok(())
    }

    /// For content that is already complete.
    pub(super) fn complete(content: Bytes) -> Self {
        Self {
            held_bytes: content.len(),
            held: vec![content],
            spilled: None,
        }
    }

    /// Writes the rest to the temporary file, if there is one.
    pub(super) async fn settle(&mut self, dir: &Arc<OwnedFd>) -> Result<(), Error> {
        if self.spilled.is_some() {
            self.spill(dir).await
        } else {
            Ok(())
        }
    }

    async fn spill(&mut self, dir: &Arc<OwnedFd>) -> Result<(), Error> {
        let held = std::mem::take(&mut self.held);
        self.held_bytes = 0;
        if self.spilled.is_none() {
            self.spilled = Some(new_file(dir)?);
        }
        let Some((_, fd)) = &self.spilled else {
            return Ok(());
        };
        let fd = Arc::clone(fd);
        blocking::run(move |_| held.iter().try_for_each(|piece| write_all(&fd, piece))).await
    }
}

fn new_file(dir: &Arc<OwnedFd>) -> Result<(Temp, Arc<OwnedFd>), Error> {
    let (temp, fd) = Temp::file(dir)?;
    Ok((temp, Arc::new(fd)))
}

/// Appends in place. If the disk fills up, the file is truncated to its old size.
fn append_to(location: &Location, now: &Stat, received: &Received) -> Result<Arc<OwnedFd>, Error> {
    let fd = location
        .open(OFlags::WRONLY | OFlags::APPEND)
        .step("open the file")?;
    let opened = rustix::fs::fstat(&fd).step("stat the file")?;
    if opened.st_ino != now.st_ino || !is(&opened, FileType::RegularFile) {
        return Err(Errno::AGAIN).step("append to a file that was replaced meanwhile");
    }
    if let Err(error) = append_received(&fd, received) {
        let _ = rustix::fs::ftruncate(&fd, size(&opened));
        return Err(error);
    }
    Ok(Arc::new(fd))
}

fn append_received(fd: &OwnedFd, received: &Received) -> Result<(), Error> {
    if let Some((_, spilled)) = &received.spilled {
        // Only the current size: the container may find the file and append to it.
        let end = rustix::fs::seek(spilled, SeekFrom::End(0)).step("read the temporary file")?;
        rustix::fs::seek(spilled, SeekFrom::Start(0)).step("read the temporary file")?;
        copy_bytes(spilled, fd, end)?;
    }
    received
        .held
        .iter()
        .try_for_each(|piece| write_all(fd, piece))
}
