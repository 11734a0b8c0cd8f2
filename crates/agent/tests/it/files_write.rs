//! Reading and writing one file: content, etags, modes, interrupted uploads.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hotcell_agent_api::v1::*;
use tokio_stream::StreamExt;
use tonic::Code;

use crate::bench::*;

/// Only a hanging test takes longer than milliseconds.
const DEADLINE: Duration = Duration::from_mins(1);

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

/// With several threads: with one, nothing could happen between the check and the rename.
#[test]
fn of_many_writers_with_the_same_etag_exactly_one_wins() {
    let bench = Bench::in_memory();
    for _ in 0..200 {
        let etag = alone(bench.write("file", b"start")).unwrap().etag;
        let start = std::sync::Barrier::new(4);
        let writer = |n| {
            let precondition = if_match(&etag);
            let header = WriteHeader {
                precondition,
                ..header("file")
            };
            start.wait();
            alone(bench.write_as(header, &[n])).is_ok()
        };
        let won = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|n| {
                    scope.spawn({
                        let writer = &writer;
                        move || writer(n)
                    })
                })
                .collect();
            let won = threads.into_iter().filter_map(|thread| thread.join().ok());
            won.filter(|won| *won).count()
        });
        assert_eq!(won, 1);
    }
}

fn alone<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.expect("a runtime").block_on(future)
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
        let content = vec![7; 1 << 20];
        let ended = broken_off(header.clone(), &content);
        let mut failed = broken_off(header, &content);
        failed.push(Err(tonic::Status::cancelled("gone")));
        // The library reports a cancelled call as an ended one: both must change nothing.
        for requests in [ended, failed] {
            let answer = bench.files.write(tokio_stream::iter(requests)).await;
            assert_eq!(code(answer), Code::Cancelled);
        }
    }
    let stalled = tokio_stream::iter(broken_off(header("file"), &vec![7; 1 << 20]))
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
    let stalled = tokio_stream::iter(broken_off(header("slow"), &vec![7; 1 << 20]))
        .chain(tokio_stream::pending());
    let files = bench.files.clone();
    let slow = tokio::spawn(async move { files.write(stalled).await.map(drop) });
    let quick = tokio::time::timeout(DEADLINE, bench.write("quick", b"x")).await;
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
async fn files_that_were_replaced_or_deleted_are_let_go() {
    let bench = Bench::new();
    for round in 0..50_u8 {
        bench.write("file", &[round]).await.unwrap();
        bench.write("other", &[round]).await.unwrap();
        bench.delete("other", false).await.unwrap();
    }
    assert_eq!(bench.get("file").unwrap(), [49]);
    let deadline = Instant::now() + DEADLINE;
    while let Some(held) = deleted_but_open(&bench.root) {
        assert!(
            Instant::now() < deadline,
            "{} is still open",
            held.display()
        );
        tokio::task::yield_now().await;
    }
}

/// A deleted file beneath `root` that this process still has open.
fn deleted_but_open(root: &Path) -> Option<PathBuf> {
    fs::read_dir("/proc/self/fd")
        .expect("a process can list its descriptors")
        .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
        .find(|file| file.starts_with(root) && file.as_os_str().as_bytes().ends_with(b"(deleted)"))
}
