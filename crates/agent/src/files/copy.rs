//! Copies a file or a tree: created under a temporary name, then renamed into place.

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use hotcell_agent_api::bounds::TREE_DEPTH_MAX;
use hotcell_agent_api::v1::{CopyRequest, FileInfo};
use rustix::fs::{Dir, FileType, Mode, OFlags, SeekFrom, Stat, Timespec, Timestamps};
use rustix::io::Errno;

use super::beneath::{Beneath, Location, open_child};
use super::blocking::Stop;
use super::error::{Error, Step};
use super::info::{describe_open, is, read_link, size};
use super::path::RelPath;
use super::stage::{Stage, check_destination, locate_with_parents};
use super::temp::{Temp, make_directory};

/// Bytes per `copy_file_range` call, so that a stop is noticed soon.
const STEP_BYTES: usize = 8 << 20;

const NOT_COPIED: &str = "a FIFO, a socket or a device cannot be moved to another filesystem";

/// Used when the kernel cannot copy the range itself.
const BUFFER_BYTES: usize = 128 << 10;

/// A parsed request.
#[derive(Debug)]
pub(super) struct Copy {
    from: RelPath,
    to: RelPath,
    overwrite: bool,
    create_parents: bool,
    recursive: bool,
}

/// A finished copy that is not in place yet.
#[derive(Debug)]
pub(super) struct Copied {
    temp: Temp,
    location: Location,
    fd: OwnedFd,
}

impl Copy {
    pub(super) fn parse(request: &CopyRequest, root: &[u8]) -> Result<Self, Error> {
        Ok(Self {
            from: RelPath::parse(&request.path, root)?,
            to: RelPath::parse(&request.dest_path, root)?,
            overwrite: request.overwrite,
            create_parents: request.create_parents,
            recursive: request.recursive,
        })
    }

    /// Creates the copy under a temporary name. Follows a trailing symlink of the source; copies
    /// symlinks in a tree as symlinks; skips FIFOs, sockets and devices in a tree.
    pub(super) fn make(
        &self,
        root: &Beneath,
        stage: &mut impl Stage,
        stop: &Stop,
    ) -> Result<Copied, Error> {
        let source = root.readable(&self.from)?;
        let stat = rustix::fs::fstat(&source).step("stat the file")?;
        let location = locate_with_parents(root, &self.to, self.create_parents, stage)?;
        check_destination(&location, self.overwrite)?;
        let temp_dir = stage.temp_dir(&location);
        let (temp, fd) = if is(&stat, FileType::RegularFile) {
            let (temp, fd) = Temp::file(&temp_dir)?;
            copy_content(&source, &fd, &stat, stop)?;
            (temp, fd)
        } else if is(&stat, FileType::Directory) {
            self.check_directory(&location)?;
            let (temp, fd) = Temp::directory(&temp_dir)?;
            TreeCopy::new(&fd, Fidelity::Content, stop)?.run(source, &fd, &stat)?;
            (temp, fd)
        } else {
            return Err(Error::WrongKind("only files and directories can be copied"));
        };
        Ok(Copied { temp, location, fd })
    }

    /// Moves the copy into place.
    pub(super) fn finish(&self, copied: Copied, stage: &mut impl Stage) -> Result<FileInfo, Error> {
        check_destination(&copied.location, self.overwrite)?;
        stage.publish(copied.temp, &copied.location, self.overwrite)?;
        describe_open(self.to.as_bytes(), &copied.fd)
    }

    fn check_directory(&self, location: &Location) -> Result<(), Error> {
        if !self.recursive {
            return Err(Error::WrongKind(
                "the source is a directory and the copy is not recursive",
            ));
        }
        // A directory never replaces anything, whatever `overwrite` says.
        check_destination(location, false)
    }
}

