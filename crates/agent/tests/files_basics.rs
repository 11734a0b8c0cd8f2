//! One file at a time: resolution, reading, writing, deleting, moving, copying.

mod files_support;

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::time::{Duration, Instant};

use files_support::*;
use hotcell_agent_api::v1::*;
use tokio_stream::StreamExt;
use tonic::Code;

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
        let written = code(bench.write(path, b"pwned").await);
        let expected = if path == b".." {
            Code::InvalidArgument
        } else {
            Code::PermissionDenied
        };
        assert_eq!(written, expected, "write {shown}");
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
    let fifo = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(
        rustix::fs::CWD,
        bench.root.join("fifo"),
        fifo,
        0o644.into(),
        0,
    )
    .unwrap();
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
    assert!(started.elapsed() < Duration::from_secs(5));
    assert_eq!(
        bench.stat("fifo", false).await.unwrap().r#type(),
        FileType::Other
    );
}

#[tokio::test]
async fn a_read_has_an_offset_and_a_limit_also_in_a_sparse_terabyte() {
    let bench = Bench::new();
    let content: Vec<u8> = (0..1_000_000_u32).map(|n| n.to_le_bytes()[0]).collect();
    bench.put("file", &content);
    assert_eq!(bench.read("file").await.unwrap(), content);
    assert_eq!(
        bench.read_part("file", 999_990, None).await.unwrap(),
        &content[999_990..]
    );
    assert_eq!(
        bench.read_part("file", 5, Some(400_000)).await.unwrap(),
        &content[5..400_005]
    );
    assert_eq!(bench.read_part("file", 2_000_000, None).await.unwrap(), b"");
    assert_eq!(
        bench
            .read_part("file", u64::MAX, Some(u64::MAX))
            .await
            .unwrap(),
        b""
    );
    let sparse = fs::File::create(bench.root.join("sparse")).unwrap();
    sparse.set_len(1 << 40).unwrap();
    assert_eq!(
        bench
            .read_part("sparse", 1 << 39, Some(300_000))
            .await
            .unwrap(),
        vec![0; 300_000]
    );
}

#[tokio::test]
async fn one_etag_for_every_way_of_asking_and_another_after_every_change() {
    let bench = Bench::new();
    let written = bench.write("file", b"one").await.unwrap().etag;
    let stat = bench.stat("file", false).await.unwrap().etag;
    let page = bench.files.list(list("", false)).await.unwrap();
    let mut replies = bench
        .files
        .read(ReadRequest {
            path: "file".into(),
            ..Default::default()
        })
        .await
        .unwrap();
    let Some(read_reply::Reply::Info(read)) = replies.next().await.unwrap().unwrap().reply else {
        panic!("the first reply describes the file");
    };
    assert_eq!([&stat, &page.entries[0].etag, &read.etag], [&written; 3]);
    assert_eq!(written.len(), 16);
    let rewritten = bench.write("file", b"two").await.unwrap().etag;
    assert_ne!(rewritten, written);
    fs::write(bench.root.join("file"), "longer").unwrap();
    assert_ne!(bench.stat("file", false).await.unwrap().etag, rewritten);
}

#[tokio::test]
async fn a_precondition_that_fails_says_the_current_etag_and_changes_nothing() {
    let bench = Bench::new();
    let etag = bench.write("file", b"one").await.unwrap().etag;
    let conditional = |precondition| WriteHeader {
        precondition,
        ..header("file")
    };
    bench
        .write_as(conditional(if_match(&etag)), b"two")
        .await
        .unwrap();
    let current = bench.stat("file", false).await.unwrap().etag;
    let stale = bench
        .write_as(conditional(if_match(&etag)), b"three")
        .await
        .unwrap_err();
    assert_eq!(stale.code(), Code::FailedPrecondition);
    assert_eq!(
        stale.metadata().get("hotcell-etag").unwrap(),
        current.as_str()
    );
    let absent = bench
        .write_as(conditional(if_absent()), b"three")
        .await
        .unwrap_err();
    assert_eq!(absent.code(), Code::AlreadyExists);
    let delete = DeleteRequest {
        path: "file".into(),
        precondition: if_match(&etag),
        recursive: true,
    };
    assert_eq!(
        code(bench.files.delete(delete).await),
        Code::FailedPrecondition
    );
    assert_eq!(bench.get("file").unwrap(), b"two");
    let missing = WriteHeader {
        precondition: if_match(&etag),
        ..header("missing")
    };
    let missing = bench.write_as(missing, b"x").await.unwrap_err();
    assert_eq!(missing.code(), Code::FailedPrecondition);
    assert!(missing.metadata().get("hotcell-etag").is_none());
    assert_eq!(bench.tree(), ["file"]);
}

#[tokio::test]
async fn of_many_writers_with_the_same_etag_exactly_one_wins() {
    let bench = Bench::new();
    let etag = bench.write("file", b"start").await.unwrap().etag;
    let tasks: Vec<_> = (0..32_u8)
        .map(|n| {
            let files = bench.files.clone();
            let header = WriteHeader {
                precondition: if_match(&etag),
                ..header("file")
            };
            tokio::spawn(async move {
                files
                    .write(tokio_stream::iter(upload(header, &[n; 300_000])))
                    .await
                    .is_ok()
            })
        })
        .collect();
    let mut won = 0;
    for task in tasks {
        won += usize::from(task.await.unwrap());
    }
    assert_eq!(won, 1);
}

