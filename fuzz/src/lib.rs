//! What is fuzzed: each function takes whatever bytes there are, and panics only for a bug.
//!
//! `fuzz/run` gives them to a fuzzer, and the tests of this crate give them what `fuzz/seeds` has.

#![forbid(unsafe_code)]

use std::path::Path;

use tempfile::TempDir;

/// One thing to fuzz.
pub type Target = fn(&[u8]);

/// All of them, by the names that `fuzz/run` and `fuzz/seeds` know.
pub const TARGETS: [(&str, Target); 7] = [
    ("agent_answers", agent_answers),
    ("agent_archives", agent_archives),
    ("agent_requests", agent_requests),
    ("egress_first_bytes", egress_first_bytes),
    ("egress_proxy", egress_proxy),
    ("image_layers", image_layers),
    ("image_manifests", image_manifests),
];

/// Bytes that an archive may unpack to.
const UNPACKED_BYTES_MAX: u64 = 1 << 20;

/// Where a header of an archive keeps its checksum.
const CHECKSUM: std::ops::Range<usize> = 148..156;

/// What a container sends to the server.
pub fn agent_answers(bytes: &[u8]) {
    hotcell_agent_client::fuzzing::answers(bytes);
}

/// What a caller sends to the agent.
pub fn agent_requests(bytes: &[u8]) {
    hotcell_agent::files::fuzzing::requests(bytes);
    hotcell_agent::files::fuzzing::glob(bytes);
}

/// Archives that a caller imports: nothing is written outside of the destination.
pub fn agent_archives(bytes: &[u8]) {
    let base = in_memory();
    let root = base.path().join("root");
    std::fs::create_dir(&root).expect("a directory");
    hotcell_agent::files::fuzzing::archive(&with_checksums(bytes), &root, UNPACKED_BYTES_MAX);
    for directory in [base.path(), &root] {
        assert!(
            entries(directory) <= 1,
            "something is outside of the destination"
        );
    }
}

/// Layers that a registry sends: nothing is written outside of the layer's directory.
pub fn image_layers(bytes: &[u8]) {
    let base = in_memory();
    let root = base.path().join("root");
    std::fs::create_dir(&root).expect("a directory");
    // Compressed ones as they are.
    let is_compressed = bytes.starts_with(&[0x1f, 0x8b]) || bytes.starts_with(&[0x28, 0xb5]);
    if is_compressed {
        hotcell_image::fuzzing::layer(bytes, &root);
    } else {
        hotcell_image::fuzzing::layer(&with_checksums(bytes), &root);
    }
    assert_eq!(entries(base.path()), 1, "something is outside of the layer");
}

/// Manifests and configurations that a registry sends.
pub fn image_manifests(bytes: &[u8]) {
    hotcell_image::fuzzing::manifest(bytes);
}

/// What a container sends to the broker first: DNS queries, TLS, names and paths.
pub fn egress_first_bytes(bytes: &[u8]) {
    hotcell_egress::fuzzing::query(bytes);
    hotcell_egress::fuzzing::client_hello(bytes);
    hotcell_egress::fuzzing::text(bytes);
}

/// What a container sends to the broker's proxy: SOCKS5, and the targets of `CONNECT`.
pub fn egress_proxy(bytes: &[u8]) {
    hotcell_egress::fuzzing::socks(bytes);
    hotcell_egress::fuzzing::connect(bytes);
}

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

/// A directory that is gone at the end, in memory where that is possible.
fn in_memory() -> TempDir {
    let memory = Path::new("/dev/shm");
    let base = if memory.is_dir() {
        tempfile::tempdir_in(memory)
    } else {
        tempfile::tempdir()
    };
    base.expect("a temporary directory")
}

fn entries(directory: &Path) -> usize {
    std::fs::read_dir(directory).expect("the directory").count()
}
