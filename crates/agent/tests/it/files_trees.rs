//! Deleting, moving and copying files and trees.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use hotcell_agent_api::v1::*;
use tonic::Code;

use crate::bench::*;

#[tokio::test]
async fn a_delete_protects_the_root_and_follows_no_symlink() {
    let bench = Bench::new();
    bench.put("dir/sub/file", "x");
    bench.link("dir/out", &bench.outside);
    let root = bench.root.as_os_str().as_bytes().to_vec();
    for path in [
        &b""[..],
        b".",
        b"./",
        &root,
        b"dir/sub/../..",
        b"dir/sub/..",
    ] {
        assert_eq!(code(bench.delete(path, true).await), Code::PermissionDenied);
    }
    assert_eq!(code(bench.delete("missing", true).await), Code::NotFound);
    assert_eq!(
        code(bench.delete("dir", false).await),
        Code::FailedPrecondition
    );
    assert_eq!(bench.delete("dir", true).await.unwrap(), 4);
    assert!(bench.tree().is_empty());
    fs::create_dir(bench.root.join("empty")).unwrap();
    assert_eq!(bench.delete("empty", false).await.unwrap(), 1);
}

#[tokio::test]
async fn a_tree_of_ten_thousand_levels_can_be_deleted() {
    let bench = Bench::in_memory();
    make_deep(&bench, "deep", 10_000);
    bench.put("deep/file", "x");
    assert_eq!(bench.delete("deep", true).await.unwrap(), 10_002);
    assert!(bench.tree().is_empty());
}

#[tokio::test]
async fn a_tree_that_is_too_deep_is_refused_by_list_copy_and_export() {
    let bench = Bench::in_memory();
    make_deep(&bench, "deep", 300);
    assert_eq!(
        code(bench.list(list("deep", true)).await),
        Code::ResourceExhausted
    );
    let copy = CopyRequest {
        path: "deep".into(),
        dest_path: "copy".into(),
        recursive: true,
        ..Default::default()
    };
    assert_eq!(code(bench.files.copy(copy).await), Code::ResourceExhausted);
    let export = ExportRequest {
        path: "deep".into(),
        ..Default::default()
    };
    assert_eq!(code(bench.export(export).await), Code::ResourceExhausted);
    assert!(!bench.root.join("copy").exists());
    bench.delete("deep", true).await.unwrap();
}

/// Creates `levels` nested directories; the resulting paths are far too long.
fn make_deep(bench: &Bench, name: &str, levels: usize) {
    use rustix::fs::{Mode, OFlags, mkdirat, openat};
    fs::create_dir(bench.root.join(name)).unwrap();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let mut here = openat(rustix::fs::CWD, bench.root.join(name), flags, Mode::empty()).unwrap();
    for _ in 0..levels {
        mkdirat(&here, "d", Mode::RWXU).unwrap();
        here = openat(&here, "d", flags, Mode::empty()).unwrap();
    }
}

#[tokio::test]
async fn a_read_only_directory_can_be_deleted_and_a_closed_one_is_refused_or_goes() {
    let bench = Bench::new();
    bench.put("cache/mod/file", "x");
    let set = |path: &str, mode| {
        fs::set_permissions(bench.root.join(path), fs::Permissions::from_mode(mode)).unwrap();
    };
    set("cache/mod", 0o555);
    set("cache", 0o555);
    bench.delete("cache", true).await.unwrap();
    bench.put("closed/file", "x");
    set("closed", 0);
    let deleted = bench.delete("closed", true).await;
    if is_root() {
        deleted.unwrap();
    } else {
        assert_eq!(code(deleted), Code::PermissionDenied);
        set("closed", 0o700);
    }
    fs::create_dir(bench.root.join("empty")).unwrap();
    set("empty", 0);
    bench.delete("empty", true).await.unwrap();
}

#[tokio::test]
async fn a_move_replaces_a_file_only_when_told_to() {
    let bench = Bench::new();
    bench.put("a", "a");
    bench.put("b", "b");
    fs::create_dir(bench.root.join("dir")).unwrap();
    let request = |from: &str, to: &str, overwrite| MoveRequest {
        path: from.to_owned().into(),
        dest_path: to.to_owned().into(),
        overwrite,
        ..Default::default()
    };
    assert_eq!(
        code(bench.files.r#move(request("a", "b", false)).await),
        Code::AlreadyExists
    );
    assert_eq!(
        code(bench.files.r#move(request("a", "dir", true)).await),
        Code::FailedPrecondition
    );
    assert_eq!(
        code(bench.files.r#move(request("a", "no/b", false)).await),
        Code::NotFound
    );
    assert_eq!(
        code(bench.files.r#move(request("dir", "dir/sub", false)).await),
        Code::InvalidArgument
    );
    assert_eq!(
        code(bench.files.r#move(request("", "x", false)).await),
        Code::PermissionDenied
    );
    let info = bench.files.r#move(request("a", "b", true)).await.unwrap();
    assert_eq!(info.etag, bench.stat("b", false).await.unwrap().etag);
    assert_eq!(
        (bench.get("a"), bench.get("b").unwrap()),
        (None, b"a".to_vec())
    );
    let parents = MoveRequest {
        create_parents: true,
        ..request("b", "new/dir/b", false)
    };
    bench.files.r#move(parents).await.unwrap();
    assert_eq!(bench.tree(), ["dir", "new", "new/dir", "new/dir/b"]);
}

#[tokio::test]
async fn a_copy_is_whole_and_apart_from_its_source() {
    let bench = Bench::new();
    bench.put("dir/file", vec![3; 3 << 20]);
    bench.put("dir/sub/two", "two");
    bench.link("dir/link", "file");
    let set = |path: &str, mode| {
        fs::set_permissions(bench.root.join(path), fs::Permissions::from_mode(mode)).unwrap();
    };
    set("dir/sub", 0o555);
    let request = |from: &str, to: &str| CopyRequest {
        path: from.to_owned().into(),
        dest_path: to.to_owned().into(),
        ..Default::default()
    };
    let recursive = |from: &str, to: &str| CopyRequest {
        recursive: true,
        ..request(from, to)
    };
    assert_eq!(
        code(bench.files.copy(request("dir", "copy")).await),
        Code::FailedPrecondition
    );
    bench.files.copy(recursive("dir", "copy")).await.unwrap();
    assert_eq!(bench.get("copy/file"), bench.get("dir/file"));
    assert_eq!(bench.get("copy/sub/two").unwrap(), b"two");
    assert_eq!(
        fs::read_link(bench.root.join("copy/link"))
            .unwrap()
            .as_os_str(),
        "file"
    );
    assert_eq!(
        fs::metadata(bench.root.join("copy/sub")).unwrap().mode() & 0o777,
        0o555
    );
    assert_eq!(
        code(bench.files.copy(recursive("dir", "copy")).await),
        Code::AlreadyExists
    );
    assert_eq!(
        code(bench.files.copy(recursive("dir", "dir/inner")).await),
        Code::InvalidArgument
    );
    bench
        .files
        .copy(request("dir/link", "plain"))
        .await
        .unwrap();
    assert!(!bench.root.join("plain").is_symlink());
    bench.write("plain", b"changed").await.unwrap();
    assert_eq!(bench.get("dir/file").unwrap().len(), 3 << 20);
    bench.delete("dir", true).await.unwrap();
    bench.delete("copy", true).await.unwrap();
}
