//! How fast files are, without store, service and connection. Prints, and fails only when
//! something is badly wrong.

mod files_support;

use std::time::Instant;

use files_support::*;

#[tokio::test]
async fn a_small_read_and_a_small_write_cost_little() {
    let bench = Bench::in_memory();
    bench.put("file", vec![1; 1024]);
    let content = vec![2; 1024];
    let started = Instant::now();
    for _ in 0..2000 {
        bench.read("file").await.unwrap();
    }
    let read = started.elapsed() / 2000;
    let started = Instant::now();
    for _ in 0..2000 {
        bench.write("file", &content).await.unwrap();
    }
    let write = started.elapsed() / 2000;
    eprintln!("1 KiB: read {read:?}, write {write:?}");
    // Ten times the promise: this is a debug build on a shared machine.
    assert!(
        read.as_micros() < 2000 && write.as_micros() < 2000,
        "read {read:?}, write {write:?}"
    );
}
