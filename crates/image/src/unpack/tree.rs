//! Writes the members of a layer beneath its directory.

use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, ResolveFlags, Timespec, Timestamps, Uid, XattrFlags,
};
use rustix::io::Errno;

use super::directory_times::DirectoryTimes;
use super::header::Member;
use super::name::{Mark, MemberPath, mark};
use super::{Meter, OPAQUE, Unpack, UnpackError};
use crate::bounds::{DECODED_PIECE_BYTES, PATH_BYTES_MAX, PROGRESS_STEP_BYTES};

/// Containers have ids up to this one; a file with a higher id belongs to nobody.
const ID_MAX: u32 = 65535;
const NOBODY: u32 = 65534;

/// Permissions and the sticky bit. Set-user-id has no effect in a container, and such files should
/// not be on the host's disk.
const MODE_MASK: u32 = 0o1777;

pub(super) struct Tree<'a> {
    root: OwnedFd,
    how: &'a Unpack<'a>,
    /// Only root can change owners; an ordinary user owns all files.
    is_root: bool,
    meter: &'a Meter<'a>,
    /// Written so far.
    bytes: u64,
    reported: u64,
    /// The directory of the previous member: neighbours usually share it.
    parent: Option<(Vec<u8>, OwnedFd)>,
    directory_times: DirectoryTimes,
    buffer: Vec<u8>,
}

impl<'a> Tree<'a> {
    pub(super) fn new(root: OwnedFd, how: &'a Unpack<'a>, meter: &'a Meter<'a>) -> Self {
        Self {
            root,
            how,
            is_root: rustix::process::geteuid().is_root(),
            meter,
            bytes: 0,
            reported: 0,
            parent: None,
            directory_times: DirectoryTimes::default(),
            buffer: vec![0; DECODED_PIECE_BYTES],
        }
    }

    /// Writes one member; `content` yields the content of a file.
    pub(super) fn place(
        &mut self,
        member: &Member,
        content: &mut impl Read,
    ) -> Result<(), UnpackError> {
        let path = MemberPath::parse(&member.path)?;
        let Some((parents, name)) = path.split() else {
            let root = self.root.try_clone().map_err(disk("open the layer"))?;
            return self.dress_directory(root.as_fd(), &path, member);
        };
        let parent = self.parent(parents)?;
        let outcome = match mark(name)? {
            Mark::Plain => self.plain(parent.as_fd(), &path, name, member, content),
            Mark::Deleted(name) => delete(parent.as_fd(), name),
            Mark::Opaque if parents.is_empty() => {
                Err(UnpackError::Malformed("it hides all that is below it"))
            }
            Mark::Opaque => make_opaque(parent.as_fd()),
            Mark::Foreign => Ok(()),
        };
        self.parent = Some((parents.join(&b'/'), parent));
        outcome
    }

    fn plain(
        &mut self,
        parent: BorrowedFd<'_>,
        path: &MemberPath<'_>,
        name: &[u8],
        member: &Member,
        content: &mut impl Read,
    ) -> Result<(), UnpackError> {
        // Archives from before POSIX mark a directory only by its trailing slash.
        let is_directory =
            member.kind.is_dir() || member.kind.is_file() && member.path.ends_with(b"/");
        if is_directory {
            let directory = enter_or_make(parent, name)?;
            return self.dress_directory(directory.as_fd(), path, member);
        }
        if member.kind.is_file() || member.kind.is_contiguous() {
            self.file(parent, name, member, content)
        } else if member.kind.is_symlink() {
            self.symlink(parent, name, member)
        } else if member.kind.is_hard_link() {
            self.hard_link(parent, name, member)
        } else if member.kind.is_fifo() {
            self.fifo(parent, name, member)
        } else if member.kind.is_gnu_sparse() {
            Err(UnpackError::Malformed("a sparse file is not supported"))
        } else {
            // Devices and unknown types are skipped.
            Ok(())
        }
    }