/// Copies a location for a move across filesystems: under a temporary name in `dir`, with its
/// timestamps. Fails if a tree contains a FIFO, a socket or a device.
pub(super) fn duplicate(
    from: &Location,
    dir: &Arc<OwnedFd>,
    stop: &Stop,
) -> Result<(Temp, Stat), Error> {
    let stat = from.stat()?.ok_or(Errno::NOENT).step("find the file")?;
    if is(&stat, FileType::Symlink) {
        let target = read_link(&from.dir, from.name.as_bytes()).step("read the symlink")?;
        let temp = Temp::symlink(dir, &target)?;
        let made = temp.location().stat()?.ok_or(Errno::NOENT);
        return Ok((temp, made.step("stat the copy")?));
    }
    let source = from.open(OFlags::RDONLY).step("open the file")?;
    let stat = rustix::fs::fstat(&source).step("stat the file")?;
    let (temp, fd) = if is(&stat, FileType::RegularFile) {
        let (temp, fd) = Temp::file(dir)?;
        copy_content(&source, &fd, &stat, stop)?;
        set_times(&fd, &stat)?;
        (temp, fd)
    } else if is(&stat, FileType::Directory) {
        let (temp, fd) = Temp::directory(dir)?;
        TreeCopy::new(&fd, Fidelity::Everything, stop)?.run(source, &fd, &stat)?;
        (temp, fd)
    } else {
        return Err(Error::WrongKind(NOT_COPIED));
    };
    let made = rustix::fs::fstat(&fd).step("stat the copy")?;
    Ok((temp, made))
}

/// Copies content and mode of a regular file to an empty one, sharing blocks where possible. Holes
/// stay holes, and bytes beyond the size in `stat` are not copied, so that neither a sparse nor a
/// growing file makes this endless.
pub(super) fn copy_content(
    from: &OwnedFd,
    to: &OwnedFd,
    stat: &Stat,
    stop: &Stop,
) -> Result<(), Error> {
    set_mode(to, stat)?;
    if rustix::fs::ioctl_ficlone(to, from).is_err() {
        copy_data(from, to, size(stat), stop)?;
    }
    rustix::fs::seek(to, SeekFrom::End(0)).step("find the end of the copy")?;
    Ok(())
}

fn copy_data(from: &OwnedFd, to: &OwnedFd, end: u64, stop: &Stop) -> Result<(), Error> {
    let mut at = 0;
    while at < end {
        at = match rustix::fs::seek(from, SeekFrom::Data(at)) {
            Ok(data) => data,
            // The rest is a hole, or the file was truncated.
            Err(Errno::NXIO) => break,
            Err(_) => at,
        };
        let hole = rustix::fs::seek(from, SeekFrom::Hole(at)).unwrap_or(end);
        copy_range(from, to, at..hole.min(end), stop)?;
        at = hole.max(at + 1);
    }
    let now = rustix::fs::fstat(from).step("stat the file")?;
    rustix::fs::ftruncate(to, end.min(size(&now))).step("set the size of the copy")
}

/// Copies a range to the same offset, in the kernel if possible.
fn copy_range(from: &OwnedFd, to: &OwnedFd, range: Range<u64>, stop: &Stop) -> Result<(), Error> {
    let mut at = range.start;
    while at < range.end {
        stop.check()?;
        let want = usize::try_from(range.end - at).map_or(STEP_BYTES, |left| left.min(STEP_BYTES));
        let (mut source, mut target) = (at, at);
        let copied =
            rustix::fs::copy_file_range(from, Some(&mut source), to, Some(&mut target), want);
        match copied {
            Ok(count) if count > 0 => at += count as u64,
            Err(errno @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG | Errno::IO)) => {
                return Err(errno).step("copy the file");
            }
            Err(Errno::INTR) => {}
            // Not supported, not between these two files, or end of file.
            Ok(_) | Err(_) => return copy_range_by_hand(from, to, at..range.end, stop),
        }
    }
    Ok(())
}

