//! Archives that a caller imports: nothing is written outside of the destination.

#![no_main]

use std::path::Path;

use hotcell_agent::files::fuzzing;

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
    fuzzing::archive(&with_checksums(bytes), &root, 1 << 20);
    for directory in [base.path(), &root] {
        let entries = std::fs::read_dir(directory).expect("the directory");
        assert!(
            entries.count() <= 1,
            "something is outside of the destination"
        );
    }
});
