//! Archives that a caller imports: nothing is written outside of the destination.

#![no_main]

use std::path::Path;

use hotcell_agent::files::fuzzing;

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
    fuzzing::archive(bytes, &root, 1 << 20);
    for directory in [base.path(), &root] {
        let entries = std::fs::read_dir(directory).expect("the directory");
        assert!(
            entries.count() <= 1,
            "something is outside of the destination"
        );
    }
});