fn copy_range_by_hand(
    from: &OwnedFd,
    to: &OwnedFd,
    range: Range<u64>,
    stop: &Stop,
) -> Result<(), Error> {
    let mut buffer = vec![0; BUFFER_BYTES];
    rustix::fs::seek(to, SeekFrom::Start(range.start)).step("write the copy")?;
    let mut at = range.start;
    while at < range.end {
        stop.check()?;
        let want =
            usize::try_from(range.end - at).map_or(BUFFER_BYTES, |left| left.min(BUFFER_BYTES));
        let count = match rustix::io::pread(from, &mut buffer[..want], at).step("read the file")? {
            0 => return Ok(()),
            count => count,
        };
        write_all(to, &buffer[..count])?;
        at += count as u64;
    }
    Ok(())
}

/// Copies the rest of one file to the end of another, at most `left` bytes.
pub(super) fn copy_bytes(from: &OwnedFd, to: &OwnedFd, mut left: u64) -> Result<(), Error> {
    let mut buffer = vec![0; BUFFER_BYTES];
    while left > 0 {
        let want = usize::try_from(left).map_or(BUFFER_BYTES, |left| left.min(BUFFER_BYTES));
        match rustix::io::read(from, &mut buffer[..want]).step("read the file")? {
            0 => return Ok(()),
            count => {
                write_all(to, &buffer[..count])?;
                left -= count as u64;
            }
        }
    }
    Ok(())
}

pub(super) fn write_all(fd: &OwnedFd, mut data: &[u8]) -> Result<(), Error> {
    while !data.is_empty() {
        match rustix::io::write(fd, data) {
            Ok(count) => data = &data[count..],
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno).step("write the file"),
        }
    }
    Ok(())
}

/// Copies the permission bits, without set-id bits.
pub(super) fn set_mode(fd: &OwnedFd, stat: &Stat) -> Result<(), Error> {
    let mode = Mode::from_raw_mode(stat.st_mode & 0o777);
    rustix::fs::fchmod(fd, mode).step("set the mode")
}

/// Copies the timestamps.
fn set_times(fd: &OwnedFd, stat: &Stat) -> Result<(), Error> {
    let times = Timestamps {
        last_access: Timespec {
            tv_sec: stat.st_atime,
            tv_nsec: stat.st_atime_nsec.cast_signed(),
        },
        last_modification: Timespec {
            tv_sec: stat.st_mtime,
            tv_nsec: stat.st_mtime_nsec.cast_signed(),
        },
    };
    rustix::fs::futimens(fd, &times).step("set the times")
}

/// How faithful a copy of a tree must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fidelity {
    /// Only files, directories and symlinks; others are skipped.
    Content,
    /// Nothing is skipped, and timestamps are kept.
    Everything,
}

/// A running copy of a tree: one pair of open directories per level.
struct TreeCopy<'a> {
    fidelity: Fidelity,
    levels: Vec<Level>,
    /// Device and inode of the copy itself, which must not be copied into itself.
    own: (u64, u64),
    stop: &'a Stop,
}

struct Level {
    from: Dir,
    to: OwnedFd,
    stat: Stat,
}

impl<'a> TreeCopy<'a> {
    fn new(to: &OwnedFd, fidelity: Fidelity, stop: &'a Stop) -> Result<Self, Error> {
        let own = rustix::fs::fstat(to).step("stat the copy")?;
        Ok(Self {
            fidelity,
            levels: Vec::new(),
            own: (own.st_dev, own.st_ino),
            stop,
        })
    }

    fn run(mut self, from: OwnedFd, to: &OwnedFd, stat: &Stat) -> Result<(), Error> {
        let to = rustix::io::fcntl_dupfd_cloexec(to, 0).step("copy a handle")?;
        self.enter(from, to, *stat)?;
        while let Some(level) = self.levels.last_mut() {
            self.stop.check()?;
            match level.from.next() {
                Some(entry) => {
                    let entry = entry.step("read a directory")?;
                    let name = entry.file_name().to_bytes();
                    if name != b"." && name != b".." {
                        self.copy_entry(name)?;
                    }
                }
                None => self.leave()?,
            }
        }
        Ok(())
    }

