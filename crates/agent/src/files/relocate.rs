//! Move, delete and mkdir: only directory entries change; content is copied only when a move
//! crosses filesystems.

use hotcell_agent_api::v1::{DeleteRequest, FileInfo, MkdirRequest, MoveRequest};
use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;

use super::beneath::{Beneath, Location};
use super::blocking::Stop;
use super::error::{Error, Step};
use super::info::{describe_open, is};
use super::path::RelPath;
use super::precondition::Expect;
use super::stage::{Stage, check_destination, locate_with_parents, make_directories};

/// A parsed move.
#[derive(Debug)]
pub(super) struct Move {
    from: RelPath,
    to: RelPath,
    overwrite: bool,
    create_parents: bool,
    expect: Expect,
}

impl Move {
    pub(super) fn parse(request: &MoveRequest, root: &[u8]) -> Result<Self, Error> {
        Ok(Self {
            from: RelPath::parse(&request.path, root)?,
            to: RelPath::parse(&request.dest_path, root)?,
            overwrite: request.overwrite,
            create_parents: request.create_parents,
            expect: Expect::parse(request.precondition.as_ref())?,
        })
    }

    /// Moves the file; does not follow a trailing symlink. The precondition applies to the source.
    pub(super) fn apply(
        &self,
        root: &Beneath,
        stage: &mut impl Stage,
        stop: &Stop,
    ) -> Result<FileInfo, Error> {
        let from = root.location(&self.from)?;
        let mut handle = check_source(&from, &self.expect)?;
        let to = locate_with_parents(root, &self.to, self.create_parents, stage)?;
        check_destination(&to, self.overwrite)?;
        if stage.relocate(&from, &to, self.overwrite, stop)? {
            handle = to.open(OFlags::PATH).step("find the file")?;
        }
        describe_open(self.to.as_bytes(), handle)
    }
}

/// A parsed delete.
#[derive(Debug)]
pub(super) struct Delete {
    path: RelPath,
    recursive: bool,
    expect: Expect,
}

impl Delete {
    pub(super) fn parse(request: &DeleteRequest, root: &[u8]) -> Result<Self, Error> {
        Ok(Self {
            path: RelPath::parse(&request.path, root)?,
            recursive: request.recursive,
            expect: Expect::parse(request.precondition.as_ref())?,
        })
    }

    /// Finds the file and checks the precondition.
    pub(super) fn locate(&self, root: &Beneath) -> Result<Location, Error> {
        let location = root.location(&self.path)?;
        check_source(&location, &self.expect)?;
        Ok(location)
    }

    /// Whether removing it means walking a tree.
    pub(super) fn is_long(&self, location: &Location) -> Result<bool, Error> {
        Ok(self.recursive && location.is_directory()?)
    }

    /// Removes the file; does not follow a symlink.
    pub(super) fn apply(
        &self,
        location: &Location,
        stage: &mut impl Stage,
        stop: &Stop,
    ) -> Result<u64, Error> {
        stage.discard(location, self.recursive, stop)
    }
}

/// A parsed mkdir.
#[derive(Debug)]
pub(super) struct Mkdir {
    path: RelPath,
    mode: u32,
    parents: bool,
}

impl Mkdir {
    pub(super) fn parse(request: &MkdirRequest, root: &[u8]) -> Result<Self, Error> {
        Ok(Self {
            path: RelPath::parse(&request.path, root)?,
            mode: parse_mode(request.mode)?.unwrap_or(super::stage::PARENT_MODE),
            parents: request.parents,
        })
    }

    /// Creates the directory. With `parents`, an existing one is left as it is.
    pub(super) fn apply(&self, root: &Beneath, stage: &mut impl Stage) -> Result<FileInfo, Error> {
        if self.parents {
            match root.directory(&self.path) {
                Ok(fd) => return describe_open(self.path.as_bytes(), fd),
                Err(error) if error.is_errno(Errno::NOENT) => {}
                Err(error) => return Err(error),
            }
            make_directories(root, &self.path.split()?.0, stage)?;
        }
        let location = root.location(&self.path)?;
        match stage.make_directory(&location, self.mode) {
            Err(error) if error.is_errno(Errno::EXIST) => self.accept_existing(&location)?,
            other => other?,
        }
        let fd = root.directory(&self.path)?;
        describe_open(self.path.as_bytes(), fd)
    }

    fn accept_existing(&self, location: &Location) -> Result<(), Error> {
        match location.stat()? {
            Some(stat) if self.parents && is(&stat, FileType::Directory) => Ok(()),
            Some(stat) => Err(Error::Exists {
                etag: super::etag::etag(&stat),
            }),
            None => Err(Errno::NOENT).step("make the directory"),
        }
    }
}

/// Accepts only permission bits: no set-id or sticky bits.
pub(super) fn parse_mode(mode: Option<u32>) -> Result<Option<u32>, Error> {
    match mode {
        Some(mode) if mode & !0o777 != 0 => {
            Err(Error::Invalid("the mode has more than permission bits"))
        }
        mode => Ok(mode),
    }
}

/// Opens the source after checking the precondition.
fn check_source(location: &Location, expect: &Expect) -> Result<std::os::fd::OwnedFd, Error> {
    let handle = match location.open(OFlags::PATH) {
        Err(Errno::NOENT) => {
            // If an ETag was given, a missing file is a conflict; otherwise it is not found.
            if matches!(expect, Expect::Etag(_)) {
                expect.check(None)?;
            }
            return Err(Errno::NOENT).step("find the file");
        }
        other => other.step("find the file")?,
    };
    let stat = rustix::fs::fstat(&handle).step("stat the file")?;
    expect.check(Some(&stat))?;
    Ok(handle)
}