#[tokio::test]
async fn a_write_sets_permission_bits_only_and_keeps_those_it_replaces() {
    let bench = Bench::new();
    let mode = |path: &str| fs::metadata(bench.root.join(path)).unwrap().mode() & 0o7777;
    bench.write("plain", b"").await.unwrap();
    assert_eq!(mode("plain"), 0o644);
    bench
        .write_as(
            WriteHeader {
                mode: Some(0o751),
                ..header("script")
            },
            b"",
        )
        .await
        .unwrap();
    bench.write("script", b"again").await.unwrap();
    assert_eq!(mode("script"), 0o751);
    let setuid = WriteHeader {
        mode: Some(0o4755),
        ..header("bad")
    };
    assert_eq!(
        code(bench.write_as(setuid, b"").await),
        Code::InvalidArgument
    );
    fs::set_permissions(
        bench.root.join("script"),
        fs::Permissions::from_mode(0o6711),
    )
    .unwrap();
    bench.write("script", b"third").await.unwrap();
    assert_eq!(mode("script"), 0o711);
}

#[tokio::test]
async fn an_upload_that_breaks_off_leaves_the_old_file_and_nothing_else() {
    let bench = Bench::new();
    bench.put("file", "old");
    let new = WriteHeader {
        path: "made/file".into(),
        create_parents: true,
        ..Default::default()
    };
    for header in [header("file"), new] {
        let mut requests = upload(header, &vec![7; 1 << 20]);
        requests.push(Err(tonic::Status::cancelled("gone")));
        assert_eq!(
            code(bench.files.write(tokio_stream::iter(requests)).await),
            Code::Cancelled
        );
    }
    let stalled = tokio_stream::iter(upload(header("file"), &vec![7; 1 << 20]))
        .chain(tokio_stream::pending());
    let dropped =
        tokio::time::timeout(Duration::from_millis(200), bench.files.write(stalled)).await;
    assert!(dropped.is_err());
    assert_eq!(bench.get("file").unwrap(), b"old");
    assert_eq!(bench.tree(), ["file"]);
}

#[tokio::test]
async fn a_slow_uploader_holds_up_nobody() {
    let bench = Bench::new();
    let stalled = tokio_stream::iter(upload(header("slow"), &vec![7; 1 << 20]))
        .chain(tokio_stream::pending());
    let files = bench.files.clone();
    let slow = tokio::spawn(async move { files.write(stalled).await.map(drop) });
    let quick = tokio::time::timeout(Duration::from_secs(10), bench.write("quick", b"x")).await;
    quick.expect("it does not wait").unwrap();
    slow.abort();
    assert!(slow.await.unwrap_err().is_cancelled());
}

#[tokio::test]
async fn an_append_is_in_place_and_makes_the_file_if_it_is_missing() {
    let bench = Bench::new();
    let append = || WriteHeader {
        append: true,
        ..header("log")
    };
    bench.write_as(append(), b"one").await.unwrap();
    let inode = fs::metadata(bench.root.join("log")).unwrap().ino();
    bench.write_as(append(), b"two").await.unwrap();
    let large = vec![b'x'; 1 << 20];
    let info = bench.write_as(append(), &large).await.unwrap();
    assert_eq!(info.size, 6 + large.len() as u64);
    assert_eq!(bench.get("log").unwrap(), [&b"onetwo"[..], &large].concat());
    assert_eq!(fs::metadata(bench.root.join("log")).unwrap().ino(), inode);
}

#[tokio::test]
async fn parents_are_made_only_when_asked_for() {
    let bench = Bench::new();
    assert_eq!(code(bench.write("a/b/c", b"x").await), Code::NotFound);
    let create = |path: &str| WriteHeader {
        create_parents: true,
        ..header(path)
    };
    bench.write_as(create("a/b/c"), b"x").await.unwrap();
    assert_eq!(
        code(bench.write_as(create("a/b/c/d"), b"x").await),
        Code::FailedPrecondition
    );
    assert_eq!(bench.tree(), ["a", "a/b", "a/b/c"]);
    let mkdir = |path: &str, parents| MkdirRequest {
        path: path.to_owned().into(),
        parents,
        mode: Some(0o700),
    };
    assert_eq!(
        code(bench.files.mkdir(mkdir("x/y", false)).await),
        Code::NotFound
    );
    bench.files.mkdir(mkdir("x/y", true)).await.unwrap();
    bench.files.mkdir(mkdir("x/y", true)).await.unwrap();
    assert_eq!(
        code(bench.files.mkdir(mkdir("x/y", false)).await),
        Code::AlreadyExists
    );
    assert_eq!(
        fs::metadata(bench.root.join("x/y")).unwrap().mode() & 0o777,
        0o700
    );
    bench.link("dangling", "nowhere");
    assert_eq!(
        code(bench.files.mkdir(mkdir("dangling", true)).await),
        Code::AlreadyExists
    );
}

#[tokio::test]
async fn a_delete_protects_the_root_and_follows_no_symlink() {
    let bench = Bench::new();
    bench.put("dir/sub/file", "x");
    bench.link("dir/out", &bench.outside);
    let root = bench.root.as_os_str().as_bytes().to_vec();
    for path in [&b""[..], b".", b"./", &root] {
        assert_eq!(code(bench.delete(path, true).await), Code::PermissionDenied);
    }
    assert_eq!(
        code(bench.delete("dir/sub/../..", true).await),
        Code::InvalidArgument
    );
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

/// Makes `levels` directories inside one another; the paths are far too long.
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
        fs::set_permissions(bench.root.join(path), fs::Permissions::from_mode(mode)).unwrap()
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
        fs::set_permissions(bench.root.join(path), fs::Permissions::from_mode(mode)).unwrap()
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
