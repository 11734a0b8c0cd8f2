//! Layers that a registry sends: nothing is written outside of the layer's directory.

#![no_main]

use std::path::Path;

/// Where a header keeps its checksum.
const CHECKSUM: std::ops::Range<usize> = 148..156;

/// Gives every block the checksum of a header, which chance never finds.
fn with_checksums(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for block in bytes.chunks_exact_mut(512).filter(|block| block[0] != 0) {
        block[CHECKSUM].fill(b' ');
        let sum: u32 = block.iter().copied().map(u32::from).sum();
        block[CHECKSUM].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }
    bytes
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let memory = Path::new("/dev/shm");
    let base = if memory.is_dir() {
        tempfile::tempdir_in(memory)
    } else {
        tempfile::tempdir()
    };
    let base = base.expect("a temporary directory");
    let root = base.path().join("root");
    std::fs::create_dir(&root).expect("a directory");
    // Compressed ones as they are.
    let is_compressed = bytes.starts_with(&[0x1f, 0x8b]) || bytes.starts_with(&[0x28, 0xb5]);
    if is_compressed {
        hotcell_image::fuzzing::layer(bytes, &root);
    } else {
        hotcell_image::fuzzing::layer(&with_checksums(bytes), &root);
    }
    let entries = std::fs::read_dir(base.path()).expect("the directory");
    assert_eq!(entries.count(), 1, "something is outside of the layer");
});