    fn file(
        &mut self,
        parent: BorrowedFd<'_>,
        name: &[u8],
        member: &Member,
        content: &mut impl Read,
    ) -> Result<(), UnpackError> {
        clear(parent, name)?;
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(parent, name, flags, Mode::RUSR | Mode::WUSR);
        let file = file.map_err(disk("make a file"))?;
        self.content(file.as_fd(), content)?;
        if self.is_root {
            let (uid, gid) = owner(member);
            rustix::fs::fchown(&file, Some(uid), Some(gid)).map_err(disk("give a file away"))?;
        }
        let mode = self.mode(member, 0o400);
        rustix::fs::fchmod(&file, mode).map_err(disk("set a mode"))?;
        rustix::fs::futimens(&file, &times(member.mtime_s)).map_err(disk("set a time"))
    }

    fn content(
        &mut self,
        file: BorrowedFd<'_>,
        content: &mut impl Read,
    ) -> Result<(), UnpackError> {
        loop {
            let len = content.read(&mut self.buffer)?;
            if len == 0 {
                return Ok(());
            }
            let mut rest = &self.buffer[..len];
            while !rest.is_empty() {
                let written = rustix::io::retry_on_intr(|| rustix::io::write(file, rest));
                rest = &rest[written.map_err(disk("write a file"))?..];
            }
            self.bytes += len as u64;
            if self.bytes - self.reported >= PROGRESS_STEP_BYTES {
                self.reported = self.bytes;
                self.how.go_on()?;
                (self.how.report)(self.bytes);
            }
        }
    }

    fn symlink(
        &self,
        parent: BorrowedFd<'_>,
        name: &[u8],
        member: &Member,
    ) -> Result<(), UnpackError> {
        let target = &member.link[..];
        if target.is_empty() || target.len() > PATH_BYTES_MAX || target.contains(&0) {
            return Err(UnpackError::Malformed("a link leads nowhere"));
        }
        clear(parent, name)?;
        // The target is only meaningful inside the container; here nothing follows it.
        rustix::fs::symlinkat(target, parent, name).map_err(disk("make a link"))?;
        self.dress(parent, name, member)
    }

