//! Copying a file or a tree: made under a temporary name, then put in place.

use std::os::fd::OwnedFd;

use hotcell_agent_api::bounds::TREE_DEPTH_MAX;
use hotcell_agent_api::v1::{CopyRequest, FileInfo};
use rustix::fs::{Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::beneath::{Beneath, Place, open_child};
use super::blocking::Stop;
use super::error::{Error, Step};
use super::info::{describe_open, is, read_link};
use super::path::RelPath;
use super::stage::{Stage, check_destination, place_with_parents};
use super::temp::{Temp, make_directory};

/// What the kernel is asked to copy at a time, so that a stop is soon seen.
const STEP_BYTES: usize = 8 << 20;

/// The buffer of the last resort.
const BUFFER_BYTES: usize = 128 << 10;

/// A parsed request.
#[derive(Debug)]
pub struct Copy {
    from: RelPath,
    to: RelPath,
    overwrite: bool,
    create_parents: bool,
    recursive: bool,
}

/// A copy that is made but not yet in place.
#[derive(Debug)]
pub struct Copied {
    temp: Temp,
    place: Place,
    fd: OwnedFd,
}

impl Copy {
    /// Parses a request.
    pub fn parse(request: &CopyRequest, root: &[u8]) -> Result<Self, Error> {
        Ok(Self {
            from: RelPath::parse(&request.path, root)?,
            to: RelPath::parse(&request.dest_path, root)?,
            overwrite: request.overwrite,
            create_parents: request.create_parents,
            recursive: request.recursive,
        })
    }

    /// Makes the copy under a temporary name. A final symlink of the source is
    /// followed; symlinks in a tree are copied as links. FIFOs, sockets and devices
    /// in a tree are left out.
    pub fn make(
        &self,
        root: &Beneath,
        stage: &mut impl Stage,
        stop: &Stop,
    ) -> Result<Copied, Error> {
        let source = root.readable(&self.from)?;
        let stat = rustix::fs::fstat(&source).step("stat the file")?;
        let place = place_with_parents(root, &self.to, self.create_parents, stage)?;
        check_destination(&place, self.overwrite)?;
        let workshop = stage.workshop(&place);
        let (temp, fd) = if is(&stat, FileType::RegularFile) {
            let (temp, fd) = Temp::file(&workshop)?;
            copy_content(&source, &fd, &stat, stop)?;
            (temp, fd)
        } else if is(&stat, FileType::Directory) {
            self.check_directory(&place)?;
            let (temp, fd) = Temp::directory(&workshop)?;
            TreeCopy::new(&fd, stop)?.run(source, &fd, &stat)?;
            (temp, fd)
        } else {
            return Err(Error::WrongKind("only files and directories can be copied"));
        };
        Ok(Copied { temp, place, fd })
    }

    /// Puts the copy in place.
    pub fn finish(&self, copied: Copied, stage: &mut impl Stage) -> Result<FileInfo, Error> {
        check_destination(&copied.place, self.overwrite)?;
        stage.publish(copied.temp, &copied.place, self.overwrite)?;
        describe_open(self.to.as_bytes(), &copied.fd)
    }

    fn check_directory(&self, place: &Place) -> Result<(), Error> {
        if !self.recursive {
            return Err(Error::WrongKind(
                "the source is a directory and the copy is not recursive",
            ));
        }
        // A directory takes nobody's place, whatever `overwrite` says.
        check_destination(place, false)
    }
}

/// Copies the bytes and the mode of a regular file, sharing blocks where it can.
pub fn copy_content(from: &OwnedFd, to: &OwnedFd, stat: &Stat, stop: &Stop) -> Result<(), Error> {
    set_mode(to, stat)?;
    if rustix::fs::ioctl_ficlone(to, from).is_ok() {
        return Ok(());
    }
    loop {
        stop.check()?;
        match rustix::fs::copy_file_range(from, None, to, None, STEP_BYTES) {
            Ok(0) => break,
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG | Errno::IO)) => {
                return Err(errno).step("copy the file");
            }
            Err(_) => break,
        }
    }
    // Where the kernel cannot copy it has moved neither offset; where it could,
    // this reads the end of the file at once.
    copy_bytes(from, to, stop)
}

/// Copies what is left of one file to the end of another.
pub fn copy_bytes(from: &OwnedFd, to: &OwnedFd, stop: &Stop) -> Result<(), Error> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        stop.check()?;
        match rustix::io::read(from, &mut buffer[..]).step("read the file")? {
            0 => return Ok(()),
            count => write_all(to, &buffer[..count])?,
        }
    }
}

/// Writes all of it.
pub fn write_all(fd: &OwnedFd, mut data: &[u8]) -> Result<(), Error> {
    while !data.is_empty() {
        match rustix::io::write(fd, data) {
            Ok(count) => data = &data[count..],
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno).step("write the file"),
        }
    }
    Ok(())
}

/// Gives a file the permissions of another, without its set-id bits.
pub fn set_mode(fd: &OwnedFd, stat: &Stat) -> Result<(), Error> {
    let mode = Mode::from_raw_mode(stat.st_mode & 0o777);
    rustix::fs::fchmod(fd, mode).step("set the mode")
}

/// A copy of a tree under way: one open directory pair per level.
struct TreeCopy<'a> {
    levels: Vec<Level>,
    /// The copy's own top, which must not turn up in the source.
    own: (u64, u64),
    stop: &'a Stop,
}

struct Level {
    from: Dir,
    to: OwnedFd,
    stat: Stat,
}

impl<'a> TreeCopy<'a> {
    fn new(to: &OwnedFd, stop: &'a Stop) -> Result<Self, Error> {
        let own = rustix::fs::fstat(to).step("stat the copy")?;
        Ok(Self {
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

    /// Sets the directory's mode last: it may forbid writing.
    fn leave(&mut self) -> Result<(), Error> {
        match self.levels.pop() {
            Some(level) => set_mode(&level.to, &level.stat),
            None => Ok(()),
        }
    }

    fn copy_entry(&mut self, name: &[u8]) -> Result<(), Error> {
        let Some(level) = self.levels.last() else {
            return Ok(());
        };
        let dir = level.from.fd().step("read a directory")?;
        let from = match open_child(dir, name, OFlags::RDONLY) {
            Ok(from) => from,
            Err(Errno::LOOP) => return copy_link(level, name),
            // Vanished, or a socket, which cannot be opened.
            Err(Errno::NOENT | Errno::NXIO) => return Ok(()),
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
        }
        Ok(())
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
