//! Pages of a directory or a tree, in path order, with bounded memory.
//!
//! Each level keeps only the next few names of its directory, smallest first, and reads the
//! directory again when they are used up. It keeps no descriptor: each entry is opened again
//! beneath the listed directory, and vanished entries are skipped.

use std::collections::BinaryHeap;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use hotcell_agent_api::bounds::{LIST_BYTES_MAX, LIST_ENTRIES_MAX, TREE_DEPTH_MAX};
use hotcell_agent_api::v1::{FileInfo, FileType, ListReply, ListRequest};
use rustix::fs::{Dir, OFlags};
use rustix::io::Errno;

use super::beneath::Beneath;
use super::blocking::Stop;
use super::error::{Error, Step};
use super::glob::Glob;
use super::info::describe_open;
use super::path::RelPath;

/// Names kept of a directory near the top: enough for one page per scan.
const WIDE_NAMES_MAX: usize = LIST_ENTRIES_MAX as usize + 1;

/// The levels with `WIDE_NAMES_MAX`; deeper ones keep fewer names.
const WIDE_LEVELS_MAX: usize = 8;

/// Names kept of a directory further down.
const NARROW_NAMES_MAX: usize = 64;

/// The wire size of an entry without its path and target.
const ENTRY_BYTES: usize = 128;

/// How long a page may take once it has an entry. Then it ends early, with a cursor that differs
/// from the one it began with.
const PAGE_TIME_MAX: Duration = Duration::from_secs(2);

/// A parsed request.
#[derive(Debug)]
pub(super) struct Listing {
    path: RelPath,
    cursor: RelPath,
    glob: Option<Glob>,
    recursive: bool,
    limit: usize,
}

impl Listing {
    pub(super) fn parse(request: &ListRequest, root: &[u8]) -> Result<Self, Error> {
        if !(1..=LIST_ENTRIES_MAX).contains(&request.limit) {
            return Err(Error::Invalid("the limit must be 1 to 1000"));
        }
        let cursor = RelPath::parse_inner(&request.cursor)?;
        let depth_max = if request.recursive { TREE_DEPTH_MAX } else { 1 };
        if cursor.components().count() > depth_max {
            return Err(Error::Invalid("the cursor is not one of this listing"));
        }
        Ok(Self {
            path: RelPath::parse(&request.path, root)?,
            cursor,
            glob: Glob::parse(&request.glob)?,
            recursive: request.recursive,
            limit: request.limit as usize,
        })
    }

    /// Opens the listed directory. Does not block.
    pub(super) fn base(&self, root: &Beneath) -> Result<Beneath, Error> {
        // Opened for reading once, so that a file or an unreadable directory is reported.
        drop(root.listable(&self.path)?);
        root.narrowed(&self.path)
    }

    /// Builds the page.
    pub(super) fn page(&self, base: &Beneath, stop: &Stop) -> Result<ListReply, Error> {
        let mut walk = Walk::after(base, &self.cursor, self.recursive)?;
        let mut page = Page {
            reply: ListReply::default(),
            bytes: 0,
            last: self.cursor.clone(),
        };
        let mut started = None;
        while let Some((path, info)) = walk.next(&self.path, stop)? {
            let started: &Instant = started.get_or_insert_with(Instant::now);
            let wanted = self
                .glob
                .as_ref()
                .is_none_or(|glob| glob.matches(path.as_bytes()));
            if wanted && page.is_full(self.limit, &info) || started.elapsed() > PAGE_TIME_MAX {
                page.reply.next_cursor = page.last.as_bytes().to_vec().into();
                break;
            }
            page.take(path, info, wanted);
        }
        Ok(page.reply)
    }
}

struct Page {
    reply: ListReply,
    bytes: usize,
    last: RelPath,
}

impl Page {
    fn is_full(&self, limit: usize, next: &FileInfo) -> bool {
        let bytes = self.bytes + entry_bytes(next);
        self.reply.entries.len() >= limit
            || bytes > LIST_BYTES_MAX && !self.reply.entries.is_empty()
    }

    fn take(&mut self, path: RelPath, info: FileInfo, wanted: bool) {
        if wanted {
            self.bytes += entry_bytes(&info);
            self.reply.entries.push(info);
        }
        self.last = path;
    }
}

fn entry_bytes(info: &FileInfo) -> usize {
    info.path.len() + info.target.len() + ENTRY_BYTES
}

/// A position in a tree, in path order.
struct Walk<'a> {
    base: &'a Beneath,
    levels: Vec<Level>,
    recursive: bool,
}