    /// Links only to a file of the same layer. Layers are shared between images, so a layer must
    /// not depend on its lower ones.
    fn hard_link(
        &self,
        parent: BorrowedFd<'_>,
        name: &[u8],
        member: &Member,
    ) -> Result<(), UnpackError> {
        let absent = UnpackError::Malformed("a hard link leads to no file of its layer");
        let target = MemberPath::parse(&member.link)?;
        let Some((parents, target)) = target.split() else {
            return Err(absent);
        };
        let directory = match open_beneath(self.root.as_fd(), &parents.join(&b'/')) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Err(absent),
            other => other.map_err(disk("open a directory"))?,
        };
        // A link to itself changes nothing.
        if is_same(directory.as_fd(), target, parent, name) {
            return Ok(());
        }
        clear(parent, name)?;
        match rustix::fs::linkat(&directory, target, parent, name, AtFlags::empty()) {
            Err(Errno::NOENT | Errno::PERM) => Err(absent),
            other => other.map_err(disk("make a hard link")),
        }
    }

    fn fifo(
        &self,
        parent: BorrowedFd<'_>,
        name: &[u8],
        member: &Member,
    ) -> Result<(), UnpackError> {
        clear(parent, name)?;
        let mode = self.mode(member, 0);
        rustix::fs::mknodat(parent, name, FileType::Fifo, mode, 0).map_err(disk("make a pipe"))?;
        self.dress(parent, name, member)
    }

    /// Sets owner and time of a file without a descriptor.
    fn dress(
        &self,
        parent: BorrowedFd<'_>,
        name: &[u8],
        member: &Member,
    ) -> Result<(), UnpackError> {
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        if self.is_root {
            let (uid, gid) = owner(member);
            let given = rustix::fs::chownat(parent, name, Some(uid), Some(gid), flags);
            given.map_err(disk("give a link away"))?;
        }
        rustix::fs::utimensat(parent, name, &times(member.mtime_s), flags)
            .map_err(disk("set a time"))
    }

    fn dress_directory(
        &mut self,
        directory: BorrowedFd<'_>,
        path: &MemberPath<'_>,
        member: &Member,
    ) -> Result<(), UnpackError> {
        if !member.kind.is_dir() && !member.kind.is_file() {
            return Err(UnpackError::Malformed("its root is no directory"));
        }
        if self.is_root {
            let (uid, gid) = owner(member);
            let given = rustix::fs::fchown(directory, Some(uid), Some(gid));
            given.map_err(disk("give a directory away"))?;
        }
        let mode = self.mode(member, 0o700);
        rustix::fs::fchmod(directory, mode).map_err(disk("set a mode"))?;
        self.directory_times.insert(path.joined(), member.mtime_s)
    }

    /// Sets the deferred timestamps.
    pub(super) fn finish(self) -> Result<(), UnpackError> {
        for (path, mtime_s) in self.directory_times.iter() {
            match open_beneath_for(self.root.as_fd(), path, OFlags::RDONLY) {
                Ok(directory) => {
                    rustix::fs::futimens(&directory, &times(mtime_s))
                        .map_err(disk("set a time"))?;
                }
                // Replaced by a later member.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                Err(errno) => return Err(disk("open a directory")(errno)),
            }
        }
        (self.how.report)(self.bytes);
        Ok(())
    }

    /// An ordinary user owns all files and must be able to read them.
    fn mode(&self, member: &Member, own: u32) -> Mode {
        let own = if self.is_root { 0 } else { own };
        Mode::from_raw_mode(member.mode & MODE_MASK | own)
    }

    /// Opens the parent directory; creates missing ones.
    fn parent(&mut self, parents: &[&[u8]]) -> Result<OwnedFd, UnpackError> {
        let path = parents.join(&b'/');
        if let Some((last, fd)) = self.parent.take()
            && last == path
        {
            return Ok(fd);
        }
        match open_beneath(self.root.as_fd(), &path) {
            Ok(found) => return Ok(found),
            Err(Errno::NOENT | Errno::NOTDIR) => {}
            Err(Errno::LOOP) => {
                return Err(UnpackError::Malformed(
                    "something else stands for a directory",
                ));
            }
            Err(errno) => return Err(disk("open a directory")(errno)),
        }
        let mut at = self.root.try_clone().map_err(disk("open the layer"))?;
        for name in parents {
            at = self.enter_or_make_parent(at.as_fd(), name)?;
        }
        Ok(at)
    }

    /// A directory that the archive only implies. It replaces at most a whiteout, and counts like a
    /// member.
    fn enter_or_make_parent(
        &self,
        parent: BorrowedFd<'_>,
        name: &[u8],
    ) -> Result<OwnedFd, UnpackError> {
        match kind_of(parent, name)? {
            Some(FileType::Directory) => {}
            None | Some(FileType::CharacterDevice) => {
                self.meter.entry()?;
                make_directory(parent, name)?;
            }
            Some(_) => {
                return Err(UnpackError::Malformed(
                    "something else stands for a directory",
                ));
            }
        }
        open_beneath(parent, name).map_err(disk("open a directory"))
    }
}

fn open_beneath(root: BorrowedFd<'_>, path: &[u8]) -> Result<OwnedFd, Errno> {
    open_beneath_for(root, path, OFlags::PATH)
}

fn open_beneath_for(root: BorrowedFd<'_>, path: &[u8], how: OFlags) -> Result<OwnedFd, Errno> {
    let path = if path.is_empty() { b"." } else { path };
    let flags = how | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    rustix::io::retry_on_intr(|| rustix::fs::openat2(root, path, flags, Mode::empty(), resolve))
}

