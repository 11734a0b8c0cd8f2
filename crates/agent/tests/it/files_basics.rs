//! Resolving paths: what is found, what is refused, and that nothing blocks.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};

use hotcell_agent_api::v1::*;
use tonic::Code;

use crate::bench::*;

#[tokio::test]
async fn a_path_that_leaves_the_root_is_denied_and_never_another_file() {
    let bench = Bench::new();
    bench.link("absolute", bench.outside.join("canary"));
    bench.link("relative", "../outside/canary");
    bench.link("dir", &bench.outside);
    fs::create_dir(bench.root.join("sub")).unwrap();
    let outside = bench.outside.join("canary").as_os_str().as_bytes().to_vec();
    let sibling = [bench.root.as_os_str().as_bytes(), b"2/x"].concat();
    let cases: Vec<&[u8]> = vec![
        b"absolute",
        b"relative",
        b"dir/canary",
        b"../outside/canary",
        b"sub/../../outside/canary",
        &outside,
        &sibling,
        b"/etc/passwd",
        b"/",
        b"..",
        b"/proc/self/root/etc/passwd",
    ];
    for path in cases {
        let shown = String::from_utf8_lossy(path).into_owned();
        assert_eq!(
            code(bench.read(path).await),
            Code::PermissionDenied,
            "read {shown}"
        );
        assert_eq!(
            code(bench.stat(path, true).await),
            Code::PermissionDenied,
            "stat {shown}"
        );
        assert_eq!(
            code(bench.write(path, b"pwned").await),
            Code::PermissionDenied,
            "write {shown}"
        );
        let mut creating = header(path);
        creating.create_parents = true;
        assert!(
            bench.write_as(creating, b"pwned").await.is_err(),
            "create {shown}"
        );
    }
    assert_eq!(
        code(bench.delete("dir/canary", true).await),
        Code::PermissionDenied
    );
    assert_eq!(
        code(bench.list(list("dir", false)).await),
        Code::PermissionDenied
    );
    let moved = MoveRequest {
        path: "dir/canary".into(),
        dest_path: "got".into(),
        ..Default::default()
    };
    assert_eq!(
        code(bench.files.r#move(moved).await),
        Code::PermissionDenied
    );
    let copied = CopyRequest {
        path: "absolute".into(),
        dest_path: "got".into(),
        ..Default::default()
    };
    assert_eq!(code(bench.files.copy(copied).await), Code::PermissionDenied);
    let made = MkdirRequest {
        path: "dir/new".into(),
        parents: true,
        mode: None,
    };
    assert_eq!(code(bench.files.mkdir(made).await), Code::PermissionDenied);
}

#[tokio::test]
async fn symlinks_that_stay_inside_are_followed() {
    let bench = Bench::new();
    bench.put("a/b/file", "content");
    bench.link("link", "a/b");
    bench.link("a/b/up", "../../a/b/file");
    assert_eq!(bench.read("link/file").await.unwrap(), b"content");
    assert_eq!(bench.read("link/up").await.unwrap(), b"content");
    assert_eq!(bench.read("link/../b/file").await.unwrap(), b"content");
    let described = bench.stat("a/b/up", false).await.unwrap();
    assert_eq!(described.r#type(), FileType::Symlink);
    assert_eq!(&described.target[..], b"../../a/b/file");
    let absolute = bench.root.join("a/b/file");
    assert_eq!(
        bench.read(absolute.as_os_str().as_bytes()).await.unwrap(),
        b"content"
    );
    assert_eq!(&bench.stat("", false).await.unwrap().path[..], b"");
    assert_eq!(
        bench.stat(".", false).await.unwrap().r#type(),
        FileType::Directory
    );
}

#[tokio::test]
async fn a_write_goes_through_a_symlink_and_keeps_it() {
    let bench = Bench::new();
    bench.put("real/file", "old");
    bench.link("link", "real/hop");
    bench.link("real/hop", "../real/file");
    bench.write("link", b"new").await.unwrap();
    assert_eq!(bench.get("real/file").unwrap(), b"new");
    assert!(bench.root.join("link").is_symlink() && bench.root.join("real/hop").is_symlink());
    bench.link("loop", "loop");
    assert_eq!(
        code(bench.write("loop", b"x").await),
        Code::FailedPrecondition
    );
    bench.link("dangling", "real/new");
    bench.write("dangling", b"made").await.unwrap();
    assert_eq!(bench.get("real/new").unwrap(), b"made");
}

#[tokio::test]
async fn any_file_name_works() {
    let bench = Bench::new();
    let names: [&[u8]; 4] = [
        b"new\nline|bar",
        b"\xff\xfe invalid",
        &[b'x'; 255],
        b" .lead",
    ];
    for name in names {
        bench.write(name, name).await.unwrap();
        assert_eq!(bench.read(name).await.unwrap(), name);
    }
    let mut expected: Vec<_> = names.iter().map(|name| name.to_vec()).collect();
    expected.sort();
    assert_eq!(bench.list(list("", false)).await.unwrap(), expected);
    assert_eq!(
        code(bench.write([b'x'; 256], b"").await),
        Code::InvalidArgument
    );
    assert_eq!(
        code(bench.write(b"nul\0", b"").await),
        Code::InvalidArgument
    );
    assert_eq!(
        code(bench.read("a/".repeat(2049)).await),
        Code::InvalidArgument
    );
    for name in names {
        bench.delete(name, false).await.unwrap();
    }
}

#[tokio::test]
async fn nothing_but_a_regular_file_is_read_or_written_and_nothing_blocks() {
    let bench = Bench::new();
    bench.make_fifo("fifo");
    let _socket = std::os::unix::net::UnixListener::bind(bench.root.join("socket")).unwrap();
    fs::create_dir(bench.root.join("dir")).unwrap();
    let started = Instant::now();
    for path in ["fifo", "socket", "dir"] {
        assert_eq!(
            code(bench.read(path).await),
            Code::FailedPrecondition,
            "{path}"
        );
        assert_eq!(
            code(bench.write(path, b"x").await),
            Code::FailedPrecondition,
            "{path}"
        );
    }
    let copied = CopyRequest {
        path: "fifo".into(),
        dest_path: "copy".into(),
        ..Default::default()
    };
    assert_eq!(
        code(bench.files.copy(copied).await),
        Code::FailedPrecondition
    );
    assert!(
        started.elapsed() < Duration::from_mins(1),
        "it was waited for"
    );
    assert_eq!(
        bench.stat("fifo", false).await.unwrap().r#type(),
        FileType::Other
    );
}
