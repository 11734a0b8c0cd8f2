use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::*;
use tar::{EntryType, Header};

use super::*;
use crate::hash::digest_of;

/// One member of a layer that a test makes.
#[derive(Debug, Clone)]
struct Made {
    kind: EntryType,
    path: Vec<u8>,
    link: Vec<u8>,
    content: Vec<u8>,
    mode: u32,
    id: u64,
}

fn made(kind: EntryType, path: &str, link: &str, content: &str) -> Made {
    Made {
        kind,
        path: path.into(),
        link: link.into(),
        content: content.into(),
        mode: 0o755,
        id: 0,
    }
}

fn file(path: &str, content: &str) -> Made {
    made(EntryType::Regular, path, "", content)
}

fn directory(path: &str) -> Made {
    made(EntryType::Directory, path, "", "")
}

fn symlink(path: &str, target: &str) -> Made {
    made(EntryType::Symlink, path, target, "")
}

fn hard_link(path: &str, target: &str) -> Made {
    made(EntryType::Link, path, target, "")
}

/// Writes names unchanged, which the tar crate refuses to do.
fn archive(members: &[Made]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for member in members {
        let mut header = Header::new_gnu();
        let gnu = header.as_gnu_mut().unwrap();
        let len = member.path.len().min(100);
        gnu.name[..len].copy_from_slice(&member.path[..len]);
        let len = member.link.len().min(100);
        gnu.linkname[..len].copy_from_slice(&member.link[..len]);
        header.set_entry_type(member.kind);
        header.set_mode(member.mode);
        header.set_uid(member.id);
        header.set_gid(member.id);
        header.set_mtime(1_000_000_000);
        header.set_size(member.content.len() as u64);
        header.set_cksum();
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(&member.content);
        bytes.resize(bytes.len().next_multiple_of(512), 0);
    }
    bytes.resize(bytes.len() + 1024, 0);
    bytes
}

/// A directory with the layer in it, and a sibling that must not change.
struct UnpackDir {
    base: tempfile::TempDir,
}

impl UnpackDir {
    fn new() -> Self {
        let base = tempfile::tempdir().unwrap();
        fs::create_dir(base.path().join("layer")).unwrap();
        fs::write(base.path().join("beside"), "untouched").unwrap();
        Self { base }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.base.path().join("layer").join(name)
    }

    fn unpack(&self, bytes: &[u8]) -> Result<Digest, UnpackError> {
        self.unpack_with(bytes, &Bounds::default())
    }

    fn unpack_with(&self, bytes: &[u8], bounds: &Bounds) -> Result<Digest, UnpackError> {
        let root = fs::File::open(self.path("")).unwrap();
        unpack_bytes(bytes, root.into(), bounds)
    }

    fn assert_nothing_outside(&self) {
        let names = fs::read_dir(self.base.path()).unwrap();
        let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names.len(), 2, "{names:?}");
        let beside = fs::read_to_string(self.base.path().join("beside")).unwrap();
        assert_eq!(beside, "untouched");
    }
}

fn refused(members: &[Made]) -> String {
    let unpacked = UnpackDir::new();
    let error = unpacked.unpack(&archive(members)).unwrap_err();
    unpacked.assert_nothing_outside();
    error.to_string()
}

#[test]
fn a_layer_is_unpacked_as_it_is() {
    let unpacked = UnpackDir::new();
    let mut secret = file("etc/shadow", "x");
    secret.mode = 0o640;
    let bytes = archive(&[
        directory("etc/"),
        secret,
        file("./usr/bin/tool", "run"),
        hard_link("usr/bin/again", "usr/bin/tool"),
        symlink("bin", "usr/bin"),
        directory("var/empty"),
    ]);
    assert_eq!(unpacked.unpack(&bytes).unwrap(), digest_of(&bytes));
    assert_eq!(fs::read(unpacked.path("usr/bin/again")).unwrap(), b"run");
    let tool = fs::metadata(unpacked.path("usr/bin/tool")).unwrap();
    assert_eq!((tool.nlink(), tool.mtime()), (2, 1_000_000_000));
    assert_eq!(tool.permissions().mode() & 0o7777, 0o755);
    let shadow = fs::metadata(unpacked.path("etc/shadow")).unwrap();
    assert_eq!(shadow.permissions().mode() & 0o7777, 0o640);
    let target = fs::read_link(unpacked.path("bin")).unwrap();
    assert_eq!(target, Path::new("usr/bin"));
    let etc = fs::metadata(unpacked.path("etc")).unwrap();
    assert_eq!(etc.mtime(), 1_000_000_000);
}

