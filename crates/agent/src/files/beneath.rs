//! Resolves paths: openat2 beneath a directory that we hold open, or `walk` on kernels without
//! openat2.
//!
//! Nothing else in `files` resolves a path of more than one component. Changes are made through a
//! `Location` (a directory descriptor and one name in it), so that nothing is resolved again
//! between a check and the change.

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

/// How often resolution is retried after a concurrent rename.
const RESOLVE_TRIES_MAX: u32 = 64;

/// How many trailing symlinks a write follows; the kernel's own limit.
const SYMLINK_HOPS_MAX: u32 = 40;

/// A directory that no resolved path can leave.
#[derive(Clone, Debug)]
pub(super) struct Beneath {
    fd: Arc<OwnedFd>,
}

/// A name in a directory, whether or not it exists.
#[derive(Clone, Debug)]
pub(super) struct Location {
    /// An `O_PATH` descriptor of the directory.
    pub dir: Arc<OwnedFd>,
    pub name: Name,
    /// The path that the caller sees.
    pub path: RelPath,
}

impl Beneath {
    /// Opens the directory at the trusted path `path`.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
        Ok(Self { fd: Arc::new(fd) })
    }

    pub(super) fn new(fd: OwnedFd) -> Self {
        Self { fd: Arc::new(fd) }
    }

    /// Restricts resolution to a subdirectory.
    pub(super) fn narrowed(&self, path: &RelPath) -> Result<Self, Error> {
        Ok(Self {
            fd: Arc::new(self.directory(path)?),
        })
    }

    pub(super) fn fd(&self) -> &Arc<OwnedFd> {
        &self.fd
    }

    /// Opens for reading. Follows symlinks that stay beneath the root. Never blocks: a FIFO opens
    /// at once, and the caller checks the type.
    pub(super) fn readable(&self, path: &RelPath) -> Result<OwnedFd, Error> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        self.resolve(path, flags, ResolveFlags::empty())
            .step("open the file")
    }

    /// An `O_PATH` descriptor of a directory.
    pub(super) fn directory(&self, path: &RelPath) -> Result<OwnedFd, Error> {
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        self.resolve(path, flags, ResolveFlags::empty())
            .step("open the directory")
    }

    /// A directory opened for listing.
    pub(super) fn listable(&self, path: &RelPath) -> Result<OwnedFd, Error> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        self.resolve(path, flags, ResolveFlags::empty())
            .step("open the directory")
    }

    /// An `O_PATH` descriptor: good for stat, not for reading.
    pub(super) fn handle(&self, path: &RelPath, follow: bool) -> Result<OwnedFd, Error> {
        let flags = if follow {
            OFlags::PATH
        } else {
            OFlags::PATH | OFlags::NOFOLLOW
        };
        self.resolve(path, flags, ResolveFlags::empty())
            .step("find the file")
    }

    /// Opens a path of which no component may be a symlink.
    pub(super) fn plain(&self, path: &RelPath, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        self.resolve(path, flags | OFlags::NOFOLLOW, ResolveFlags::NO_SYMLINKS)
    }

    /// The location of a path; a trailing symlink is not followed.
    pub(super) fn location(&self, path: &RelPath) -> Result<Location, Error> {
        let (dir, name) = path.split()?;
        let dir = Arc::new(self.directory(&dir)?);
        Ok(Location {
            dir,
            name,
            path: path.clone(),
        })
    }

    /// The location of a path; trailing symlinks are followed.
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
        // EAGAIN: a rename raced with a `..`, and the kernel could not be sure.
        for _ in 1..RESOLVE_TRIES_MAX {
            if !matches!(opened, Err(Errno::AGAIN | Errno::INTR)) {
                break;
            }
            opened = open();
        }
        opened
    }
}

/// Uses openat2 if the kernel has it, else `walk`.
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
    /// The file's metadata, if it exists. Does not follow a symlink.
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

    pub(super) fn is_directory(&self) -> Result<bool, Error> {
        Ok(self
            .stat()?
            .is_some_and(|stat| is(&stat, FileType::Directory)))
    }

    /// Opens the file without following a symlink.
    pub(super) fn open(&self, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        open_child(&self.dir, self.name.as_bytes(), flags)
    }
}

/// Opens a name in a directory without following a symlink.
pub(super) fn open_child(
    dir: impl AsFd,
    name: &[u8],
    flags: OFlags,
) -> rustix::io::Result<OwnedFd> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    rustix::fs::openat(dir, name, flags, Mode::empty())
}
