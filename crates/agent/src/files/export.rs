//! Packs a file or a tree as a tar stream.
//!
//! The walk keeps one open directory per level and follows no symlink. The size in a header is
//! always kept: a file that shrinks is zero-filled, one that grows is truncated, so the archive
//! stays valid under concurrent changes. The thread ends when its receiver goes away.

use std::io::{self, Read, Write as _};
use std::os::fd::OwnedFd;

use hotcell_agent_api::bounds::TREE_DEPTH_MAX;
use hotcell_agent_api::v1::ExportRequest;
use rustix::fs::{Dir, FileType, OFlags, Stat};
use rustix::io::Errno;
use tar::{Builder, EntryType, Header};

use super::beneath::{Beneath, open_child};
use super::chunks::{ChunkWriter, Chunks, Exact};
use super::error::{Error, Step};
use super::glob::Glob;
use super::info::{is, read_link, size};
use super::path::RelPath;

/// Chunks buffered for a slow receiver.
pub(super) const AHEAD_CHUNKS_MAX: usize = 8;

/// The length of a name in an old tar header; longer names get an extra record.
const HEADER_NAME_BYTES: usize = 100;

/// An opened request.
#[derive(Debug)]
pub(super) struct Export {
    source: OwnedFd,
    stat: Stat,
    name: Vec<u8>,
    include: Vec<Glob>,
    exclude: Vec<Glob>,
}

impl Export {
    /// Parses a request and opens its path.
    pub(super) fn open(
        request: &ExportRequest,
        root: &[u8],
        beneath: &Beneath,
    ) -> Result<Self, Error> {
        let path = RelPath::parse(&request.path, root)?;
        let source = beneath.readable(&path)?;
        let stat = rustix::fs::fstat(&source).step("stat the file")?;
        if !is(&stat, FileType::RegularFile) && !is(&stat, FileType::Directory) {
            return Err(Error::WrongKind(
                "only files and directories can be exported",
            ));
        }
        Ok(Self {
            source,
            stat,
            name: path.components().next_back().unwrap_or_default().to_vec(),
            include: Glob::parse_all(&request.include)?,
            exclude: Glob::parse_all(&request.exclude)?,
        })
    }

    /// Sends the archive; an error is the last item.
    pub(super) fn pack(self, chunks: Chunks) {
        let mut out = ChunkWriter::new(chunks);
        let packed = self
            .pack_into(&mut out)
            .and_then(|()| out.flush().map_err(|_| Error::Cancelled));
        match packed {
            // Cancelled: the receiver has gone away.
            Ok(()) | Err(Error::Cancelled) => {}
            Err(error) => out.fail(error),
        }
    }

    fn pack_into(self, out: &mut ChunkWriter) -> Result<(), Error> {
        let mut packer = Packer {
            archive: Builder::new(out),
            include: self.include,
            exclude: self.exclude,
            levels: Vec::new(),
        };
        if is(&self.stat, FileType::RegularFile) {
            packer.put_file(&self.name, &self.stat, self.source)?;
        } else {
            let included = packer.include.is_empty();
            packer.enter(self.source, RelPath::default(), included)?;
            packer.walk()?;
        }
        packer.archive.finish().map_err(|_| Error::Cancelled)
    }
}

struct Packer<'a> {
    archive: Builder<&'a mut ChunkWriter>,
    include: Vec<Glob>,
    exclude: Vec<Glob>,
    levels: Vec<Level>,
}

struct Level {
    entries: Dir,
    path: RelPath,
    /// An ancestor directory matched an `include`, so everything below it does.
    included: bool,
}