#[test]
fn compressed_layers_have_the_digest_of_what_is_in_them() {
    let bytes = archive(&[file("a", &"b".repeat(1_000_000))]);
    let (first, second) = bytes.split_at(300_000);
    // Two members of gzip, as some builders write them.
    let gzip = |part: &[u8]| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(part).unwrap();
        encoder.finish().unwrap()
    };
    let gzipped = [gzip(first), gzip(second)].concat();
    let level = ruzstd::encoding::CompressionLevel::Fastest;
    let zstd = |part: &[u8]| ruzstd::encoding::compress_to_vec(part, level);
    // Two frames, with a skippable one between them.
    let skipped = [&[0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], b"abc"].concat();
    let zstd = [zstd(first), skipped, zstd(second)].concat();
    for compressed in [gzipped, zstd, bytes.clone()] {
        let unpacked = UnpackDir::new();
        assert_eq!(unpacked.unpack(&compressed).unwrap(), digest_of(&bytes));
        assert_eq!(fs::metadata(unpacked.path("a")).unwrap().len(), 1_000_000);
    }
}

#[test]
fn truncated_or_damaged_layers_are_invalid() {
    let bytes = archive(&[file("a", &"b".repeat(100_000))]);
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(&bytes).unwrap();
    let gzipped = encoder.finish().unwrap();
    let level = ruzstd::encoding::CompressionLevel::Fastest;
    let zstd = ruzstd::encoding::compress_to_vec(&bytes[..], level);
    for whole in [bytes.clone(), gzipped, zstd] {
        let unpacked = UnpackDir::new();
        assert!(unpacked.unpack(&whole[..whole.len() / 2]).is_err());
    }
    let mut damaged = bytes;
    damaged[0] ^= 1;
    assert!(UnpackDir::new().unpack(&damaged).is_err());
}

#[test]
fn names_that_lead_out_make_a_layer_invalid() {
    for path in ["../out", "a/../../out", "..", "/../out"] {
        assert_eq!(refused(&[file(path, "x")]), "a name holds `..`", "{path}");
    }
    let unpacked = UnpackDir::new();
    unpacked
        .unpack(&archive(&[file("/etc/passwd", "x")]))
        .unwrap();
    assert_eq!(fs::read(unpacked.path("etc/passwd")).unwrap(), b"x");
}

#[test]
fn a_link_never_stands_for_a_directory() {
    let outside = tempfile::tempdir().unwrap();
    let target = outside.path().to_str().unwrap();
    for target in [target, "..", "inside"] {
        let members = [directory("inside"), symlink("a", target), file("a/x", "x")];
        assert_eq!(refused(&members), "something else stands for a directory");
        let members = [
            directory("inside"),
            symlink("a", target),
            directory("a/b/c"),
        ];
        assert_eq!(refused(&members), "something else stands for a directory");
    }
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
}

#[test]
fn a_file_replaces_a_link_and_is_not_written_through_it() {
    let unpacked = UnpackDir::new();
    let members = [
        symlink("a", "../beside"),
        file("a", "new"),
        symlink("d", ".."),
        directory("d"),
        file("d/x", "x"),
    ];
    unpacked.unpack(&archive(&members)).unwrap();
    unpacked.assert_nothing_outside();
    assert_eq!(fs::read(unpacked.path("a")).unwrap(), b"new");
    assert!(fs::symlink_metadata(unpacked.path("d")).unwrap().is_dir());
}

#[test]
fn hard_links_lead_to_files_of_their_own_layer_only() {
    let absent = "a hard link leads to no file of its layer";
    assert_eq!(refused(&[hard_link("a", "lower")]), absent);
    assert_eq!(refused(&[hard_link("a", "/etc/passwd")]), absent);
    assert_eq!(refused(&[hard_link("a", "../beside")]), "a name holds `..`");
    assert_eq!(refused(&[directory("d"), hard_link("a", "d")]), absent);
    let members = [symlink("s", ".."), hard_link("a", "s/beside")];
    assert_eq!(refused(&members), absent);
    // To a link itself, never through it.
    let unpacked = UnpackDir::new();
    let members = [
        symlink("s", "../beside"),
        hard_link("a", "s"),
        hard_link("a", "a"),
    ];
    unpacked.unpack(&archive(&members)).unwrap();
    assert!(
        fs::symlink_metadata(unpacked.path("a"))
            .unwrap()
            .is_symlink()
    );
}

