//! Root filesystems made of layers.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests panic when the setup fails"
)]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use hotcell_runtime::{DiskIds, LaunchError, Root, Scratch, USER_ID};

use crate::support::{TestContainer, is_root, launcher};

/// A layer that contains only a shell and its libraries.
fn shell_layer() -> tempfile::TempDir {
    let layer = tempfile::tempdir().unwrap();
    let listing = Command::new("ldd").arg("/bin/sh").output().unwrap().stdout;
    let listing = String::from_utf8(listing).unwrap();
    let libraries = listing
        .split_whitespace()
        .filter(|word| word.starts_with('/'));
    for file in libraries.chain(["/bin/sh"]) {
        copy(file, layer.path());
    }
    layer
}

fn copy(file: &str, root: &Path) {
    let to = root.join(file.trim_start_matches('/'));
    fs::create_dir_all(to.parent().unwrap()).unwrap();
    fs::copy(file, to).unwrap();
}

fn readable_by_all(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

fn stacked(script: &str, lowers: &[&Path], scratch: Option<Scratch>) -> String {
    let mut container = TestContainer::new(script);
    for lower in lowers {
        readable_by_all(lower);
    }
    let lowers = lowers.iter().map(|path| PathBuf::from(*path)).collect();
    container.spec.root = Root::Overlay { lowers, scratch };
    container.output(&launcher())
}

#[test]
fn one_layer_is_a_read_only_root_with_every_mount_point() {
    let base = shell_layer();
    let script = "echo /* >&3; (: >/new) 2>/dev/null && echo written >&3; \
                  for d in /tmp /workspace /dev/shm; do : >$d/new && echo $d >&3; done; \
                  echo $$ >&3; [ -c /dev/null ] && echo device >&3";
    let seen = stacked(script, &[base.path()], None);
    let names = seen.lines().next().unwrap();
    for name in ["/bin", "/dev", "/proc", "/sys", "/tmp", "/workspace"] {
        assert!(
            names.split(' ').any(|seen| seen == name),
            "{name} in {names}"
        );
    }
    let rest: Vec<_> = seen.lines().skip(1).collect();
    assert_eq!(rest, ["/tmp", "/workspace", "/dev/shm", "1", "device"]);
}

#[test]
fn an_upper_layer_hides_a_lower_one() {
    let (base, top) = (shell_layer(), tempfile::tempdir().unwrap());
    fs::create_dir(base.path().join("etc")).unwrap();
    fs::create_dir(top.path().join("etc")).unwrap();
    fs::write(base.path().join("etc/both"), "lower\n").unwrap();
    fs::write(base.path().join("etc/one"), "only\n").unwrap();
    fs::write(top.path().join("etc/both"), "upper\n").unwrap();
    let script = "read a </etc/both; read b </etc/one; echo $a $b >&3";
    assert_eq!(
        stacked(script, &[top.path(), base.path()], None),
        "upper only\n"
    );
}

#[test]
fn an_image_cannot_choose_where_mounts_go() {
    let base = shell_layer();
    let victim = tempfile::tempdir().unwrap();
    readable_by_all(victim.path());
    for name in ["workspace", "proc", "dev", "tmp", "sys"] {
        symlink(victim.path(), base.path().join(name)).unwrap();
    }
    let script = "[ -L /workspace ] && echo link >&3; : >/workspace/here; [ -e /proc/1/status ] && echo proc >&3";
    assert_eq!(stacked(script, &[base.path()], None), "proc\n");
    assert_eq!(fs::read_dir(victim.path()).unwrap().count(), 0);
}

#[test]
fn a_scratch_takes_the_changes() {
    let base = shell_layer();
    fs::create_dir(base.path().join("data")).unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let ids = TestContainer::new("").spec.ids;
    let paths = ["upper", "work"].map(|name| scratch.path().join(name));
    for path in &paths {
        fs::create_dir(path).unwrap();
    }
    // They must belong to whoever mounts the overlay, or to the container's user.
    let inner = if is_root() { 0 } else { USER_ID };
    let (owner, group) = (ids.host_uid(inner), ids.host_gid(inner));
    for path in paths.iter().map(PathBuf::as_path).chain([scratch.path()]) {
        std::os::unix::fs::chown(path, owner, group).unwrap();
    }
    fs::set_permissions(&paths[0], fs::Permissions::from_mode(0o777)).unwrap();
    let [upper, work] = paths.clone();
    let script = "echo kept >/new && read line </new && echo $line >&3";
    let seen = stacked(script, &[base.path()], Some(Scratch { upper, work }));
    assert_eq!(seen, "kept\n");
    assert_eq!(fs::read_to_string(paths[0].join("new")).unwrap(), "kept\n");
    // Overlayfs leaves a directory that even its owner cannot list.
    fs::remove_dir(paths[1].join("work")).unwrap();
}

#[test]
fn many_layers_fit() {
    let base = shell_layer();
    let layers: Vec<_> = (0..120).map(|_| tempfile::tempdir().unwrap()).collect();
    let mut lowers: Vec<&Path> = layers.iter().map(tempfile::TempDir::path).collect();
    lowers.push(base.path());
    assert_eq!(stacked("echo up >&3", &lowers, None), "up\n");
}

/// A layer that belongs to root, with a file that only root may read; and, as host root, an
/// id-mapped workspace beside it.
#[test]
fn layers_of_an_image_belong_to_the_containers_root() {
    let store = tempfile::tempdir().unwrap();
    readable_by_all(store.path());
    let base = shell_layer();
    let (low, top) = (store.path().join("aa"), store.path().join("bb"));
    let copied = Command::new("cp")
        .arg("-a")
        .args([base.path(), &low])
        .status();
    assert!(copied.unwrap().success());
    readable_by_all(&low);
    fs::create_dir_all(low.join("etc/gone")).unwrap();
    fs::write(low.join("etc/passwd"), "of the image").unwrap();
    fs::write(low.join("etc/both"), "lower").unwrap();
    fs::create_dir_all(top.join("etc")).unwrap();
    fs::write(top.join("etc/both"), "upper\n").unwrap();
    // Readable only by its owner, which is the container's user if its ids are mapped.
    fs::write(low.join("etc/own"), "readable\n").unwrap();
    fs::set_permissions(low.join("etc/own"), fs::Permissions::from_mode(0o600)).unwrap();
    if is_root() {
        std::os::unix::fs::chown(low.join("etc/own"), Some(USER_ID), Some(USER_ID)).unwrap();
    }
    let whiteout = rustix::fs::FileType::CharacterDevice;
    let mode = rustix::fs::Mode::empty();
    rustix::fs::mknodat(rustix::fs::CWD, top.join("etc/gone"), whiteout, mode, 0).unwrap();
    let mut container = TestContainer::new(
        "read a </etc/both; read b </etc/passwd; [ -e /etc/gone ] && b=gone; [ -O /bin ] && a=own; \
         [ -e /layers ] && b=layers; (: >/new) 2>/dev/null && b=written; read c </etc/own; echo $a $b $c >&3",
    );
    container.spec.root = Root::Layers {
        dir: store.path().to_owned(),
        names: vec!["bb".to_owned(), "aa".to_owned()],
        passwd: "of the container\n".to_owned(),
        group: String::new(),
    };
    if is_root() {
        container.spec.workspace_ids = Some(DiskIds::PLAIN);
        chown_all(container.workspace.path(), USER_ID);
    }
    // For an ordinary user, the owner of the layers is the same inside and outside.
    let wanted = if is_root() { "upper" } else { "own" };
    let seen = container.output(&launcher());
    assert_eq!(seen, format!("{wanted} of the container readable\n"));
}

fn chown_all(path: &Path, id: u32) {
    std::os::unix::fs::chown(path, Some(id), Some(id)).unwrap();
}

/// Files of an id-mapped workspace belong to the container's user inside and to the mapped id on
/// disk, after every kind of file operation.
#[test]
fn a_workspace_has_the_ids_on_disk_that_its_map_says() {
    if !is_root() {
        return hotcell_testkit::not_claimed("only root can map the ids of a mount");
    }
    let script = "cd /workspace; : >file; mkdir d; : >d/x; rm -r d && mkdir d; mv file d/moved; \
                  [ -O d/moved ] && [ -O old ] && echo own >&3; [ -O foreign ] || echo foreign >&3";
    for (on_disk, inner, count) in [(0, 0, 65536), (4321, USER_ID, 1)] {
        let mut container = TestContainer::new(script);
        let owner = on_disk + USER_ID - inner;
        let workspace = container.workspace.path().to_owned();
        fs::write(workspace.join("old"), "").unwrap();
        fs::write(workspace.join("foreign"), "").unwrap();
        chown_all(&workspace, owner);
        chown_all(&workspace.join("old"), owner);
        container.spec.workspace_ids = Some(DiskIds {
            on_disk,
            inner,
            count,
        });
        assert_eq!(container.output(&launcher()), "own\nforeign\n");
        for path in ["d", "d/moved"] {
            let found = fs::metadata(workspace.join(path)).unwrap();
            assert_eq!((found.uid(), found.gid()), (owner, owner), "{path}");
        }
    }
}

/// There is no silent fallback: if the id map cannot be applied, the container does not start.
#[test]
fn a_workspace_whose_ids_cannot_be_mapped_is_a_failed_start() {
    let mut container = TestContainer::new("echo started >&3");
    // `/proc` does not support id-mapped mounts, and an ordinary user may not create any.
    container.spec.workspace = "/proc/sys".into();
    container.spec.workspace_ids = Some(DiskIds::PLAIN);
    let error = container.start(&launcher()).err().unwrap();
    let is_named = match &error {
        LaunchError::Step { step, .. } => step.contains("map the ids of a mount"),
        LaunchError::InvalidSpec { .. } => !is_root(),
        LaunchError::Start { .. } | LaunchError::Gone { .. } | LaunchError::Ended { .. } => false,
    };
    assert!(is_named, "{error}");
}
