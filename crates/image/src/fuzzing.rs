//! Entry points of the fuzz targets.

use std::os::fd::OwnedFd;
use std::path::Path;

use hotcell_domain::Reference;
use rustix::fs::{CWD, Mode, OFlags};

use crate::Bounds;
use crate::registry::{parse_config, parse_manifest};
use crate::unpack::unpack_bytes;

/// Unpacks a layer into an empty directory, with bounds small enough for a fuzzer to reach.
pub fn layer(bytes: &[u8], root: &Path) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(root) = rustix::fs::openat(CWD, root, flags, Mode::empty()) else {
        return;
    };
    let root: OwnedFd = root;
    let bounds = Bounds {
        unpacked_bytes_max: 1 << 20,
        entries_max: 256,
        ..Bounds::default()
    };
    let _ = unpack_bytes(bytes, root, &bounds);
}

/// Parses a manifest and a configuration.
pub fn manifest(bytes: &[u8]) {
    let Ok(reference) = Reference::parse("fuzz") else {
        return;
    };
    let _ = parse_manifest(bytes, &reference, &Bounds::default());
    let _ = parse_config(bytes, &reference);
}
