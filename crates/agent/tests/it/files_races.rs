//! Races: directories that are replaced by symlinks during an operation.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hotcell_agent_api::v1::*;
use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::bench::*;

/// The fewest attempts of each operation while the directory keeps changing.
const ROUNDS: usize = 2000;

/// How long to wait until both outcomes of a race have been seen.
const DEADLINE: Duration = Duration::from_mins(10);

/// Keeps exchanging `flip` (a directory) with `flop` (a symlink to the outside).
struct Swapper {
    stop: Arc<AtomicBool>,
    swaps: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Swapper {
    fn start(bench: &Bench, dir: &str, link: &str) -> Self {
        bench.put(&format!("{dir}/canary"), "inside");
        bench.link(link, &bench.outside);
        let (one, other) = (bench.root.join(dir), bench.root.join(link));
        let (stop, swaps) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicU64::new(0)),
        );
        let (told, count) = (Arc::clone(&stop), Arc::clone(&swaps));
        let thread = std::thread::spawn(move || {
            while !told.load(Ordering::Relaxed) {
                // Fails when one of them was moved or deleted; the next round is fine.
                let _ = renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE);
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        Self {
            stop,
            swaps,
            thread: Some(thread),
        }
    }
}

impl Drop for Swapper {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the swapper does not panic");
        }
    }
}

/// Repeats one operation against the swapper; the bench checks the outside. Both outcomes of the
/// race must have been seen.
async fn race<F: AsyncFnMut(&Bench) -> Result<(), tonic::Status>>(mut operation: F) {
    let bench = Bench::in_memory();
    let swapper = Swapper::start(&bench, "flip", "flop");
    let (mut done, mut refused) = (0, 0);
    let deadline = Instant::now() + DEADLINE;
    let raced =
        |done, refused| done > 0 && refused > 0 && swapper.swaps.load(Ordering::Relaxed) > 100;
    while done + refused < ROUNDS || !raced(done, refused) {
        assert!(
            Instant::now() < deadline,
            "no race: {done} done, {refused} refused"
        );
        match operation(&bench).await {
            Ok(()) => done += 1,
            Err(_) => refused += 1,
        }
    }
}

#[tokio::test]
async fn a_swapped_directory_never_lets_a_read_out() {
    race(async |bench| {
        let content = bench.read("flip/canary").await?;
        assert_eq!(content, b"inside");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_swapped_directory_never_lets_a_write_out() {
    race(async |bench| bench.write("flip/canary", b"inside").await.map(drop)).await;
}

#[tokio::test]
async fn a_swapped_directory_never_lets_new_parents_or_an_append_out() {
    race(async |bench| {
        let made = WriteHeader {
            create_parents: true,
            ..header("flip/new/file")
        };
        bench.write_as(made, b"x").await?;
        bench
            .write_as(
                WriteHeader {
                    append: true,
                    ..header("flip/canary")
                },
                b"",
            )
            .await?;
        bench.delete("flip/new", true).await.map(drop)
    })
    .await;
}

#[tokio::test]
async fn a_swapped_directory_never_lets_a_delete_out() {
    race(async |bench| {
        bench.write("flip/victim", b"x").await?;
        bench.delete("flip/victim", true).await.map(drop)
    })
    .await;
}

#[tokio::test]
async fn a_tree_that_is_swapped_while_it_is_deleted_takes_nothing_else_along() {
    let bench = Bench::in_memory();
    let swapper = Swapper::start(&bench, "tree/flip", "tree/flop");
    let mut removed = 0;
    for _ in 0..ROUNDS {
        removed += bench.delete("tree", true).await.unwrap_or(0);
        // Created elsewhere and moved in at once, so that the swapper cannot redirect us.
        bench.put("made/flip/sub/file", "inside");
        let _ = std::os::unix::fs::symlink(&bench.outside, bench.root.join("made/flop"));
        let _ = std::fs::rename(bench.root.join("made"), bench.root.join("tree"));
    }
    assert!(removed > 100 && swapper.swaps.load(Ordering::Relaxed) > 100);
}

#[tokio::test]
async fn a_swapped_directory_never_lets_a_move_or_a_copy_out() {
    race(async |bench| {
        let flip = bytes::Bytes::from_static(b"flip/canary");
        let got = bytes::Bytes::from_static(b"got");
        let copy = CopyRequest {
            path: flip.clone(),
            dest_path: got.clone(),
            overwrite: true,
            ..Default::default()
        };
        bench.files.copy(copy).await?;
        assert_eq!(bench.get("got").unwrap(), b"inside");
        let back = MoveRequest {
            path: got,
            dest_path: flip,
            overwrite: true,
            ..Default::default()
        };
        bench.files.r#move(back).await.map(drop)
    })
    .await;
}

#[tokio::test]
async fn a_swapped_directory_never_lets_a_listing_or_an_export_out() {
    race(async |bench| {
        let page = bench.files.list(list("", true)).await?;
        let seen = page
            .entries
            .iter()
            .filter(|entry| entry.path.ends_with(b"canary"));
        for entry in seen {
            assert_eq!(entry.size, "inside".len() as u64);
        }
        let request = ExportRequest {
            path: "flip".into(),
            ..Default::default()
        };
        let packed = bench.export(request).await?;
        assert!(!packed.windows(CANARY.len()).any(|window| window == CANARY));
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_swapped_directory_never_lets_an_import_or_a_batch_out() {
    let bench = Bench::in_memory();
    bench.put("src/canary", "inside");
    bench.put("src/sub/new", "inside");
    let packed = bench
        .export(ExportRequest {
            path: "src".into(),
            ..Default::default()
        })
        .await
        .unwrap();
    race(async |bench| {
        bench.import("flip", &packed).await?;
        let header = Some(WriteHeader {
            create_parents: true,
            ..header("flip/sub/batch")
        });
        let write = BatchWrite {
            header,
            data: "inside".into(),
        };
        let delete = DeleteRequest {
            path: "flip/sub".into(),
            recursive: true,
            precondition: None,
        };
        let operations = [
            batch_operation::Operation::Write(write),
            batch_operation::Operation::Delete(delete),
        ];
        let operations = operations.map(|operation| BatchOperation {
            operation: Some(operation),
        });
        bench
            .files
            .batch(BatchRequest {
                operations: operations.to_vec(),
                atomic: true,
            })
            .await
            .map(drop)
    })
    .await;
}