    fn enter(&mut self, from: OwnedFd, to: OwnedFd, stat: Stat) -> Result<(), Error> {
        if self.levels.len() >= TREE_DEPTH_MAX {
            return Err(Error::Exhausted("the tree is too deep"));
        }
        if (stat.st_dev, stat.st_ino) == self.own {
            return Err(Error::Invalid("a directory cannot be copied into itself"));
        }
        let from = Dir::new(from).step("read a directory")?;
        self.levels.push(Level { from, to, stat });
        Ok(())
    }

    /// Sets the directory's mode last, because it may forbid writing.
    fn leave(&mut self) -> Result<(), Error> {
        let Some(level) = self.levels.pop() else {
            return Ok(());
        };
        if self.fidelity == Fidelity::Everything {
            set_times(&level.to, &level.stat)?;
        }
        set_mode(&level.to, &level.stat)
    }

    fn copy_entry(&mut self, name: &[u8]) -> Result<(), Error> {
        let Some(level) = self.levels.last() else {
            return Ok(());
        };
        let dir = level.from.fd().step("read a directory")?;
        let from = match open_child(dir, name, OFlags::RDONLY) {
            Ok(from) => from,
            Err(Errno::LOOP) => return copy_link(level, name),
            Err(Errno::NOENT) => return Ok(()),
            // A socket, which cannot be opened.
            Err(Errno::NXIO) => return self.leave_out(),
            Err(errno) => return Err(errno).step("open a file of the tree"),
        };
        let stat = rustix::fs::fstat(&from).step("stat a file")?;
        if is(&stat, FileType::Directory) {
            let to = make_directory(&level.to, name).step("make a directory")?;
            return self.enter(from, to, stat);
        }
        if is(&stat, FileType::RegularFile) {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            let to = rustix::fs::openat(&level.to, name, flags, Mode::RUSR | Mode::WUSR)
                .step("make a file")?;
            copy_content(&from, &to, &stat, self.stop)?;
            if self.fidelity == Fidelity::Everything {
                set_times(&to, &stat)?;
            }
            return Ok(());
        }
        self.leave_out()
    }

    fn leave_out(&self) -> Result<(), Error> {
        match self.fidelity {
            Fidelity::Content => Ok(()),
            Fidelity::Everything => Err(Error::WrongKind(NOT_COPIED)),
        }
    }
}

fn copy_link(level: &Level, name: &[u8]) -> Result<(), Error> {
    let target = match level.from.fd().and_then(|dir| read_link(dir, name)) {
        Ok(target) => target,
        Err(Errno::NOENT | Errno::INVAL) => return Ok(()),
        Err(errno) => return Err(errno).step("read a symlink"),
    };
    rustix::fs::symlinkat(&target[..], &level.to, name).step("make a symlink")
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Seek, SeekFrom, Write};

    use super::*;

    /// Copies a file of 3 MiB whose size was reported as `told` bytes.
    fn copied(told: u64, by_hand: bool) -> Vec<u8> {
        let mut from = tempfile::tempfile().unwrap();
        from.write_all(&vec![b'x'; 3 << 20]).unwrap();
        let (from, to) = (OwnedFd::from(from), tempfile::tempfile().unwrap().into());
        let stop = Stop::default();
        if by_hand {
            copy_range_by_hand(&from, &to, 0..told, &stop).unwrap();
        } else {
            copy_data(&from, &to, told, &stop).unwrap();
        }
        let (mut to, mut content) = (File::from(to), Vec::new());
        to.seek(SeekFrom::Start(0)).unwrap();
        to.read_to_end(&mut content).unwrap();
        content
    }

    #[test]
    fn what_a_file_has_grown_since_is_not_copied() {
        for by_hand in [false, true] {
            assert_eq!(copied(1 << 20, by_hand), vec![b'x'; 1 << 20]);
        }
    }

    #[test]
    fn of_a_file_that_has_shrunk_what_is_left_is_copied() {
        for by_hand in [false, true] {
            assert_eq!(copied(9 << 20, by_hand).len(), 3 << 20);
        }
    }
}