/// A directory that the archive names. It replaces anything else.
fn enter_or_make(parent: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, UnpackError> {
    if kind_of(parent, name)? != Some(FileType::Directory) {
        make_directory(parent, name)?;
    }
    open_beneath_for(parent, name, OFlags::RDONLY).map_err(disk("open a directory"))
}

fn make_directory(parent: BorrowedFd<'_>, name: &[u8]) -> Result<(), UnpackError> {
    let was_deleted = kind_of(parent, name)? == Some(FileType::CharacterDevice);
    clear(parent, name)?;
    let mode = Mode::from_raw_mode(0o755);
    rustix::fs::mkdirat(parent, name, mode).map_err(disk("make a directory"))?;
    if was_deleted {
        // Deleted and created again: lower content stays hidden.
        let fresh = open_beneath(parent, name).map_err(disk("open a directory"))?;
        make_opaque(fresh.as_fd())?;
    }
    Ok(())
}

/// Creates a whiteout, which hides a name of lower layers.
fn delete(parent: BorrowedFd<'_>, name: &[u8]) -> Result<(), UnpackError> {
    match kind_of(parent, name)? {
        // Whiteouts affect lower layers only; files of this layer stay.
        Some(FileType::Directory) => {
            let directory = open_beneath(parent, name).map_err(disk("open a directory"))?;
            make_opaque(directory.as_fd())
        }
        Some(_) => Ok(()),
        // Overlayfs treats a device 0/0 as a whiteout; every user may create one.
        None => rustix::fs::mknodat(parent, name, FileType::CharacterDevice, Mode::empty(), 0)
            .map_err(disk("mark a deletion")),
    }
}

fn make_opaque(directory: BorrowedFd<'_>) -> Result<(), UnpackError> {
    let directory = open_beneath_for(directory, b"", OFlags::RDONLY);
    let directory = directory.map_err(disk("open a directory"))?;
    rustix::fs::fsetxattr(&directory, OPAQUE, b"y", XattrFlags::empty())
        .map_err(disk("mark a directory as opaque"))
}

/// Removes what is in the way of a member. A non-empty directory is not removed.
fn clear(parent: BorrowedFd<'_>, name: &[u8]) -> Result<(), UnpackError> {
    let removed = match rustix::fs::unlinkat(parent, name, AtFlags::empty()) {
        Err(Errno::ISDIR) => rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR),
        other => other,
    };
    match removed {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(Errno::NOTEMPTY) => Err(UnpackError::Malformed(
            "something else stands for a directory",
        )),
        Err(errno) => Err(disk("replace a file")(errno)),
    }
}

fn kind_of(parent: BorrowedFd<'_>, name: &[u8]) -> Result<Option<FileType>, UnpackError> {
    match rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(FileType::from_raw_mode(stat.st_mode))),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(disk("look at a file")(errno)),
    }
}

fn is_same(a: BorrowedFd<'_>, a_name: &[u8], b: BorrowedFd<'_>, b_name: &[u8]) -> bool {
    let stat = |at, name| rustix::fs::statat(at, name, AtFlags::SYMLINK_NOFOLLOW);
    match (stat(a, a_name), stat(b, b_name)) {
        (Ok(a), Ok(b)) => (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino),
        _ => false,
    }
}

fn owner(member: &Member) -> (Uid, Gid) {
    let id = |id: u64| {
        u32::try_from(id)
            .ok()
            .filter(|id| *id <= ID_MAX)
            .unwrap_or(NOBODY)
    };
    (Uid::from_raw(id(member.uid)), Gid::from_raw(id(member.gid)))
}

fn times(mtime_s: i64) -> Timestamps {
    let at = Timespec {
        tv_sec: mtime_s,
        tv_nsec: 0,
    };
    Timestamps {
        last_access: at,
        last_modification: at,
    }
}

fn disk<E: Into<std::io::Error>>(step: &'static str) -> impl FnOnce(E) -> UnpackError {
    move |source| UnpackError::Disk {
        step,
        source: source.into(),
    }
}