impl Packer<'_> {
    fn walk(&mut self) -> Result<(), Error> {
        while let Some(level) = self.levels.last_mut() {
            if self.archive.get_ref().is_closed() {
                return Err(Error::Cancelled);
            }
            let Some(entry) = level.entries.next() else {
                self.levels.pop();
                continue;
            };
            let entry = entry.step("read a directory")?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                self.put(name)?;
            }
        }
        Ok(())
    }

    fn enter(&mut self, dir: OwnedFd, path: RelPath, included: bool) -> Result<(), Error> {
        if self.levels.len() >= TREE_DEPTH_MAX {
            return Err(Error::Exhausted("the tree is too deep"));
        }
        let entries = Dir::new(dir).step("read a directory")?;
        self.levels.push(Level {
            entries,
            path,
            included,
        });
        Ok(())
    }

    fn put(&mut self, name: &[u8]) -> Result<(), Error> {
        let Some(level) = self.levels.last() else {
            return Ok(());
        };
        let path = level.path.child(name);
        let matches = |globs: &[Glob]| globs.iter().any(|glob| glob.matches(path.as_bytes()));
        if matches(&self.exclude) {
            return Ok(());
        }
        let included = level.included || matches(&self.include);
        let dir = level.entries.fd().step("read a directory")?;
        let fd = match open_child(dir, name, OFlags::RDONLY) {
            Ok(fd) => fd,
            Err(Errno::LOOP) if included => {
                let target = read_link(dir, name).unwrap_or_default();
                return self.put_link(path.as_bytes(), &target);
            }
            // A symlink (not followed), a file that has vanished, or a socket.
            Err(Errno::LOOP | Errno::NOENT | Errno::NXIO) => return Ok(()),
            Err(errno) => return Err(errno).step("open a file of the tree"),
        };
        self.put_open(fd, path, included)
    }

    fn put_open(&mut self, fd: OwnedFd, path: RelPath, included: bool) -> Result<(), Error> {
        let stat = rustix::fs::fstat(&fd).step("stat a file")?;
        if is(&stat, FileType::Directory) {
            if included {
                self.put_directory(&path, &stat)?;
            }
            return self.enter(fd, path, included);
        }
        if included && is(&stat, FileType::RegularFile) {
            self.put_file(path.as_bytes(), &stat, fd)?;
        }
        Ok(())
    }

    fn put_directory(&mut self, path: &RelPath, stat: &Stat) -> Result<(), Error> {
        let name = [path.as_bytes(), b"/"].concat();
        self.append(
            header(EntryType::Directory, stat, 0),
            &name,
            b"",
            io::empty(),
        )
    }

    fn put_file(&mut self, name: &[u8], stat: &Stat, fd: OwnedFd) -> Result<(), Error> {
        let bytes = size(stat);
        let content = Exact::new(fd, bytes);
        self.append(header(EntryType::Regular, stat, bytes), name, b"", content)
    }

    fn put_link(&mut self, name: &[u8], target: &[u8]) -> Result<(), Error> {
        if target.is_empty() {
            return Ok(());
        }
        let mut header = plain_header(EntryType::Symlink, 0);
        header.set_mode(0o777);
        self.append(header, name, target, io::empty())
    }

    /// Appends one member. Writes the name as raw bytes, because the tar crate requires long names
    /// to start with valid UTF-8.
    fn append(
        &mut self,
        mut header: Header,
        name: &[u8],
        link: &[u8],
        content: impl Read,
    ) -> Result<(), Error> {
        let appended = self
            .put_long_name(EntryType::GNULongLink, link)
            .and_then(|()| self.put_long_name(EntryType::GNULongName, name))
            .and_then(|()| {
                fill(&mut header.as_old_mut().name, name);
                fill(&mut header.as_old_mut().linkname, link);
                header.set_cksum();
                self.archive.append(&header, content)
            });
        // Only the chunk writer can fail here, when the receiver has gone away; `Exact` cannot.
        appended.map_err(|_| Error::Cancelled)
    }

    fn put_long_name(&mut self, kind: EntryType, name: &[u8]) -> io::Result<()> {
        if name.len() <= HEADER_NAME_BYTES {
            return Ok(());
        }
        let mut header = plain_header(kind, name.len() as u64 + 1);
        fill(&mut header.as_old_mut().name, b"././@LongLink");
        header.set_cksum();
        self.archive.append(&header, name.chain(&b"\0"[..]))
    }
}

fn header(kind: EntryType, stat: &Stat, bytes: u64) -> Header {
    let mut header = plain_header(kind, bytes);
    header.set_mode(stat.st_mode & 0o777);
    header.set_uid(stat.st_uid.into());
    header.set_gid(stat.st_gid.into());
    header.set_mtime(u64::try_from(stat.st_mtime).unwrap_or(0));
    header
}

fn plain_header(kind: EntryType, bytes: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(bytes);
    header
}

fn fill(slot: &mut [u8], name: &[u8]) {
    let count = slot.len().min(name.len());
    slot[..count].copy_from_slice(&name[..count]);
}
