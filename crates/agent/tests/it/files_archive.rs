//! Import and export: hostile archives, and round trips of our own.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::time::Duration;

use hotcell_agent_api::v1::*;
use tar::{Builder, EntryType, Header};
use tokio_stream::StreamExt;
use tonic::Code;

use crate::bench::*;

/// Only a hanging test takes longer than milliseconds.
const DEADLINE: Duration = Duration::from_mins(1);

/// A raw member: the tar crate would refuse invalid names.
fn member(kind: EntryType, name: &str, link: &str, content: &[u8]) -> Vec<u8> {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(0o4755);
    header.set_mtime(1_000_000_000);
    header.set_size(content.len() as u64);
    header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
    header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
    header.set_cksum();
    let mut bytes = header.as_bytes().to_vec();
    bytes.extend_from_slice(content);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

fn archive(members: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = members.concat();
    bytes.resize(bytes.len() + 1024, 0);
    bytes
}

fn file(name: &str, content: &str) -> Vec<u8> {
    member(EntryType::Regular, name, "", content.as_bytes())
}

fn symlink(name: &str, target: &str) -> Vec<u8> {
    member(EntryType::Symlink, name, target, b"")
}

fn export(path: &str) -> ExportRequest {
    ExportRequest {
        path: path.to_owned().into(),
        ..Default::default()
    }
}

fn names(archive: &[u8]) -> Vec<String> {
    let mut archive = tar::Archive::new(archive);
    let mut names: Vec<_> = archive
        .entries()
        .unwrap()
        .map(|entry| String::from_utf8_lossy(&entry.unwrap().path_bytes()).into_owned())
        .collect();
    names.sort();
    names
}

#[tokio::test]
async fn a_tree_comes_back_as_it_was_exported() {
    let bench = Bench::new();
    let long = format!("{}/{}", "d".repeat(120), "f".repeat(200));
    bench.put("src/plain", "plain");
    bench.put(&format!("src/{long}"), vec![9; 100_000]);
    bench.put("src/empty/.keep", "");
    bench.link("src/link", "plain");
    bench.link("src/long-link", format!("x/{}", "y".repeat(200)));
    let odd = std::ffi::OsStr::from_bytes(b"\xff\xfe\nname");
    let odd_long = [&b"\xff"[..], &[b'z'; 200]].concat();
    fs::write(bench.root.join("src").join(odd), "odd").unwrap();
    fs::write(
        bench
            .root
            .join("src")
            .join(std::ffi::OsStr::from_bytes(&odd_long)),
        "odd",
    )
    .unwrap();
    fs::set_permissions(
        bench.root.join("src/plain"),
        fs::Permissions::from_mode(0o751),
    )
    .unwrap();
    let packed = bench.export(export("src")).await.unwrap();
    let reply = bench.import("dest/new", &packed).await.unwrap();
    assert_eq!((reply.entries, reply.bytes), (9, 100_011));
    let of = |top: &str| -> Vec<String> {
        bench
            .tree()
            .iter()
            .filter_map(|path| path.strip_prefix(top).map(str::to_owned))
            .collect()
    };
    assert_eq!(of("src/"), of("dest/new/"));
    assert_eq!(
        bench.get(&format!("dest/new/{long}")).unwrap(),
        vec![9; 100_000]
    );
    assert_eq!(
        fs::read(bench.root.join("dest/new").join(odd)).unwrap(),
        b"odd"
    );
    let (old, new) = (
        bench.root.join("src/plain"),
        bench.root.join("dest/new/plain"),
    );
    let (old, new) = (fs::metadata(old).unwrap(), fs::metadata(new).unwrap());
    assert_eq!((old.mode(), old.mtime()), (new.mode(), new.mtime()));
    for link in ["link", "long-link"] {
        let read = |top: &str| fs::read_link(bench.root.join(top).join(link)).unwrap();
        assert_eq!(read("src"), read("dest/new"));
    }
    let single = bench.export(export("src/plain")).await.unwrap();
    assert_eq!(names(&single), ["plain"]);
}

#[tokio::test]
async fn system_tar_reads_ours_and_we_read_its_formats() {
    let bench = Bench::new();
    let name = format!("{}/{}", "n".repeat(150), "m".repeat(150));
    bench.put(&format!("src/{name}"), "content");
    let (src, file) = (bench.root.join("src"), bench.root.join("a.tar"));
    for format in ["gnu", "pax", "ustar", "v7"] {
        if matches!(format, "ustar" | "v7") {
            fs::remove_dir_all(&src).unwrap();
            bench.put("src/short/file", "content");
        }
        let made = std::process::Command::new("tar")
            .args(["--format", format, "-C"])
            .arg(&src)
            .arg("-cf")
            .arg(&file)
            .arg(".")
            .status()
            .unwrap();
        assert!(made.success());
        bench
            .import(format, &fs::read(&file).unwrap())
            .await
            .unwrap();
        let expected = if matches!(format, "gnu" | "pax") {
            name.as_str()
        } else {
            "short/file"
        };
        assert_eq!(
            bench.get(&format!("{format}/{expected}")).unwrap(),
            b"content"
        );
    }
    fs::write(&file, bench.export(export("gnu")).await.unwrap()).unwrap();
    let listed = std::process::Command::new("tar")
        .arg("-tf")
        .arg(&file)
        .output()
        .unwrap();
    assert!(listed.status.success());
    assert!(String::from_utf8_lossy(&listed.stdout).contains(&name));
}

#[tokio::test]
async fn members_that_would_leave_or_are_no_files_end_the_import() {
    let bench = Bench::new();
    let outside = bench.outside.to_str().unwrap().to_owned();
    let kinds = [EntryType::Char, EntryType::Block, EntryType::Fifo];
    let mut bad: Vec<Vec<Vec<u8>>> = vec![
        vec![file("/etc/evil", "x")],
        vec![file("../evil", "x")],
        vec![file("a/../../evil", "x")],
        vec![symlink("l", &outside)],
        vec![symlink("l", "../outside")],
        vec![symlink("a/l", "../../outside")],
        vec![symlink("l", ""), file("x", "x")],
        vec![symlink("s", "."), symlink("s/s/s/l", "../../../outside")],
        vec![symlink("a/b/top", "../.."), symlink("l", "a/b/top/..")],
        vec![member(EntryType::Link, "l", "/etc/passwd", b"")],
        vec![member(EntryType::Link, "l", "../outside/canary", b"")],
        vec![member(EntryType::Link, "l", "missing", b"")],
        vec![member(EntryType::Link, "l", ".", b"")],
    ];
    bad.extend(kinds.map(|kind| vec![member(kind, "dev", "", b"")]));
    for (index, members) in bad.into_iter().enumerate() {
        let mut members = members;
        members.insert(0, file("before", "must not stay"));
        let failed = bench.import(&format!("d{index}"), &archive(&members)).await;
        assert!(
            matches!(
                code(failed),
                Code::InvalidArgument
                    | Code::NotFound
                    | Code::FailedPrecondition
                    | Code::PermissionDenied
            ),
            "{index}"
        );
        assert!(bench.tree().is_empty(), "{index}: {:?}", bench.tree());
    }
}

#[tokio::test]
async fn nothing_is_written_through_a_symlink_that_leads_out() {
    let bench = Bench::new();
    fs::create_dir(bench.root.join("d")).unwrap();
    bench.link("d/out", &bench.outside);
    bench.link("d/up", "../other");
    bench.link("d/canary", bench.outside.join("canary"));
    bench.put("other/file", "safe");
    for name in ["out/canary", "out/new", "up/file", "out/sub/new"] {
        assert_eq!(
            code(bench.import("d", &archive(&[file(name, "x")])).await),
            Code::PermissionDenied,
            "{name}"
        );
    }
    let linked = archive(&[member(EntryType::Link, "got", "out/canary", b"")]);
    assert_eq!(
        code(bench.import("d", &linked).await),
        Code::PermissionDenied
    );
    // A trailing symlink is replaced, not followed.
    bench
        .import("d", &archive(&[file("canary", "mine")]))
        .await
        .unwrap();
    assert!(!bench.root.join("d/canary").is_symlink());
    assert_eq!(bench.get("other/file").unwrap(), b"safe");
    bench
        .import(
            "d",
            &archive(&[symlink("in", "sub"), file("sub/a", "1"), file("in/b", "2")]),
        )
        .await
        .unwrap();
    assert_eq!(bench.get("d/sub/b").unwrap(), b"2");
}

#[tokio::test]
async fn modes_times_and_hard_links_are_kept_and_set_id_bits_are_not() {
    let bench = Bench::new();
    let mut closed = member(EntryType::Directory, "closed/", "", b"");
    closed[100..108].copy_from_slice(b"0000555\0");
    let sum: u32 = (0..512)
        .map(|n| {
            if (148..156).contains(&n) {
                32
            } else {
                u32::from(closed[n])
            }
        })
        .sum();
    closed[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let hard = member(EntryType::Link, "second", "closed/first", b"");
    let again = member(EntryType::Link, "closed/first", "closed/first", b"");
    bench
        .import(
            "",
            &archive(&[closed, file("closed/first", "x"), hard, again]),
        )
        .await
        .unwrap();
    let meta = |path: &str| fs::metadata(bench.root.join(path)).unwrap();
    assert_eq!(meta("closed").mode() & 0o7777, 0o555);
    assert_eq!(meta("second").mode() & 0o7777, 0o755);
    assert_eq!(meta("second").mtime(), 1_000_000_000);
    assert_eq!(
        (meta("second").ino(), meta("second").nlink()),
        (meta("closed/first").ino(), 2)
    );
    bench.delete("closed", true).await.unwrap();
}

#[tokio::test]
async fn an_archive_is_bounded_in_bytes_members_and_names() {
    let bench = Bench::new();
    let header = |bytes_max, entries_max| ImportHeader {
        dest: "d".into(),
        bytes_max,
        entries_max,
    };
    let two = archive(&[file("a", "12345"), file("b", "12345")]);
    assert_eq!(
        code(bench.import_as(header(9, 0), &two).await),
        Code::ResourceExhausted
    );
    assert_eq!(
        code(bench.import_as(header(0, 1), &two).await),
        Code::ResourceExhausted
    );
    bench.import_as(header(10, 2), &two).await.unwrap();
    let mut sparse = Header::new_gnu();
    sparse.set_entry_type(EntryType::GNUSparse);
    sparse.set_size(0);
    {
        let gnu = sparse.as_gnu_mut().unwrap();
        gnu.name[..1].copy_from_slice(b"s");
        gnu.realsize.copy_from_slice(b"77777777777\0");
        gnu.sparse[0].offset.copy_from_slice(b"77777777777\0");
        gnu.sparse[0].numbytes.copy_from_slice(b"00000000000\0");
    }
    sparse.set_mode(0o644);
    sparse.set_mtime(0);
    sparse.set_cksum();
    let bomb = archive(&[sparse.as_bytes().to_vec()]);
    assert_eq!(
        code(bench.import_as(header(1 << 20, 0), &bomb).await),
        Code::ResourceExhausted
    );
    let long = member(
        EntryType::GNULongName,
        "././@LongLink",
        "",
        &vec![b'x'; 3 << 20],
    );
    assert_eq!(
        code(bench.import("d", &archive(&[long, file("a", "x")])).await),
        Code::InvalidArgument
    );
    assert_eq!(bench.tree(), ["d", "d/a", "d/b"]);
}

#[tokio::test]
async fn an_archive_that_is_cut_off_or_rubbish_is_an_error() {
    let bench = Bench::new();
    let whole = archive(&[
        file("first", "x"),
        member(EntryType::Regular, "second", "", &vec![1; 100_000]),
    ]);
    assert_eq!(
        code(bench.import("", &whole[..50_000]).await),
        Code::InvalidArgument
    );
    assert_eq!(
        code(bench.import("", &[0x55; 4096]).await),
        Code::InvalidArgument
    );
    assert!(bench.tree().is_empty(), "{:?}", bench.tree());
    let piece = |data: Vec<u8>| {
        Ok(ImportRequest {
            request: Some(import_request::Request::Data(data.into())),
        })
    };
    let head = Ok(ImportRequest {
        request: Some(import_request::Request::Header(ImportHeader::default())),
    });
    let broken = vec![
        head.clone(),
        piece(whole[..1024].to_vec()),
        Err(tonic::Status::unavailable("gone")),
    ];
    assert_eq!(
        code(bench.files.import(tokio_stream::iter(broken)).await),
        Code::Unavailable
    );
    let stalled = tokio_stream::iter(vec![head.clone(), piece(whole[..1024].to_vec())])
        .chain(tokio_stream::pending());
    assert!(
        tokio::time::timeout(Duration::from_millis(100), bench.files.import(stalled))
            .await
            .is_err()
    );
    let oversize = vec![head, piece(vec![0; (32 << 10) + 1])];
    assert_eq!(
        code(bench.files.import(tokio_stream::iter(oversize)).await),
        Code::InvalidArgument
    );
    // All permits have been released.
    for _ in 0..20 {
        let done = tokio::time::timeout(DEADLINE, async {
            while bench.import("", &archive(&[])).await.is_err() {
                tokio::task::yield_now().await;
            }
        });
        done.await.unwrap();
    }
    // What was interrupted is removed, though not at once.
    let gone = tokio::time::timeout(DEADLINE, async {
        while !bench.tree().is_empty() {
            tokio::task::yield_now().await;
        }
    });
    gone.await.expect("nothing of a broken upload stays");
}

#[tokio::test]
async fn an_import_that_fails_leaves_the_destination_as_it_was() {
    let bench = Bench::new();
    for number in 0..20 {
        bench.put(&format!("d/sub/{number}"), "old");
    }
    fs::create_dir(bench.root.join("d/busy")).unwrap();
    bench.put("d/plain", "old");
    bench.link("d/link", "sub");
    let before = bench.snapshot();
    let mut good: Vec<Vec<u8>> = (0..40)
        .flat_map(|number| {
            [
                file(&format!("sub/{number}"), "new"),
                file(&format!("fresh{number}/deep/file"), "new"),
                file(&format!("link/new{number}"), "new"),
            ]
        })
        .collect();
    good.push(symlink("plain", "sub"));
    let bad = [
        // Refused while it is unpacked.
        file("../out", "x"),
        // Refused only when it meets the existing directory.
        file("busy", "a file in place of a directory"),
        file("plain/x", "a directory in place of a file"),
        file("sub/7/x", "the same, further down"),
    ];
    for (index, bad) in bad.into_iter().enumerate() {
        let mut members = good.clone();
        if index == 2 {
            members.pop();
        }
        members.push(bad);
        assert!(bench.import("d", &archive(&members)).await.is_err());
        assert_eq!(bench.snapshot(), before, "{index}");
    }
    let mut long = archive(&good);
    long.resize(long.len() + (2 << 20), b'x');
    assert_eq!(code(bench.import("d", &long).await), Code::InvalidArgument);
    assert_eq!(bench.snapshot(), before, "what follows the end is too long");
    // Positive control: without the bad member everything arrives.
    let reply = bench.import("d", &archive(&good)).await.unwrap();
    assert_eq!(reply.entries, 121);
    assert_eq!(bench.get("d/sub/7").unwrap(), b"new");
    assert_eq!(bench.get("d/sub/new7").unwrap(), b"new");
    assert_eq!(bench.get("d/fresh7/deep/file").unwrap(), b"new");
    assert!(bench.root.join("d/plain").is_symlink());
}

#[tokio::test]
async fn a_symlink_of_an_archive_is_not_put_behind_one_that_is_there() {
    let bench = Bench::new();
    fs::create_dir_all(bench.root.join("d/x")).unwrap();
    bench.link("d/x/up", ".");
    let escaping = archive(&[symlink("x/up/l", "../../outside")]);
    assert!(bench.import("d", &escaping).await.is_err());
    assert_eq!(bench.tree(), ["d", "d/x", "d/x/up"]);
    let nested = archive(&[symlink("x/up/new/l", "../../../outside")]);
    assert!(bench.import("d", &nested).await.is_err());
    assert_eq!(bench.tree(), ["d", "d/x", "d/x/up"]);
    let plain = archive(&[file("x/up/new/f", "1")]);
    bench.import("d", &plain).await.unwrap();
    assert_eq!(bench.get("d/x/new/f").unwrap(), b"1");
}

#[tokio::test]
async fn what_an_import_of_a_dead_agent_left_is_cleared_away() {
    let bench = Bench::new();
    let left = format!(".hotcell-import-{:016x}-{:016x}", 1, 2);
    bench.put(&format!("{left}/deep/file"), "half");
    bench.put(".hotcell-import-of-mine", "stays");
    let _files = hotcell_agent::files::Files::open(&bench.root).unwrap();
    let gone = tokio::time::timeout(DEADLINE, async {
        while bench.root.join(&left).exists() {
            tokio::task::yield_now().await;
        }
    });
    gone.await.expect("it is cleared away");
    assert_eq!(bench.get(".hotcell-import-of-mine").unwrap(), b"stays");
    fs::remove_file(bench.root.join(".hotcell-import-of-mine")).unwrap();
}

#[tokio::test]
async fn an_export_takes_what_is_included_and_not_excluded() {
    let bench = Bench::new();
    for path in ["src/a.rs", "src/deep/b.rs", "target/x", "readme"] {
        bench.put(path, "");
    }
    let globs = |include: &[&str], exclude: &[&str]| ExportRequest {
        include: include.iter().map(ToString::to_string).collect(),
        exclude: exclude.iter().map(ToString::to_string).collect(),
        ..export("")
    };
    let all = bench.export(globs(&[], &["target"])).await.unwrap();
    assert_eq!(
        names(&all),
        ["readme", "src/", "src/a.rs", "src/deep/", "src/deep/b.rs"]
    );
    let some = bench
        .export(globs(&["**/*.rs"], &["src/deep"]))
        .await
        .unwrap();
    assert_eq!(names(&some), ["src/a.rs"]);
    let whole = bench.export(globs(&["src"], &[])).await.unwrap();
    assert_eq!(
        names(&whole),
        ["src/", "src/a.rs", "src/deep/", "src/deep/b.rs"]
    );
    let many = vec!["*"; 65];
    assert_eq!(
        code(bench.export(globs(&many, &[])).await),
        Code::InvalidArgument
    );
}

#[tokio::test]
async fn an_export_leaves_out_what_is_no_file_and_survives_files_that_change() {
    let bench = Bench::new();
    bench.make_fifo("fifo");
    let _socket = std::os::unix::net::UnixListener::bind(bench.root.join("socket")).unwrap();
    bench.put("shrinks", vec![7; 4 << 20]);
    let mut replies = bench.files.export(export("")).await.unwrap();
    let mut packed = replies.next().await.unwrap().unwrap().data.to_vec();
    fs::write(bench.root.join("shrinks"), "small").unwrap();
    while let Some(reply) = replies.next().await {
        packed.extend_from_slice(&reply.unwrap().data);
    }
    let mut archive = tar::Archive::new(&packed[..]);
    let mut sizes = Vec::new();
    for entry in archive.entries().unwrap() {
        let mut content = Vec::new();
        let mut entry = entry.unwrap();
        std::io::Read::read_to_end(&mut entry, &mut content).unwrap();
        sizes.push(content.len());
    }
    assert_eq!(sizes, [4 << 20]);
}

#[tokio::test]
async fn an_export_that_nobody_reads_any_more_ends() {
    let bench = Bench::new();
    bench.put("large", vec![7; 4 << 20]);
    for _ in 0..40 {
        let opened = tokio::time::timeout(DEADLINE, async {
            loop {
                if let Ok(replies) = bench.files.export(export("")).await {
                    return replies;
                }
                tokio::task::yield_now().await;
            }
        });
        let mut replies = opened.await.expect("permits come back");
        replies.next().await.unwrap().unwrap();
    }
    let held: Vec<_> = tokio::time::timeout(DEADLINE, async {
        let mut held = Vec::new();
        while held.len() < 8 {
            match bench.files.export(export("")).await {
                Ok(replies) => held.push(replies),
                Err(_) => tokio::task::yield_now().await,
            }
        }
        held
    })
    .await
    .unwrap();
    assert_eq!(
        code(bench.export(export("")).await),
        Code::ResourceExhausted
    );
    drop(held);
}

#[tokio::test]
async fn a_builder_of_the_tar_crate_is_understood() {
    let bench = Bench::new();
    let mut builder = Builder::new(Vec::new());
    let mut header = Header::new_gnu();
    header.set_size(1);
    header.set_mode(0o644);
    let long = format!("{}/x", "p".repeat(150));
    builder.append_data(&mut header, &long, &b"1"[..]).unwrap();
    let archive = builder.into_inner().unwrap();
    bench.import("", &archive).await.unwrap();
    assert_eq!(bench.get(&long).unwrap(), b"1");
}
