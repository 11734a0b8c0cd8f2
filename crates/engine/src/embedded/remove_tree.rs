//! Removes a directory with hostile content.
//!
//! A tree may be deeper than there are descriptors or stack, and its directories may deny their
//! owner access. So nothing recurses: each directory found is moved up to the top under a new name,
//! emptied there and removed, and every step names one entry of an open directory without following
//! links. A btrfs subvolume is treated as a top of its own, because only another subvolume can be
//! moved out of it.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, chmodat, openat, renameat, rmdir, statat, unlinkat,
};
use rustix::io::Errno;

/// Removes a directory and its contents. A missing one is fine.
pub(super) fn tree(path: &Path) -> io::Result<()> {
    let top = match open_directory(CWD, path) {
        Ok(top) => top,
        Err(Errno::NOENT) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    empty_top(&top)?;
    ignore_missing(rmdir(path)).map_err(Into::into)
}

/// Removes the contents of a directory.
pub(super) fn contents(path: &Path) -> io::Result<()> {
    empty_top(&open_directory(CWD, path)?)
}

fn empty_top(top: &OwnedFd) -> io::Result<()> {
    let mut remover = Remover {
        top: top.as_fd(),
        moved: 0,
    };
    while remover.empty_once(top.as_fd())? {}
    Ok(())
}

/// The kind of a directory entry.
#[derive(PartialEq, Eq)]
enum Kind {
    Directory,
    /// The root of a btrfs subvolume: no directory can be moved out of it, but a subvolume can be
    /// moved out of another.
    Subvolume,
    Other,
}

/// Removes what is below one directory.
struct Remover<'a> {
    top: BorrowedFd<'a>,
    /// Number of directories moved up so far.
    moved: u64,
}

impl Remover<'_> {
    /// Removes the entries that a scan of the top, or of a subvolume in it, returns. False if there
    /// were none.
    fn empty_once(&mut self, at: BorrowedFd<'_>) -> io::Result<bool> {
        let names = names(at)?;
        for name in &names {
            match kind(at, name)? {
                Kind::Other => ignore_missing(unlinkat(at, name, AtFlags::empty()))?,
                Kind::Directory => self.empty(at, name)?,
                Kind::Subvolume if is_same(at, self.top) => self.remove_subvolume(name)?,
                Kind::Subvolume => self.move_up_subvolume(at, name)?,
            }
        }
        Ok(!names.is_empty())
    }

    /// Removes `name` from `at`, after moving its subdirectories up to `at`.
    fn empty(&mut self, at: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
        let directory = open_directory(at, name)?;
        for inner in names(directory.as_fd())? {
            match kind(directory.as_fd(), &inner)? {
                Kind::Other => ignore_missing(unlinkat(&directory, &inner, AtFlags::empty()))?,
                Kind::Directory => self.remove_or_move(directory.as_fd(), &inner, at)?,
                Kind::Subvolume => self.move_up_subvolume(directory.as_fd(), &inner)?,
            }
        }
        remove_if_empty(at, name)
    }

    fn remove_or_move(
        &mut self,
        from: BorrowedFd<'_>,
        name: &CStr,
        to: BorrowedFd<'_>,
    ) -> io::Result<()> {
        match unlinkat(from, name, AtFlags::REMOVEDIR) {
            Ok(()) => return Ok(()),
            Err(Errno::NOTEMPTY | Errno::ACCESS) => {}
            Err(error) => return Err(error.into()),
        }
        // Moving a directory rewrites its `..`, so it must itself be writable.
        let _ = chmodat(from, name, Mode::RWXU, AtFlags::empty());
        move_up(from, name, to, &mut self.moved)
    }

    /// Empties a subvolume at the top as if it were a top itself, and removes it. Nested subvolumes
    /// are moved up before, so there is never more than one level.
    fn remove_subvolume(&mut self, name: &CStr) -> io::Result<()> {
        let subvolume = open_writable(self.top, name)?;
        while self.empty_once(subvolume.as_fd())? {}
        remove_if_empty(self.top, name)
    }

    fn move_up_subvolume(&mut self, from: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
        open_writable(from, name)?;
        move_up(from, name, self.top, &mut self.moved)
    }
}

/// Opens a subvolume, which may have been made read-only.
fn open_writable(at: BorrowedFd<'_>, name: &CStr) -> io::Result<OwnedFd> {
    let subvolume = open_directory(at, name)?;
    // On a filesystem other than btrfs, it is a plain directory that happens to have this inode
    // number.
    let _ = hotcell_runtime::make_subvolume_writable(subvolume.as_fd());
    let _ = rustix::fs::fchmod(&subvolume, Mode::RWXU);
    Ok(subvolume)
}