#[test]
fn devices_set_user_id_bits_and_large_ids_stay_behind() {
    let unpacked = UnpackDir::new();
    let mut su = file("su", "x");
    (su.mode, su.id) = (0o6755, 0x7fff_ffff);
    let mut shared = directory("tmp");
    shared.mode = 0o1777;
    let disk = made(EntryType::Block, "disk", "", "");
    let null = made(EntryType::Char, "null", "", "");
    let pipe = made(EntryType::Fifo, "pipe", "", "");
    unpacked
        .unpack(&archive(&[su, shared, disk, null, pipe]))
        .unwrap();
    let su = fs::metadata(unpacked.path("su")).unwrap();
    assert_eq!(su.permissions().mode() & 0o7777, 0o755);
    if rustix::process::geteuid().is_root() {
        assert_eq!((su.uid(), su.gid()), (65534, 65534));
    }
    let tmp = fs::metadata(unpacked.path("tmp")).unwrap();
    assert_eq!(tmp.permissions().mode() & 0o7777, 0o1777);
    assert!(!unpacked.path("disk").exists() && !unpacked.path("null").exists());
    let pipe = fs::symlink_metadata(unpacked.path("pipe")).unwrap();
    assert!(pipe.file_type().is_fifo());
}

#[test]
fn deletions_become_those_of_overlayfs() {
    let unpacked = UnpackDir::new();
    let members = [
        file("etc/.wh.motd", ""),
        directory("cache"),
        file("cache/.wh..wh..opq", ""),
        file("cache/kept", "x"),
        // Deleted in lower layers and created again here.
        file(".wh.again", ""),
        directory("again"),
        file("both", "x"),
        file(".wh.both", ""),
        file(".wh..wh.aufs", ""),
    ];
    unpacked.unpack(&archive(&members)).unwrap();
    let motd = fs::symlink_metadata(unpacked.path("etc/motd")).unwrap();
    assert!(motd.file_type().is_char_device() && motd.rdev() == 0);
    let opaque = |name: &str| {
        let mut value = [0; 4];
        let found = rustix::fs::getxattr(unpacked.path(name), OPAQUE, &mut value);
        found.is_ok() && value[0] == b'y'
    };
    assert!(opaque("cache") && opaque("again") && !opaque("etc"));
    assert_eq!(fs::read(unpacked.path("both")).unwrap(), b"x");
    let names = fs::read_dir(unpacked.path("")).unwrap();
    let is_mark = |name: &std::ffi::OsString| name.as_bytes().starts_with(b".wh.");
    assert!(
        !names
            .map(|entry| entry.unwrap().file_name())
            .any(|name| is_mark(&name))
    );
}

#[test]
fn bombs_stop_at_their_bounds() {
    let bounds = Bounds {
        unpacked_bytes_max: 1 << 20,
        entries_max: 100,
        ..Bounds::default()
    };
    let unpacked = UnpackDir::new();
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder
        .write_all(&archive(&[file("a", &"0".repeat(2 << 20))]))
        .unwrap();
    let bomb = encoder.finish().unwrap();
    let error = unpacked.unpack_with(&bomb, &bounds).unwrap_err();
    assert!(matches!(error, UnpackError::TooLarge { .. }), "{error}");
    let many: Vec<_> = (0..101).map(|n| file(&n.to_string(), "")).collect();
    let error = UnpackDir::new()
        .unpack_with(&archive(&many), &bounds)
        .unwrap_err();
    assert!(matches!(error, UnpackError::TooLarge { .. }), "{error}");
    // A name longer than memory.
    let mut long = made(EntryType::GNULongName, "././@LongLink", "", "");
    long.content = vec![b'a'; 2 << 20];
    assert_eq!(refused(&[long]), "a name or attribute is too long");
    let deep = file(&"a/".repeat(49), "").path;
    let mut member = made(EntryType::GNULongName, "././@LongLink", "", "");
    member.content = deep.repeat(20);
    assert_eq!(
        refused(&[member, file("x", "")]),
        "a name is too long or too deep"
    );
}

#[test]
fn directories_that_are_only_implied_count_as_well() {
    let bounds = Bounds {
        entries_max: 100,
        ..Bounds::default()
    };
    // Three files, and 97 directories that no member names.
    let deep = |top: &str, depth: usize| file(&format!("{top}/{}x", "d/".repeat(depth - 1)), "");
    let fits = archive(&[deep("a", 40), deep("b", 40), deep("c", 17)]);
    UnpackDir::new().unpack_with(&fits, &bounds).unwrap();
    let many: Vec<_> = (0..60).map(|n| file(&format!("{n}/x"), "")).collect();
    let error = UnpackDir::new()
        .unpack_with(&archive(&many), &bounds)
        .unwrap_err();
    assert!(
        matches!(error, UnpackError::TooLarge { max: 100, .. }),
        "{error}"
    );
}

