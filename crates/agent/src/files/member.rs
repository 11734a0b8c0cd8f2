//! Unpacks one member of an archive beneath the staging directory.
//!
//! openat2 resolves each member's directory beneath the staging directory, so a symlink in the
//! archive cannot lead out of it. Owners are ignored; modes are reduced to the permission bits.

use std::cell::Cell;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use hotcell_agent_api::bounds::{PATH_BYTES_MAX, TREE_DEPTH_MAX};
use rustix::fs::{FileType, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT};
use rustix::io::Errno;
use tar::Entry;

use super::beneath::{Beneath, Location};
use super::blocking::Stop;
use super::copy::{duplicate, write_all};
use super::error::{Error, Step};
use super::import::broken;
use super::info::is;
use super::path::{Name, RelPath};
use super::stage::{Direct, Stage, make_directories};
use super::temp::Temp;

/// Directories whose mode is set at the end, because it would forbid unpacking into them. Any
/// beyond this number keep the owner's permissions.
const DEFERRED_MAX: usize = 16 << 10;

/// Buffer size for content.
const BUFFER_BYTES: usize = 128 << 10;

/// Unpacks members and counts their bytes.
#[derive(Debug)]
pub(super) struct Unpacker {
    base: Beneath,
    /// The files already at the destination, which a hard link may refer to.
    before: Option<Beneath>,
    bytes_max: u64,
    bytes: u64,
    /// The directory of the previous member: neighbours usually share it.
    parent: Option<(RelPath, Arc<OwnedFd>)>,
    deferred: Vec<(RelPath, u32)>,
    buffer: Vec<u8>,
}

/// The result of unpacking.
#[derive(Debug)]
pub(super) struct Unpacked {
    /// Total content.
    pub bytes: u64,
    /// Modes that can only be set once the directories are in place.
    pub modes: Vec<(RelPath, u32)>,
}

impl Unpacker {
    /// Unpacks beneath `base`, at most `bytes_max` bytes of content.
    pub(super) fn new(base: Beneath, before: Option<Beneath>, bytes_max: u64) -> Self {
        let buffer = vec![0; BUFFER_BYTES];
        Self {
            base,
            before,
            bytes_max,
            bytes: 0,
            parent: None,
            deferred: Vec::new(),
            buffer,
        }
    }

    /// Unpacks one member. `quota` is lifted while content is read.
    pub(super) fn unpack<R: Read>(
        &mut self,
        entry: &mut Entry<'_, R>,
        quota: &Cell<u64>,
        stop: &Stop,
    ) -> Result<(), Error> {
        let raw = entry.path_bytes().into_owned();
        let path = parse_member(&raw)?;
        let mode = entry.header().mode().map_err(|error| broken(&error))? & 0o777;
        let kind = entry.header().entry_type();
        // Archives from before POSIX mark a directory only by its trailing slash.
        if kind.is_dir() || kind.is_file() && raw.ends_with(b"/") {
            self.directory(&path, mode)
        } else if kind.is_file() || kind.is_contiguous() || kind.is_gnu_sparse() {
            quota.set(u64::MAX);
            self.file(&path, mode, entry, stop)
        } else if kind.is_symlink() {
            self.symlink(&path, &link_name(entry)?)
        } else if kind.is_hard_link() {
            self.hard_link(&path, &link_name(entry)?, stop)
        } else if kind.is_pax_global_extensions() {
            Ok(())
        } else {
            Err(Error::Archive("a member is no file, directory or link"))
        }
    }

    pub(super) fn finish(self) -> Unpacked {
        Unpacked {
            bytes: self.bytes,
            modes: self.deferred,
        }
    }

    fn file<R: Read>(
        &mut self,
        path: &RelPath,
        mode: u32,
        entry: &mut Entry<'_, R>,
        stop: &Stop,
    ) -> Result<(), Error> {
        let mtime = entry.header().mtime().map_err(|error| broken(&error))?;
        let location = self.location(path)?;
        let (temp, fd) = Temp::file(&location.dir)?;
        self.content(entry, &fd, stop)?;
        rustix::fs::fchmod(&fd, Mode::from_raw_mode(mode)).step("set the mode")?;
        rustix::fs::futimens(&fd, &modified_at(mtime)).step("set the time")?;
        temp.publish(&location, true)
    }

    fn content<R: Read>(
        &mut self,
        entry: &mut Entry<'_, R>,
        fd: &OwnedFd,
        stop: &Stop,
    ) -> Result<(), Error> {
        let mut left = entry.size();
        if left > self.bytes_max - self.bytes {
            return Err(Error::Exhausted("the archive is too large"));
        }
        while left > 0 {
            stop.check()?;
            let count = entry
                .read(&mut self.buffer)
                .map_err(|error| broken(&error))?;
            if count == 0 {
                return Err(Error::Archive("it is malformed or cut off"));
            }
            write_all(fd, &self.buffer[..count])?;
            self.bytes += count as u64;
            left = left.saturating_sub(count as u64);
        }
        Ok(())
    }