struct Level {
    dir: RelPath,
    after: Option<Vec<u8>>,
    names: std::vec::IntoIter<Vec<u8>>,
    more: bool,
}

impl<'a> Walk<'a> {
    /// The position right after `cursor`. The first entry comes after the root.
    fn after(base: &'a Beneath, cursor: &RelPath, recursive: bool) -> Result<Self, Error> {
        let mut walk = Self {
            base,
            levels: Vec::new(),
            recursive,
        };
        let mut dir = RelPath::default();
        for component in cursor.components() {
            walk.levels
                .push(Level::new(dir.clone(), Some(component.to_vec())));
            dir = dir.child(component);
        }
        if recursive || dir.is_root() {
            walk.enter(dir)?;
        }
        Ok(walk)
    }

    fn next(
        &mut self,
        listed: &RelPath,
        stop: &Stop,
    ) -> Result<Option<(RelPath, FileInfo)>, Error> {
        loop {
            stop.check()?;
            let depth = self.levels.len();
            let Some(level) = self.levels.last_mut() else {
                return Ok(None);
            };
            let Some(name) = level.next_name(self.base, depth, stop)? else {
                self.levels.pop();
                continue;
            };
            let path = level.dir.child(&name);
            let Some(info) = self.look(listed, &path)? else {
                continue;
            };
            if self.recursive && info.r#type() == FileType::Directory {
                self.enter(path.clone())?;
            }
            return Ok(Some((path, info)));
        }
    }

    fn enter(&mut self, dir: RelPath) -> Result<(), Error> {
        if self.levels.len() >= TREE_DEPTH_MAX {
            return Err(Error::Exhausted("the tree is too deep"));
        }
        self.levels.push(Level::new(dir, None));
        Ok(())
    }

    fn look(&self, listed: &RelPath, path: &RelPath) -> Result<Option<FileInfo>, Error> {
        let full = if listed.is_root() {
            path.clone()
        } else {
            listed.child(path.as_bytes())
        };
        match open_if_there(self.base, path, OFlags::PATH)? {
            None => Ok(None),
            Some(fd) => match describe_open(full.as_bytes(), fd) {
                Err(error) if error.is_errno(Errno::NOENT) => Ok(None),
                other => other.map(Some),
            },
        }
    }
}

impl Level {
    fn new(dir: RelPath, after: Option<Vec<u8>>) -> Self {
        Self {
            dir,
            after,
            names: Vec::new().into_iter(),
            more: true,
        }
    }

    fn next_name(
        &mut self,
        base: &Beneath,
        depth: usize,
        stop: &Stop,
    ) -> Result<Option<Vec<u8>>, Error> {
        if self.names.len() == 0 && self.more {
            let max = if depth <= WIDE_LEVELS_MAX {
                WIDE_NAMES_MAX
            } else {
                NARROW_NAMES_MAX
            };
            self.scan(base, max, stop)?;
        }
        let name = self.names.next();
        if name.is_some() {
            self.after.clone_from(&name);
        }
        Ok(name)
    }

    /// Reads the whole directory and keeps the `max` smallest names that come next.
    fn scan(&mut self, base: &Beneath, max: usize, stop: &Stop) -> Result<(), Error> {
        self.more = false;
        let Some(fd) = open_if_there(base, &self.dir, OFlags::RDONLY | OFlags::DIRECTORY)? else {
            return Ok(());
        };
        let mut smallest = BinaryHeap::new();
        for entry in Dir::new(fd).step("read the directory")? {
            stop.check()?;
            let entry = entry.step("read the directory")?;
            let name = entry.file_name().to_bytes();
            let is_next = self.after.as_deref().is_none_or(|after| name > after);
            if name == b"." || name == b".." || !is_next {
                continue;
            }
            if smallest.len() < max
                || smallest
                    .peek()
                    .is_some_and(|last: &Vec<u8>| name < &last[..])
            {
                smallest.push(name.to_vec());
            } else {
                self.more = true;
            }
            if smallest.len() > max {
                smallest.pop();
                self.more = true;
            }
        }
        self.names = smallest.into_sorted_vec().into_iter();
        Ok(())
    }
}

/// Opens an entry, if it still exists and has the same type. An unreadable directory counts as
/// empty.
fn open_if_there(base: &Beneath, path: &RelPath, flags: OFlags) -> Result<Option<OwnedFd>, Error> {
    match base.plain(path, flags) {
        Ok(fd) => Ok(Some(fd)),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV | Errno::ACCESS) => Ok(None),
        Err(Errno::NAMETOOLONG) => Err(Error::Exhausted("the tree is too deep")),
        Err(errno) => Err(errno).step("open a file of the tree"),
    }
}
