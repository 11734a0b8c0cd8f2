//! Operations that a process in the container tries to make endless.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use hotcell_agent_api::v1::*;

use crate::bench::*;

/// Only an endless operation takes longer than milliseconds.
const DEADLINE: Duration = Duration::from_mins(1);

fn copy(from: &str, to: &str) -> CopyRequest {
    CopyRequest {
        path: from.as_bytes().to_vec().into(),
        dest_path: to.as_bytes().to_vec().into(),
        recursive: true,
        ..Default::default()
    }
}

#[tokio::test]
async fn a_sparse_terabyte_is_copied_as_holes() {
    let bench = Bench::in_memory();
    bench.put("d/start", "");
    let file = fs::File::create(bench.root.join("d/sparse")).unwrap();
    let place = 700 << 30;
    std::os::unix::fs::FileExt::write_all_at(&file, b"here", place).unwrap();
    file.set_len(1 << 40).unwrap();
    let copied = tokio::time::timeout(DEADLINE, bench.files.copy(copy("d", "copy"))).await;
    copied.expect("holes are not written").unwrap();
    let found = fs::metadata(bench.root.join("copy/sparse")).unwrap();
    assert_eq!(found.len(), 1 << 40);
    assert!(found.blocks() < 1 << 14, "{} blocks", found.blocks());
    let read = bench.read_part("copy/sparse", place - 2, Some(8)).await;
    assert_eq!(read.unwrap(), b"\0\0here\0\0");
}

#[tokio::test]
async fn a_tree_in_place_of_a_temporary_file_is_not_walked_when_an_upload_breaks_off() {
    let bench = Bench::in_memory();
    bench.put("trap/inner", "x");
    let (requests, uploaded) = tokio::sync::mpsc::channel(64);
    for request in broken_off(header("file"), &vec![7; 1 << 20]) {
        requests.send(request).await.unwrap();
    }
    let stalled = tokio_stream::wrappers::ReceiverStream::new(uploaded);
    let files = bench.files.clone();
    let upload = tokio::spawn(async move { files.write(stalled).await.map(drop) });
    let temporary = loop {
        let mut names = bench.tree().into_iter();
        if let Some(name) = names.find(|name| name.starts_with(".hotcell-")) {
            break bench.root.join(name);
        }
        tokio::task::yield_now().await;
    };
    fs::remove_file(&temporary).unwrap();
    fs::rename(bench.root.join("trap"), &temporary).unwrap();
    let broken = Err(tonic::Status::cancelled("gone"));
    requests.send(broken).await.unwrap();
    upload.await.unwrap().unwrap_err();
    assert!(temporary.join("inner").exists());
    fs::remove_dir_all(temporary).unwrap();
}
