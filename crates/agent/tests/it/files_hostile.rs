//! Random paths, and a full disk.

use std::process::Command;

use hotcell_agent_api::v1::*;
use proptest::prelude::*;
use tonic::Code;

use crate::bench::*;

/// The components of a hostile path.
fn component() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        Just(b"..".to_vec()),
        Just(b".".to_vec()),
        Just(b"".to_vec()),
        Just(b"dir".to_vec()),
        Just(b"out".to_vec()),
        Just(b"in".to_vec()),
        Just(b"canary".to_vec()),
        Just(b"file".to_vec()),
        Just(b"outside".to_vec()),
        proptest::collection::vec(any::<u8>(), 0..300),
    ]
}

fn path() -> impl Strategy<Value = Vec<u8>> {
    (any::<bool>(), proptest::collection::vec(component(), 0..8)).prop_map(|(absolute, parts)| {
        let joined = parts.join(&b"/"[..]);
        if absolute {
            [b"/", &joined[..]].concat()
        } else {
            joined
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_path_whatever_leads_out(paths in proptest::collection::vec(path(), 1..6), kind in 0..8_u8) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let bench = Bench::in_memory();
            bench.put("dir/file", "inside");
            bench.link("out", &bench.outside);
            bench.link("dir/out", "../../outside");
            bench.link("in", "dir");
            for path in &paths {
                attempt(&bench, path, kind).await;
            }
        });
    }
}

async fn attempt(bench: &Bench, path: &[u8], kind: u8) {
    let bytes = || bytes::Bytes::copy_from_slice(path);
    let dest_path = bytes::Bytes::from_static(b"taken");
    match kind {
        0 => {
            if let Ok(content) = bench.read(path).await {
                assert_ne!(content, CANARY);
            }
        }
        1 => drop(
            bench
                .write_as(
                    WriteHeader {
                        create_parents: true,
                        ..header(path)
                    },
                    b"new",
                )
                .await,
        ),
        2 => drop(bench.delete(path, true).await),
        3 => drop(
            bench
                .files
                .r#move(MoveRequest {
                    path: bytes(),
                    dest_path,
                    ..Default::default()
                })
                .await,
        ),
        4 => drop(
            bench
                .files
                .r#move(MoveRequest {
                    path: "dir/file".into(),
                    dest_path: bytes(),
                    overwrite: true,
                    create_parents: true,
                    precondition: None,
                })
                .await,
        ),
        5 => {
            let request = CopyRequest {
                path: bytes(),
                dest_path,
                recursive: true,
                ..Default::default()
            };
            if bench.files.copy(request).await.is_ok() {
                assert_ne!(bench.get("taken").as_deref(), Some(CANARY));
            }
        }
        6 => drop(
            bench
                .files
                .mkdir(MkdirRequest {
                    path: bytes(),
                    parents: true,
                    mode: None,
                })
                .await,
        ),
        _ => {
            let listed = bench
                .list(ListRequest {
                    path: bytes(),
                    ..list("", true)
                })
                .await;
            assert!(
                !listed
                    .is_ok_and(|paths| paths.iter().any(|path| path.ends_with(b"outside/canary")))
            );
        }
    }
}

/// Runs itself again with a file size limit of 1 MiB: for a write this is like a full disk, and
/// needs neither root nor a disk.
#[tokio::test]
async fn a_full_disk_is_told_and_leaves_the_old_file() {
    if std::env::var_os(FULL_DISK).is_some() {
        return on_a_full_disk().await;
    }
    let script = "trap '' XFSZ; ulimit -f 1024; \
                  exec \"$0\" --exact files_hostile::a_full_disk_is_told_and_leaves_the_old_file";
    let this = std::env::current_exe().unwrap();
    let run = Command::new("bash")
        .args(["-c", script])
        .arg(this)
        .env(FULL_DISK, "1")
        .output()
        .unwrap();
    assert!(
        run.status.success(),
        "{}",
        String::from_utf8_lossy(&run.stdout)
    );
    assert!(String::from_utf8_lossy(&run.stdout).contains("1 passed"));
}

/// Set when the test runs under the limit.
const FULL_DISK: &str = "HOTCELL_TEST_FULL_DISK";

async fn on_a_full_disk() {
    let bench = Bench::new();
    bench.put("file", "old");
    bench.put("half", vec![1; 700 << 10]);
    let large = vec![7; 2 << 20];
    assert_eq!(
        code(bench.write("file", &large).await),
        Code::ResourceExhausted
    );
    let append = WriteHeader {
        append: true,
        ..header("half")
    };
    assert_eq!(
        code(bench.write_as(append, &large[..700 << 10]).await),
        Code::ResourceExhausted
    );
    let made = WriteHeader {
        create_parents: true,
        ..header("new/dir/file")
    };
    assert_eq!(
        code(bench.write_as(made, &large).await),
        Code::ResourceExhausted
    );
    let header = Some(WriteHeader {
        append: true,
        ..header("half")
    });
    let write = BatchWrite {
        header,
        data: large[..700 << 10].to_vec().into(),
    };
    let operation = Some(batch_operation::Operation::Write(write));
    let batch = BatchRequest {
        operations: vec![BatchOperation { operation }],
        atomic: true,
    };
    assert_eq!(code(bench.files.batch(batch).await), Code::Aborted);
    assert_eq!(bench.get("file").expect("it is there"), b"old");
    assert_eq!(bench.get("half").expect("it is there"), vec![1; 700 << 10]);
    assert_eq!(bench.tree(), ["file", "half"]);
}