#[test]
fn what_is_skipped_counts_as_well() {
    let bounds = Bounds {
        unpacked_bytes_max: 1 << 20,
        entries_max: 100,
        ..Bounds::default()
    };
    let content = "0".repeat(100 << 10);
    let skipped = [
        made(EntryType::Block, "disk", "", &content),
        made(EntryType::XGlobalHeader, "global", "", &content),
        made(EntryType::Regular, ".wh..wh.aufs", "", &content),
        made(EntryType::GNULongName, "././@LongLink", "", &content),
    ];
    for one in &skipped {
        for (times, content) in [(11, &one.content[..]), (101, b"")] {
            let content = content.to_vec();
            let one = Made {
                content,
                ..one.clone()
            };
            let many = archive(&vec![one.clone(); times]);
            let error = UnpackDir::new().unpack_with(&many, &bounds).unwrap_err();
            let is_refused = matches!(error, UnpackError::TooLarge { .. });
            assert!(is_refused, "{:?} {times} times: {error}", one.kind);
        }
    }
}

#[test]
fn long_and_strange_names_work() {
    let unpacked = UnpackDir::new();
    let long = "d/".repeat(60) + &"n".repeat(200);
    let mut name = made(EntryType::GNULongName, "././@LongLink", "", "");
    name.content = [long.as_bytes(), b"\0"].concat();
    let mut pax = made(EntryType::XHeader, "pax", "", "");
    pax.content = b"15 path=by/pax\n".to_vec();
    let mut strange = file("", "s");
    strange.path = b"\xff\xfe\n\t'".to_vec();
    let members = [name, file("short", "x"), pax, file("other", "y"), strange];
    unpacked.unpack(&archive(&members)).unwrap();
    assert_eq!(fs::read(unpacked.path(&long)).unwrap(), b"x");
    assert_eq!(fs::read(unpacked.path("by/pax")).unwrap(), b"y");
    let strange = std::ffi::OsStr::from_bytes(b"\xff\xfe\n\t'");
    assert_eq!(fs::read(unpacked.path("").join(strange)).unwrap(), b"s");
}

#[test]
fn attributes_and_names_may_hold_a_newline() {
    let unpacked = UnpackDir::new();
    let mut pax = made(EntryType::XHeader, "pax", "", "");
    let capability = b"36 SCHILY.xattr.security.cap=a\nb=\n\xff\n";
    pax.content = [&capability[..], b"12 path=a\nb\n"].concat();
    unpacked
        .unpack(&archive(&[pax, file("other", "y")]))
        .unwrap();
    assert_eq!(fs::read(unpacked.path("a\nb")).unwrap(), b"y");
    // Its length is that of another record.
    let mut pax = made(EntryType::XHeader, "pax", "", "");
    pax.content = b"13 path=a\nb\n".to_vec();
    assert_eq!(refused(&[pax, file("x", "")]), "a header is damaged");
}

#[test]
fn an_unpacking_that_nobody_wants_stops() {
    let unpacked = UnpackDir::new();
    let unpack = Unpack {
        bounds: &Bounds::default(),
        budget: &Budget::of_image(&Bounds::default()),
        stop: &AtomicBool::new(true),
        report: &|_| (),
    };
    let root = fs::File::open(unpacked.path("")).unwrap();
    let bytes = archive(&[file("a", "x")]);
    let error = unpack.layer(&bytes[..], root.into()).unwrap_err();
    assert!(!unpacked.path("a").exists(), "{error}");
}

/// Colliding names: links and directories of the same name, and ways out.
fn any_name() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        Just("a"),
        Just("b"),
        Just(".."),
        Just("."),
        Just(""),
        Just(".wh.a"),
        Just(".wh..wh..opq"),
        Just("beside"),
        Just("layer"),
    ];
    prop::collection::vec(part, 1..4).prop_map(|parts| parts.join("/"))
}

fn any_member() -> impl Strategy<Value = Made> {
    let kind = prop_oneof![
        Just(EntryType::Regular),
        Just(EntryType::Directory),
        Just(EntryType::Symlink),
        Just(EntryType::Link),
        Just(EntryType::Fifo),
        Just(EntryType::Char),
    ];
    let target = prop_oneof![
        any_name(),
        Just("/tmp".to_owned()),
        Just("../beside".to_owned())
    ];
    (kind, any_name(), target, "[a-z]{0,9}").prop_map(|(kind, path, link, content)| {
        let content = if kind == EntryType::Regular {
            content
        } else {
            String::new()
        };
        made(kind, &path, &link, &content)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn nothing_ever_appears_outside_of_the_layer(members in prop::collection::vec(any_member(), 0..12)) {
        let unpacked = UnpackDir::new();
        // First together, then one by one, so that a refused member does not mask the others.
        let _ = unpacked.unpack(&archive(&members));
        for member in &members {
            let _ = unpacked.unpack(&archive(std::slice::from_ref(member)));
        }
        unpacked.assert_nothing_outside();
    }

    #[test]
    fn no_bytes_make_unpacking_panic(bytes in prop::collection::vec(any::<u8>(), 0..2048)) {
        let unpacked = UnpackDir::new();
        let _ = unpacked.unpack(&bytes);
        unpacked.assert_nothing_outside();
    }
}