/// Removes a directory. If it still has entries, the next scan finds it again.
fn remove_if_empty(at: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
    match unlinkat(at, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn is_same(one: BorrowedFd<'_>, other: BorrowedFd<'_>) -> bool {
    std::os::fd::AsRawFd::as_raw_fd(&one) == std::os::fd::AsRawFd::as_raw_fd(&other)
}

/// Moves a directory up to `top`, under an unused name: an earlier removal that died may have left
/// some.
fn move_up(
    from: BorrowedFd<'_>,
    name: &CStr,
    top: BorrowedFd<'_>,
    moved: &mut u64,
) -> io::Result<()> {
    loop {
        *moved += 1;
        let uncommitted = CString::new(format!(".removed-{}-{moved}", std::process::id()))?;
        match renameat(from, name, top, &uncommitted) {
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
        // Its owner, which is us, has removed the permission.
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
    /// Names read at once; a larger directory is read again after these are removed.
    const NAMES_MAX: usize = 4096;
    let entries = Dir::read_from(directory)?.filter_map(|entry| match entry {
        Ok(entry) if [c".", c".."].contains(&entry.file_name()) => None,
        other => Some(other.map(|entry| entry.file_name().to_owned())),
    });
    Ok(entries.take(NAMES_MAX).collect::<Result<_, _>>()?)
}

/// The inode number of every subvolume's root, and of no other directory of btrfs.
const SUBVOLUME_INODE: u64 = 256;

fn kind(at: BorrowedFd<'_>, name: &CStr) -> io::Result<Kind> {
    let stat = match statat(at, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Ok(Kind::Other),
        Err(error) => return Err(error.into()),
    };
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        return Ok(Kind::Other);
    }
    if stat.st_ino == SUBVOLUME_INODE {
        return Ok(Kind::Subvolume);
    }
    Ok(Kind::Directory)
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

    /// A btrfs of a test's own, unmounted when it is dropped.
    struct Btrfs(tempfile::TempDir);

    impl Btrfs {
        /// `None` where that cannot be had: it takes root, loop devices and btrfs-progs.
        fn mount() -> Option<Self> {
            let base = tempfile::tempdir().unwrap();
            let (image, at) = (base.path().join("image"), base.path().join("at"));
            std::fs::File::create(&image)
                .unwrap()
                .set_len(256 << 20)
                .unwrap();
            std::fs::create_dir(&at).unwrap();
            let image = image.to_str().unwrap();
            let is_there = run("mkfs.btrfs", &["-q", image])
                && run("mount", &["-o", "loop", image, at.to_str().unwrap()]);
            is_there.then(|| Self(base))
        }

        fn path(&self) -> std::path::PathBuf {
            self.0.path().join("at")
        }
    }

    impl Drop for Btrfs {
        fn drop(&mut self) {
            run("umount", &[self.path().to_str().unwrap()]);
        }
    }

    fn run(program: &str, arguments: &[&str]) -> bool {
        let output = std::process::Command::new(program).args(arguments).output();
        output.is_ok_and(|output| output.status.success())
    }

    #[test]
    fn subvolumes_are_removed_however_they_are_nested_and_closed() {
        let Some(btrfs) = Btrfs::mount() else {
            let reason = "btrfs cannot be made and mounted";
            return hotcell_testkit::skip(hotcell_testkit::Need::Mounts, reason);
        };
        let top = btrfs.path().join("top");
        std::fs::create_dir_all(top.join("plain")).unwrap();
        let mut at = top.join("plain");
        for depth in 0..5 {
            at = at.join(format!("volume-{depth}"));
            assert!(run("btrfs", &["subvolume", "create", at.to_str().unwrap()]));
            std::fs::create_dir_all(at.join("deep/er")).unwrap();
            std::fs::write(at.join("deep/er/file"), "x").unwrap();
            at = at.join("deep");
        }
        let shut = top.join("plain/volume-0");
        let read_only = ["property", "set", shut.to_str().unwrap(), "ro", "true"];
        assert!(run("btrfs", &read_only));
        let closed = std::os::unix::fs::PermissionsExt::from_mode(0o000);
        std::fs::set_permissions(top.join("plain"), closed).unwrap();
        tree(&top).unwrap();
        assert!(!top.exists());
    }

    /// The contents of an overlay's upper layer: whiteouts, inaccessible opaque directories, and
    /// overlayfs' own work directory.
    #[test]
    fn the_remains_of_an_overlay_are_removed() {
        let base = tempfile::tempdir().unwrap();
        let top = base.path().join("top");
        std::fs::create_dir_all(top.join("fs/deleted-in/deep")).unwrap();
        std::fs::create_dir_all(top.join("work/work/inner")).unwrap();
        let whiteout = FileType::CharacterDevice;
        for name in ["fs/gone", "fs/deleted-in/gone", "fs/deleted-in/deep/gone"] {
            let path = top.join(name);
            rustix::fs::mknodat(CWD, &path, whiteout, Mode::empty(), 0).unwrap();
        }
        for path in ["work/work", "fs/deleted-in/deep", "fs/deleted-in", "fs"] {
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
