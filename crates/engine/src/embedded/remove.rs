//! Removing a directory that something hostile filled.
//!
//! A tree may be deeper than there are descriptors or stack, and its directories may
//! forbid their owner to look inside. So nothing recurses: each directory found is
//! moved up to the top under a new name, emptied there and removed, and every step
//! names one entry of an open directory without following links.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, chmodat, openat, renameat, rmdir, statat, unlinkat,
};
use rustix::io::Errno;

/// Removes a directory and all it holds. A missing one is fine.
pub(super) fn tree(path: &Path) -> io::Result<()> {
    let top = match open_directory(CWD, path) {
        Ok(top) => top,
        Err(Errno::NOENT) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    empty_top(&top)?;
    ignore_missing(rmdir(path)).map_err(Into::into)
}

/// Removes all that a directory holds.
pub(super) fn contents(path: &Path) -> io::Result<()> {
    empty_top(&open_directory(CWD, path)?)
}

fn empty_top(top: &OwnedFd) -> io::Result<()> {
    let mut moved = 0_u64;
    loop {
        let names = names(top.as_fd())?;
        if names.is_empty() {
            return Ok(());
        }
        for name in names {
            if is_directory(top.as_fd(), &name)? {
                empty(top.as_fd(), &name, &mut moved)?;
            } else {
                ignore_missing(unlinkat(top, &name, AtFlags::empty()))?;
            }
        }
    }
}

/// Removes `name` from `top`, after moving the directories it holds up to `top`.
fn empty(top: BorrowedFd<'_>, name: &CStr, moved: &mut u64) -> io::Result<()> {
    let directory = open_directory(top, name)?;
    for inner in names(directory.as_fd())? {
        if !is_directory(directory.as_fd(), &inner)? {
            ignore_missing(unlinkat(&directory, &inner, AtFlags::empty()))?;
            continue;
        }
        match unlinkat(&directory, &inner, AtFlags::REMOVEDIR) {
            Ok(()) => continue,
            Err(Errno::NOTEMPTY | Errno::ACCESS) => {}
            Err(error) => return Err(error.into()),
        }
        // Moving a directory rewrites its `..`, so it must be writable itself.
        let _ = chmodat(&directory, &inner, Mode::RWXU, AtFlags::empty());
        move_up(directory.as_fd(), &inner, top, moved)?;
    }
    // It may hold more than `names` tells at once: the top is read again until it is empty.
    match unlinkat(top, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Moves a directory up to `top`, under a name that is free: an earlier remover that died
/// may have left some.
fn move_up(
    from: BorrowedFd<'_>,
    name: &CStr,
    top: BorrowedFd<'_>,
    moved: &mut u64,
) -> io::Result<()> {
    loop {
        *moved += 1;
        let fresh = CString::new(format!(".removed-{}-{moved}", std::process::id()))?;
        match renameat(from, name, top, &fresh) {
            Err(Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR) => {}
            other => return Ok(other?),
        }
    }
}

fn open_directory<P: rustix::path::Arg + Copy>(
    at: BorrowedFd<'_>,
    path: P,
) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match openat(at, path, flags, Mode::empty()) {
        // Its owner took the permission away; the owner is us.
        Err(Errno::ACCESS) => {
            chmodat(at, path, Mode::RWXU, AtFlags::empty())?;
            openat(at, path, flags, Mode::empty())
        }
        Ok(directory) => {
            let _ = rustix::fs::fchmod(&directory, Mode::RWXU);
            Ok(directory)
        }
        other => other,
    }
}

fn names(directory: BorrowedFd<'_>) -> io::Result<Vec<CString>> {
    /// Names held at once; a larger directory is read again when these are gone.
    const NAMES_MAX: usize = 4096;
    let entries = Dir::read_from(directory)?.filter_map(|entry| match entry {
        Ok(entry) if [c".", c".."].contains(&entry.file_name()) => None,
        other => Some(other.map(|entry| entry.file_name().to_owned())),
    });
    Ok(entries.take(NAMES_MAX).collect::<Result<_, _>>()?)
}

fn is_directory(at: BorrowedFd<'_>, name: &CStr) -> io::Result<bool> {
    match statat(at, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(FileType::from_raw_mode(stat.st_mode) == FileType::Directory),
        Err(Errno::NOENT) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn ignore_missing(result: rustix::io::Result<()>) -> rustix::io::Result<()> {
    match result {
        Err(Errno::NOENT) => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_deeper_than_the_descriptors_is_removed() {
        let base = tempfile::tempdir().unwrap();
        let top = base.path().join("top");
        std::fs::create_dir(&top).unwrap();
        let mut at = open_directory(CWD, &*top).unwrap();
        for _ in 0..5000 {
            rustix::fs::mkdirat(&at, c"d", Mode::RWXU).unwrap();
            at = open_directory(at.as_fd(), c"d").unwrap();
        }
        tree(&top).unwrap();
        assert!(!top.exists());
    }

    #[test]
    fn directories_that_forbid_their_owner_are_removed() {
        let base = tempfile::tempdir().unwrap();
        let top = base.path().join("top");
        std::fs::create_dir_all(top.join("a/b/c")).unwrap();
        std::fs::write(top.join("a/b/c/file"), "x").unwrap();
        for path in ["a/b/c", "a/b", "a"] {
            let closed = std::os::unix::fs::PermissionsExt::from_mode(0o000);
            std::fs::set_permissions(top.join(path), closed).unwrap();
        }
        tree(&top).unwrap();
        assert!(!top.exists());
    }

    #[test]
    fn links_are_removed_and_not_followed() {
        let base = tempfile::tempdir().unwrap();
        let outside = base.path().join("outside");
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(outside.join("kept"), "x").unwrap();
        let top = base.path().join("top");
        std::fs::create_dir(&top).unwrap();
        std::os::unix::fs::symlink(&outside, top.join("link")).unwrap();
        tree(&top).unwrap();
        assert!(outside.join("kept").exists());
    }

    #[test]
    fn wide_directories_and_what_an_earlier_remover_left_are_removed() {
        let base = tempfile::tempdir().unwrap();
        let top = base.path().join("top");
        for name in [
            "wide".to_owned(),
            format!(".removed-{}-1", std::process::id()),
        ] {
            let inner = top.join(&name).join("inner");
            std::fs::create_dir_all(&inner).unwrap();
            for n in 0..5000 {
                std::fs::write(inner.join(n.to_string()), "").unwrap();
            }
        }
        tree(&top).unwrap();
        assert!(!top.exists());
    }

    #[test]
    fn a_missing_directory_is_fine() {
        let base = tempfile::tempdir().unwrap();
        tree(&base.path().join("none")).unwrap();
    }
}
