use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use super::*;

const MIB: u64 = 1 << 20;

fn written(path: &Path, bytes: u64) {
    let mut file = File::create(path).unwrap();
    for _ in 0..bytes.div_ceil(MIB) {
        file.write_all(&vec![7; usize::try_from(bytes.min(MIB)).unwrap()])
            .unwrap();
    }
    file.sync_all().unwrap();
}

fn measured(path: &Path) -> Usage {
    measure(path, u64::MAX).unwrap()
}

#[test]
fn blocks_are_counted_and_not_sizes() {
    let top = tempfile::tempdir().unwrap();
    let sparse = File::create(top.path().join("sparse")).unwrap();
    sparse.set_len(1 << 40).unwrap();
    assert!(measured(top.path()).bytes < MIB);
    written(&top.path().join("full"), 3 * MIB);
    let usage = measured(top.path());
    assert!((3 * MIB..4 * MIB).contains(&usage.bytes), "{usage:?}");
    assert_eq!(usage.files, 2);
}

#[test]
fn a_file_with_many_links_counts_once_and_each_link_is_a_file() {
    let top = tempfile::tempdir().unwrap();
    let first = top.path().join("first");
    written(&first, 3 * MIB);
    fs::create_dir(top.path().join("d")).unwrap();
    for number in 0..6 {
        fs::hard_link(&first, top.path().join(format!("d/{number}"))).unwrap();
    }
    let usage = measured(top.path());
    assert!((3 * MIB..4 * MIB).contains(&usage.bytes), "{usage:?}");
    assert_eq!(usage.files, 8);
}

#[test]
fn links_are_not_followed() {
    let (top, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    written(&other.path().join("large"), 2 * MIB);
    symlink(other.path(), top.path().join("link")).unwrap();
    symlink(".", top.path().join("loop")).unwrap();
    let usage = measured(top.path());
    assert!(usage.bytes < MIB && usage.files == 2, "{usage:?}");
}

#[test]
fn a_walk_ends_after_so_many_names() {
    let top = tempfile::tempdir().unwrap();
    for number in 0..100 {
        File::create(top.path().join(number.to_string())).unwrap();
    }
    let usage = measure(top.path(), 40).unwrap();
    assert_eq!((usage.files, usage.is_cut), (40, true));
    let usage = measure(top.path(), 100).unwrap();
    assert_eq!((usage.files, usage.is_cut), (100, false));
}

#[test]
fn a_tree_that_is_too_deep_is_told_and_what_is_beside_it_is_counted() {
    let top = tempfile::tempdir().unwrap();
    written(&top.path().join("beside"), 2 * MIB);
    let mut at = File::open(top.path()).unwrap();
    for _ in 0..3000 {
        rustix::fs::mkdirat(&at, c"d", Mode::RWXU).unwrap();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        at = openat(&at, c"d", flags, Mode::empty()).unwrap().into();
    }
    let usage = measured(top.path());
    assert!(usage.is_too_deep && usage.bytes >= 2 * MIB, "{usage:?}");
    assert_eq!(usage.files, DEPTH_MAX as u64 + 1);
    // Too deep for the directory's own removal.
    std::process::Command::new("rm")
        .args(["-rf", top.path().to_str().unwrap()])
        .status()
        .unwrap();
}

/// What a program of ours prints that measures a directory, as a user that is not root.
fn measured_as_user(top: &Path) -> Option<Usage> {
    use std::os::unix::process::CommandExt;
    let own = std::env::current_exe().unwrap();
    // The directory of the build may be closed to others.
    let copy = top.parent().unwrap().join("measure");
    fs::copy(own, &copy).unwrap();
    let mut command = std::process::Command::new(&copy);
    command.args(["--exact", "tests::measures_for_another", "--nocapture"]);
    command.env("MEASURED", top).current_dir("/");
    if geteuid_is_root() {
        command.uid(4711).gid(4711);
    }
    let output = command.output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find_map(|line| line.strip_prefix("measured "));
    let numbers: Vec<u64> = line?
        .split(' ')
        .filter_map(|word| word.parse().ok())
        .collect();
    Some(Usage {
        bytes: numbers[0],
        files: numbers[1],
        unread: numbers[2],
        ..Usage::default()
    })
}

fn geteuid_is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A helper of the test below, which starts it as another user; otherwise it does nothing.
#[test]
fn measures_for_another() {
    let Some(top) = std::env::var_os("MEASURED") else {
        return;
    };
    let Usage {
        bytes,
        files,
        unread,
        ..
    } = measured(Path::new(&top));
    println!("\nmeasured {bytes} {files} {unread}");
}

#[test]
fn what_its_owner_has_closed_is_counted_and_stays_closed() {
    let base = tempfile::tempdir().unwrap();
    fs::set_permissions(base.path(), Permissions::from_mode(0o755)).unwrap();
    let top = base.path().join("top");
    for (name, mode) in [("none", 0o000), ("read", 0o400), ("enter", 0o100)] {
        let directory = top.join(name);
        fs::create_dir_all(directory.join("inner")).unwrap();
        written(&directory.join("inner/large"), 2 * MIB);
        if geteuid_is_root() {
            std::os::unix::fs::chown(&directory, Some(4711), Some(4711)).unwrap();
        }
        fs::set_permissions(&directory, Permissions::from_mode(mode)).unwrap();
    }
    let usage = measured_as_user(&top).expect("it was measured");
    assert!((6 * MIB..7 * MIB).contains(&usage.bytes), "{usage:?}");
    assert_eq!((usage.files, usage.unread), (9, 0));
    for (name, mode) in [("none", 0o000), ("read", 0o400), ("enter", 0o100)] {
        let found = fs::metadata(top.join(name)).unwrap();
        assert_eq!(found.mode() & 0o7777, mode, "{name}");
        fs::set_permissions(top.join(name), Permissions::from_mode(0o700)).unwrap();
    }
}

#[test]
fn a_directory_of_somebody_else_is_told_as_unread() {
    if !geteuid_is_root() {
        return hotcell_testkit::not_claimed("only root gives files away");
    }
    let base = tempfile::tempdir().unwrap();
    fs::set_permissions(base.path(), Permissions::from_mode(0o755)).unwrap();
    let top = base.path().join("top");
    fs::create_dir_all(top.join("foreign/inner")).unwrap();
    fs::set_permissions(top.join("foreign"), Permissions::from_mode(0o700)).unwrap();
    let usage = measured_as_user(&top).expect("it was measured");
    assert_eq!((usage.files, usage.unread), (1, 1));
}

#[test]
fn it_ends_while_somebody_adds_files() {
    let top = tempfile::tempdir().unwrap();
    let stop = &std::sync::atomic::AtomicBool::new(false);
    let path = top.path();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for number in 0_u64.. {
                if stop.load(std::sync::atomic::Ordering::Relaxed) {
                    return;
                }
                File::create(path.join(number.to_string())).unwrap();
            }
        });
        for _ in 0..20 {
            assert!(measure(path, 5000).unwrap().files <= 5000);
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}
