//! The only way from a path to a file: openat2 beneath a directory we hold, or `walk`
//! where the kernel has no openat2.
//!
//! Nothing else in `files` turns a path of more than one component into a file.
//! Changes are made on a `Location`, a directory handle and one name in it, so that
//! nothing is resolved a second time between a check and the change.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use super::error::{Error, Step};
use super::info::{is, read_link};
use super::path::{Name, RelPath};
use super::walk;

/// How often a resolution is tried again when a rename got in between.
const RESOLVE_TRIES_MAX: u32 = 64;

/// How many final symlinks a write goes through, as the kernel has it.
const SYMLINK_HOPS_MAX: u32 = 40;

/// A directory that paths do not leave.
#[derive(Clone, Debug)]
pub(super) struct Beneath {
    fd: Arc<OwnedFd>,
}

/// A name in a directory: where something is, or may come to be.
#[derive(Clone, Debug)]
pub(super) struct Location {
    /// An `O_PATH` handle of the directory.
    pub dir: Arc<OwnedFd>,
    /// The name in it.
    pub name: Name,
    /// How the caller would say it.
    pub path: RelPath,
}

impl Beneath {
    /// Holds the directory at `path`, which is trusted.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
        Ok(Self { fd: Arc::new(fd) })
    }

    /// Holds a directory that was opened already.
    pub(super) fn new(fd: OwnedFd) -> Self {
        Self { fd: Arc::new(fd) }
    }

    /// The same rules, starting from a directory beneath this one.
    pub(super) fn narrowed(&self, path: &RelPath) -> Result<Self, Error> {
        Ok(Self {
            fd: Arc::new(self.directory(path)?),
        })
    }

    /// The handle of the directory itself.
    pub(super) fn fd(&self) -> &Arc<OwnedFd> {
        &self.fd
    }

    /// Opens for reading, following symlinks as long as they stay beneath. Never
    /// blocks: a FIFO opens at once, and the caller looks at the type.
    pub(super) fn readable(&self, path: &RelPath) -> Result<OwnedFd, Error> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        self.resolve(path, flags, ResolveFlags::empty())
            .step("open the file")
    }

    /// A directory's handle, good for calls relative to it.
    pub(super) fn directory(&self, path: &RelPath) -> Result<OwnedFd, Error> {
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        self.resolve(path, flags, ResolveFlags::empty())
            .step("open the directory")
    }

    /// A directory whose entries can be read.
    pub(super) fn listable(&self, path: &RelPath) -> Result<OwnedFd, Error> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        self.resolve(path, flags, ResolveFlags::empty())
            .step("open the directory")
    }

    /// A handle that can be described but not read.
    pub(super) fn handle(&self, path: &RelPath, follow: bool) -> Result<OwnedFd, Error> {
        let flags = if follow {
            OFlags::PATH
        } else {
            OFlags::PATH | OFlags::NOFOLLOW
        };
        self.resolve(path, flags, ResolveFlags::empty())
            .step("find the file")
    }

    /// Like `handle` or `listable`, but no component may be a symlink.
    pub(super) fn plain(&self, path: &RelPath, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        self.resolve(path, flags | OFlags::NOFOLLOW, ResolveFlags::NO_SYMLINKS)
    }

    /// The location a path names; its last component is not followed.
    pub(super) fn location(&self, path: &RelPath) -> Result<Location, Error> {
        let (dir, name) = path.split()?;
        let dir = Arc::new(self.directory(&dir)?);
        Ok(Location {
            dir,
            name,
            path: path.clone(),
        })
    }

    /// The location a path names, once final symlinks have been followed.
    pub(super) fn locate_through(&self, path: &RelPath) -> Result<Location, Error> {
        let mut location = self.location(path)?;
        for _ in 0..SYMLINK_HOPS_MAX {
            let target = match read_link(&location.dir, location.name.as_bytes()) {
                Ok(target) => target,
                Err(Errno::INVAL | Errno::NOENT) => {
                    location.path = path.clone();
                    return Ok(location);
                }
                Err(errno) => return Err(errno).step("read the symlink"),
            };
            let (dir, _) = location.path.split()?;
            location = self.location(&dir.through(&target)?)?;
        }
        Err(Errno::LOOP).step("follow the symlink")
    }

    fn resolve(
        &self,
        path: &RelPath,
        flags: OFlags,
        extra: ResolveFlags,
    ) -> rustix::io::Result<OwnedFd> {
        let flags = flags | OFlags::CLOEXEC;
        let how = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | extra;
        let open = || open_beneath(&self.fd, path, flags, how);
        let mut opened = open();
        // EAGAIN: a rename raced with a `..` and the kernel could not be sure.
        for _ in 1..RESOLVE_TRIES_MAX {
            if !matches!(opened, Err(Errno::AGAIN | Errno::INTR)) {
                break;
            }
            opened = open();
        }
        opened
    }
}

/// By openat2 if the kernel has it, else step by step.
fn open_beneath(
    root: &OwnedFd,
    path: &RelPath,
    flags: OFlags,
    how: ResolveFlags,
) -> rustix::io::Result<OwnedFd> {
    static IS_MISSING: AtomicBool = AtomicBool::new(false);
    if !IS_MISSING.load(Ordering::Relaxed) {
        match rustix::fs::openat2(root, path.to_open(), flags, Mode::empty(), how) {
            Err(Errno::NOSYS) => IS_MISSING.store(true, Ordering::Relaxed),
            opened => return opened,
        }
    }
    walk::open(root, path.as_bytes(), flags, how)
}

impl Location {
    /// What is there, if anything; a symlink is described itself.
    pub(super) fn stat(&self) -> Result<Option<Stat>, Error> {
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        match rustix::fs::statat(&self.dir, self.name.as_bytes(), flags) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno).step("stat the file"),
        }
    }

    /// Another name in the same directory.
    pub(super) fn sibling(&self, name: Name) -> Self {
        let dir = self.path.split().map(|(dir, _)| dir).unwrap_or_default();
        Self {
            dir: Arc::clone(&self.dir),
            path: dir.child(name.as_bytes()),
            name,
        }
    }

    /// Whether a directory is there.
    pub(super) fn is_directory(&self) -> Result<bool, Error> {
        Ok(self
            .stat()?
            .is_some_and(|stat| is(&stat, FileType::Directory)))
    }

    /// Opens what is there, without following it.
    pub(super) fn open(&self, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        open_child(&self.dir, self.name.as_bytes(), flags)
    }
}

/// Opens one name in a directory, without following it.
pub(super) fn open_child(
    dir: impl AsFd,
    name: &[u8],
    flags: OFlags,
) -> rustix::io::Result<OwnedFd> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    rustix::fs::openat(dir, name, flags, Mode::empty())
}
