//! Resolves a path beneath a directory step by step, for kernels without openat2 (gVisor).
//!
//! Each step opens one name without following it; symlinks are read and resolved here, and `..`
//! reopens the parent by the names that led to it. No step leaves the directory, whatever is
//! renamed meanwhile: a step is never more than one component, and nothing is above the first.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::info::{is, read_link};

/// Symlinks in one resolution; the kernel's own limit.
const SYMLINKS_MAX: u32 = 40;

/// Components in one resolution, including those of symlinks.
const COMPONENTS_MAX: usize = 4096;

/// Opens a path under the rules of `how`; `BENEATH` always applies.
pub(super) fn open(
    root: &OwnedFd,
    path: &[u8],
    flags: OFlags,
    how: ResolveFlags,
) -> rustix::io::Result<OwnedFd> {
    let mut walk = Walk {
        root: root.as_fd(),
        here: None,
        names: Vec::new(),
        todo: components(path).collect(),
        symlinks_left: if how.contains(ResolveFlags::NO_SYMLINKS) {
            0
        } else {
            SYMLINKS_MAX
        },
    };
    while let Some(name) = walk.todo.pop_front() {
        if let Some(found) = walk.step(name, flags)? {
            return Ok(found);
        }
    }
    // The path ends in a directory that is open already.
    rustix::fs::openat(walk.here(), c".", flags, Mode::empty())
}

struct Walk<'a> {
    root: BorrowedFd<'a>,
    /// The current directory; `None` for the root.
    here: Option<OwnedFd>,
    /// The names from the root to the current directory.
    names: Vec<Vec<u8>>,
    todo: VecDeque<Vec<u8>>,
    symlinks_left: u32,
}

impl Walk<'_> {
    fn here(&self) -> BorrowedFd<'_> {
        self.here.as_ref().map_or(self.root, AsFd::as_fd)
    }

    /// Resolves one component; returns the file if it was the last one.
    fn step(&mut self, name: Vec<u8>, flags: OFlags) -> rustix::io::Result<Option<OwnedFd>> {
        if name == b".." {
            return self.go_back().map(|()| None);
        }
        let entry = open_one(self.here(), &name, OFlags::PATH)?;
        let stat = rustix::fs::fstat(&entry)?;
        let is_last = self.todo.is_empty();
        let wants_link = flags.contains(OFlags::PATH | OFlags::NOFOLLOW);
        if is(&stat, FileType::Symlink) && !(is_last && wants_link) {
            if is_last && flags.contains(OFlags::NOFOLLOW) {
                return Err(Errno::LOOP);
            }
            return self.follow(&name).map(|()| None);
        }
        if is_last {
            return open_one(self.here(), &name, flags).map(Some);
        }
        if !is(&stat, FileType::Directory) {
            return Err(Errno::NOTDIR);
        }
        self.here = Some(entry);
        self.names.push(name);
        Ok(None)
    }

    fn go_back(&mut self) -> rustix::io::Result<()> {
        self.names.pop().ok_or(Errno::XDEV)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let mut here = None;
        for name in &self.names {
            let above = here.as_ref().map_or(self.root, AsFd::as_fd);
            here = Some(open_one(above, name, flags)?);
        }
        self.here = here;
        Ok(())
    }

    fn follow(&mut self, name: &[u8]) -> rustix::io::Result<()> {
        self.symlinks_left = self.symlinks_left.checked_sub(1).ok_or(Errno::LOOP)?;
        let target = read_link(self.here(), name)?;
        if target.starts_with(b"/") {
            return Err(Errno::XDEV);
        }
        for part in components(&target).collect::<Vec<_>>().into_iter().rev() {
            self.todo.push_front(part);
        }
        if self.todo.len() > COMPONENTS_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        Ok(())
    }
}

fn open_one(dir: BorrowedFd<'_>, name: &[u8], flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(dir, name, flags, Mode::empty())
}

fn components(path: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    path.split(|byte| *byte == b'/')
        .filter(|part| !part.is_empty() && *part != b".")
        .map(<[u8]>::to_vec)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use proptest::prelude::*;

    use super::*;

    /// A tree with every kind of link, inside a directory with a secret.
    fn tree() -> (tempfile::TempDir, OwnedFd) {
        let outside = tempfile::tempdir().expect("a directory");
        std::fs::write(outside.path().join("secret"), "s").expect("a file");
        let root = outside.path().join("root");
        std::fs::create_dir_all(root.join("a/b/c")).expect("directories");
        for file in ["f", "a/f", "a/b/f", "a/b/c/f"] {
            std::fs::write(root.join(file), file).expect("a file");
        }
        for (target, link) in [
            ("..", "a/up"),
            ("../..", "a/b/out"),
            ("../../f", "a/b/top"),
            ("b/c", "a/down"),
            ("/etc", "a/abs"),
            ("loop", "a/loop"),
            ("missing", "a/dangling"),
            ("../../secret", "a/theft"),
            (".", "a/b/self"),
            ("b/c/../f", "a/round"),
        ] {
            symlink(target, root.join(link)).expect("a link");
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(&root, flags, Mode::empty()).expect("it is there");
        (outside, fd)
    }

    /// The inode of the opened file, or the error.
    fn told(opened: rustix::io::Result<OwnedFd>) -> Result<u64, Errno> {
        let stat = rustix::fs::fstat(opened?).expect("it is open");
        Ok(stat.st_ino)
    }

    #[test]
    fn what_leaves_the_root_is_denied() {
        let (_outside, root) = tree();
        for path in [
            "..",
            "a/../..",
            "a/up/..",
            "a/b/out/..",
            "a/abs",
            "a/theft",
            "a/abs/passwd",
        ] {
            let opened = open(
                &root,
                path.as_bytes(),
                OFlags::RDONLY,
                ResolveFlags::BENEATH,
            );
            assert_eq!(told(opened), Err(Errno::XDEV), "{path}");
        }
    }

    proptest! {
        #[test]
        fn it_finds_what_openat2_finds(
            parts in prop::collection::vec(
                prop::sample::select(vec![
                    "a", "b", "c", "f", "..", "up", "out", "top", "down", "abs", "loop",
                    "dangling", "theft", "self", "round", "missing",
                ]),
                1..7,
            ),
            flags in prop::sample::select(vec![
                OFlags::PATH,
                OFlags::PATH | OFlags::NOFOLLOW,
                OFlags::PATH | OFlags::DIRECTORY,
                OFlags::RDONLY,
                OFlags::RDONLY | OFlags::NOFOLLOW,
                OFlags::RDONLY | OFlags::DIRECTORY,
            ]),
            is_plain: bool,
        ) {
            let (_outside, root) = tree();
            let path = parts.join("/");
            let how = if is_plain {
                ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS
            } else {
                ResolveFlags::BENEATH
            };
            let kernel = rustix::fs::openat2(&root, path.as_str(), flags, Mode::empty(), how);
            let ours = open(&root, path.as_bytes(), flags, how);
            prop_assert_eq!(told(ours), told(kernel), "{}", path);
        }
    }
}