    fn directory(&mut self, path: &RelPath, mode: u32) -> Result<(), Error> {
        if path.is_root() {
            return Ok(());
        }
        let location = self.location(path)?;
        let mut stage = Direct::default();
        match stage.make_directory(&location, mode | 0o700) {
            Err(error) if error.is_errno(Errno::EXIST) => {
                return self.base.directory(path).map(drop);
            }
            other => other?,
        }
        stage.keep();
        if mode & 0o700 != 0o700 && self.deferred.len() < DEFERRED_MAX {
            self.deferred.push((path.clone(), mode));
        }
        Ok(())
    }

    fn symlink(&mut self, path: &RelPath, target: &[u8]) -> Result<(), Error> {
        let location = self.location(path)?;
        let (dir, _) = path.split()?;
        // Resolving `..` textually is only correct if no directory on the path is a symlink.
        self.base
            .plain(&dir, OFlags::PATH | OFlags::DIRECTORY)
            .step("open the directory")?;
        if !stays_inside(&dir, target) {
            return Err(Error::Archive("a symlink leads out of it"));
        }
        Temp::symlink(&location.dir, target)?.publish(&location, true)
    }

    fn hard_link(&mut self, path: &RelPath, target: &[u8], stop: &Stop) -> Result<(), Error> {
        let source = self.link_source(&parse_member(target)?)?;
        let location = self.location(path)?;
        match Temp::link(&location.dir, &source) {
            Err(Error::OtherFilesystem) => duplicate(&source, &location.dir, stop)?.0,
            linked => linked?,
        }
        .publish(&location, true)
    }

    /// The target of a hard link: in the archive, else at the destination.
    fn link_source(&self, target: &RelPath) -> Result<Location, Error> {
        let is_file = |location: &Location| {
            let stat = location.stat()?;
            Ok::<_, Error>(stat.is_some_and(|stat| is(&stat, FileType::RegularFile)))
        };
        let mut found = self.base.location(target);
        if let Some(before) = &self.before
            && !matches!(&found, Ok(location) if is_file(location)?)
        {
            found = before.location(target);
        }
        let source = found?;
        if !is_file(&source)? {
            return Err(Error::Archive(
                "a hard link is to something that is no file in it",
            ));
        }
        Ok(source)
    }

    /// The member's location. Creates directories that the archive lacks.
    fn location(&mut self, path: &RelPath) -> Result<Location, Error> {
        let (dir, name) = path
            .split()
            .map_err(|_| Error::Archive("a member has no name"))?;
        if let Some((known, fd)) = &self.parent
            && *known == dir
        {
            return Ok(at(fd, name, path));
        }
        let mut stage = Direct::default();
        make_directories(&self.base, &dir, &mut stage)?;
        stage.keep();
        let fd = Arc::new(self.base.directory(&dir)?);
        let location = at(&fd, name, path);
        self.parent = Some((dir, fd));
        Ok(location)
    }
}

fn at(dir: &Arc<OwnedFd>, name: Name, path: &RelPath) -> Location {
    Location {
        dir: Arc::clone(dir),
        name,
        path: path.clone(),
    }
}

fn parse_member(raw: &[u8]) -> Result<RelPath, Error> {
    let path = RelPath::parse_inner(raw)
        .map_err(|_| Error::Archive("a name is absolute, too long or contains `..`"))?;
    if path.components().count() > TREE_DEPTH_MAX {
        return Err(Error::Archive("a member lies too deep"));
    }
    Ok(path)
}

fn link_name<R: Read>(entry: &Entry<'_, R>) -> Result<Vec<u8>, Error> {
    let name = entry.link_name_bytes().unwrap_or_default().into_owned();
    if name.is_empty() || name.len() >= PATH_BYTES_MAX || name.contains(&0) {
        return Err(Error::Archive("a link's target is empty or too long"));
    }
    Ok(name)
}

/// Whether a symlink in `dir` to `target` stays beneath the base, given that `dir` contains no
/// symlink. Only leading `..` are accepted: after a name, which may itself be a symlink, `..` could
/// lead anywhere.
fn stays_inside(dir: &RelPath, target: &[u8]) -> bool {
    let parts = || {
        let parts = target.split(|byte| *byte == b'/');
        parts.filter(|part| !matches!(part, [] | [b'.']))
    };
    let up = parts().take_while(|part| *part == b"..").count();
    !target.starts_with(b"/")
        && up <= dir.components().count()
        && !parts().skip(up).any(|part| part == b"..")
}

fn modified_at(seconds: u64) -> Timestamps {
    let omit = Timespec {
        tv_sec: 0,
        tv_nsec: UTIME_OMIT,
    };
    let tv_sec = i64::try_from(seconds).unwrap_or(i64::MAX);
    Timestamps {
        last_access: omit,
        last_modification: Timespec { tv_sec, tv_nsec: 0 },
    }
}
