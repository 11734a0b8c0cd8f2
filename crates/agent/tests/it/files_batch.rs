//! Several operations in one call.

use hotcell_agent_api::v1::batch_operation::Operation;
use hotcell_agent_api::v1::*;
use tonic::Code;

use crate::bench::*;

fn write(path: &str, data: &str) -> Operation {
    let header = WriteHeader {
        create_parents: true,
        ..header(path)
    };
    Operation::Write(BatchWrite {
        header: Some(header),
        data: data.to_owned().into(),
    })
}

fn read(path: &str) -> Operation {
    Operation::Read(BatchRead {
        path: path.to_owned().into(),
    })
}

fn delete(path: &str) -> Operation {
    Operation::Delete(DeleteRequest {
        path: path.to_owned().into(),
        recursive: true,
        precondition: None,
    })
}

fn rename(from: &str, to: &str) -> Operation {
    let (path, dest_path) = (from.to_owned().into(), to.to_owned().into());
    Operation::Move(MoveRequest {
        path,
        dest_path,
        overwrite: true,
        ..Default::default()
    })
}

fn copy(from: &str, to: &str) -> Operation {
    let (path, dest_path) = (from.to_owned().into(), to.to_owned().into());
    Operation::Copy(CopyRequest {
        path,
        dest_path,
        overwrite: true,
        recursive: true,
        create_parents: true,
    })
}

fn mkdir(path: &str) -> Operation {
    Operation::Mkdir(MkdirRequest {
        path: path.to_owned().into(),
        mode: Some(0o750),
        parents: false,
    })
}

fn batch(operations: Vec<Operation>, atomic: bool) -> BatchRequest {
    let operations = operations.into_iter().map(|operation| BatchOperation {
        operation: Some(operation),
    });
    BatchRequest {
        operations: operations.collect(),
        atomic,
    }
}

fn bench() -> Bench {
    let bench = Bench::new();
    bench.put("keep", "keep");
    bench.put("dir/file", "file");
    bench.put("dir/sub/deep", "deep");
    bench.put("other", "other");
    bench
}

fn everything() -> Vec<Operation> {
    let append = WriteHeader {
        append: true,
        ..header("keep")
    };
    vec![
        mkdir("new"),
        write("new/made", "made"),
        write("far/away/file", "far"),
        write("keep", "kept"),
        Operation::Write(BatchWrite {
            header: Some(append),
            data: "more".into(),
        }),
        rename("dir", "new/dir"),
        copy("new/dir", "copy"),
        rename("copy/file", "other"),
        delete("new/dir/sub"),
        read("keep"),
    ]
}

#[tokio::test]
async fn an_atomic_batch_does_everything_in_order() {
    let bench = bench();
    let reply = bench.files.batch(batch(everything(), true)).await.unwrap();
    assert!(reply.results.iter().all(|result| result.code == 0));
    assert_eq!(&reply.results[9].data[..], b"keptmore");
    let expected = [
        "copy",
        "copy/sub",
        "copy/sub/deep",
        "far",
        "far/away",
        "far/away/file",
        "keep",
        "new",
        "new/dir",
        "new/dir/file",
        "new/made",
        "other",
    ];
    assert_eq!(bench.tree(), expected);
    assert_eq!(bench.get("other").unwrap(), b"file");
    let etag = bench.stat("keep", false).await.unwrap().etag;
    assert_eq!(reply.results[4].info.as_ref().unwrap().etag, etag);
}

#[tokio::test]
async fn an_atomic_batch_that_fails_anywhere_leaves_no_trace() {
    let bench = bench();
    let before = bench.snapshot();
    for length in 0..=everything().len() {
        let mut operations = everything();
        operations.truncate(length);
        operations.push(read("missing"));
        let status = bench
            .files
            .batch(batch(operations, true))
            .await
            .unwrap_err();
        assert_eq!(status.code(), Code::Aborted, "{status:?}");
        assert_eq!(
            status.metadata().get("hotcell-batch-index").unwrap(),
            length.to_string().as_str()
        );
        assert_eq!(status.metadata().get("hotcell-batch-code").unwrap(), "5");
        assert_eq!(bench.snapshot(), before, "after {length}");
    }
}

#[tokio::test]
async fn a_failed_precondition_in_a_batch_says_the_current_etag() {
    let bench = bench();
    let header = WriteHeader {
        precondition: if_match("0123456789abcdef"),
        ..header("keep")
    };
    let stale = Operation::Write(BatchWrite {
        header: Some(header),
        data: "x".into(),
    });
    let current = bench.stat("keep", false).await.unwrap().etag;
    let status = bench
        .files
        .batch(batch(vec![mkdir("x"), stale.clone()], true))
        .await
        .unwrap_err();
    assert_eq!(
        status.metadata().get("hotcell-etag").unwrap(),
        current.as_str()
    );
    let reply = bench
        .files
        .batch(batch(vec![mkdir("x"), stale], false))
        .await
        .unwrap();
    assert_eq!(reply.results[1].current_etag, current);
    assert_eq!(reply.results[1].code, Code::FailedPrecondition as u32);
    assert!(bench.root.join("x").is_dir());
}

#[tokio::test]
async fn a_batch_that_cannot_be_right_does_nothing_at_all() {
    let bench = bench();
    let before = bench.snapshot();
    let too_large = "x".repeat(3 << 20);
    let bad = [
        (vec![write("a", "a"), read("/etc/passwd")], Some("7")),
        (vec![write("a", "a"), delete("no/../../x")], Some("7")),
        (vec![write("a", "a"), write("b", &too_large)], None),
        (vec![write("a", "a"); 257], None),
        (
            vec![write("a", "a"), Operation::Write(BatchWrite::default())],
            Some("3"),
        ),
    ];
    for (operations, own) in bad {
        for atomic in [true, false] {
            let done = bench.files.batch(batch(operations.clone(), atomic)).await;
            let status = done.unwrap_err();
            let told = status.metadata().get("hotcell-batch-code");
            assert_eq!(told.map(|code| code.to_str().unwrap()), own);
            let index = status.metadata().get("hotcell-batch-index");
            assert_eq!(index.is_some(), own.is_some(), "{status:?}");
        }
    }
    assert_eq!(bench.snapshot(), before);
}

#[tokio::test]
async fn reads_of_a_batch_are_bounded_together() {
    let bench = bench();
    bench.put("large", vec![1; 2 << 20]);
    let reply = bench
        .files
        .batch(batch(
            vec![read("large"), read("large"), read("keep")],
            false,
        ))
        .await
        .unwrap();
    let codes: Vec<_> = reply.results.iter().map(|result| result.code).collect();
    assert_eq!(codes, [0, Code::ResourceExhausted as u32, 0]);
}

#[tokio::test]
async fn a_batch_deletes_a_directory_that_is_empty_by_then() {
    let bench = bench();
    let plain = |path: &str| {
        Operation::Delete(DeleteRequest {
            path: path.to_owned().into(),
            ..Default::default()
        })
    };
    let status = bench
        .files
        .batch(batch(vec![plain("dir/file"), plain("dir")], true))
        .await
        .unwrap_err();
    assert_eq!(status.metadata().get("hotcell-batch-index").unwrap(), "1");
    bench
        .files
        .batch(batch(
            vec![plain("dir/file"), delete("dir/sub"), plain("dir")],
            true,
        ))
        .await
        .unwrap();
    assert_eq!(bench.tree(), ["keep", "other"]);
}
