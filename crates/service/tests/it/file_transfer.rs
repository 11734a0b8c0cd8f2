//! Large files and archives, and what a lost connection does to them.

use bytes::Bytes;
use hotcell_service::{FilePath, Precondition, ServiceError, Settings, WriteOptions};
use hotcell_testkit::fake::Faults;
use hotcell_testkit::world::{PATIENCE, World, said};

fn path(text: &str) -> FilePath {
    FilePath::parse(text.as_bytes()).expect("it is short")
}

#[tokio::test(flavor = "multi_thread")]
async fn pieces_of_any_size_make_one_file_that_appears_at_the_end() {
    let world = World::new().await;
    let container = world.spawn().await;
    let whole: Vec<u8> = (0..5_000_000_u32).map(|n| (n % 251) as u8).collect();
    let name = path("large");
    let options = WriteOptions::default();
    let writer = world
        .service
        .file_writer(&world.caller, &container, &name, options);
    let mut writer = writer.await.unwrap();
    let mut rest = Bytes::from(whole.clone());
    for size in [
        1,
        0,
        31,
        32 << 10,
        (32 << 10) + 1,
        1 << 20,
        3 << 20,
        usize::MAX,
    ] {
        let piece = rest.split_to(size.min(rest.len()));
        writer.write(piece).await.unwrap();
    }
    assert!(!world.root(&container).join("large").exists());
    assert_eq!(writer.finish().await.unwrap().size, 5_000_000);
    let (_, reader) = world
        .service
        .file_read(&world.caller, &container, &name, 0, None)
        .await
        .unwrap();
    assert!(reader.collect(8 << 20).await.unwrap() == whole);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_that_is_dropped_changes_nothing() {
    let world = World::new().await;
    let container = world.spawn().await;
    let file = world.root(&container).join("f");
    std::fs::write(&file, "before").unwrap();
    let name = path("f");
    let options = WriteOptions::default();
    let writer = world
        .service
        .file_writer(&world.caller, &container, &name, options);
    let mut writer = writer.await.unwrap();
    writer.write(Bytes::from(vec![1; 1 << 20])).await.unwrap();
    drop(writer);
    // Another call is answered after the agent has seen the end of that one.
    let stat = world
        .service
        .file_stat(&world.caller, &container, &name)
        .await
        .unwrap();
    assert_eq!(stat.size, 6);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "before");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_archive_goes_out_and_comes_in() {
    let world = World::new().await;
    let container = world.spawn().await;
    let root = world.root(&container);
    std::fs::create_dir_all(root.join("from/deep")).unwrap();
    std::fs::write(root.join("from/deep/file"), "content").unwrap();
    std::fs::write(root.join("from/skipped.tmp"), "x").unwrap();
    let exclude = vec!["*.tmp".to_owned()];
    let (from, to) = (path("from"), path("to"));
    let export = world
        .service
        .file_export(&world.caller, &container, &from, vec![], exclude);
    let tar = export.await.unwrap().collect(1 << 20).await.unwrap();
    let import = world.service.file_import(&world.caller, &container, &to);
    let mut writer = import.await.unwrap();
    writer.write(tar.into()).await.unwrap();
    let (entries, _) = writer.finish().await.unwrap();
    assert!(entries >= 2, "{entries}");
    let copy = std::fs::read_to_string(root.join("to/deep/file")).unwrap();
    assert_eq!(copy, "content");
    assert!(!root.join("to/skipped.tmp").exists());

    let import = world.service.file_import(&world.caller, &container, &to);
    let mut writer = import.await.unwrap();
    let sent = writer.write(Bytes::from(vec![b'x'; 4096])).await;
    let refused = match sent {
        Ok(()) => writer.finish().await.map(drop),
        Err(error) => Err(error),
    };
    assert!(said(refused).starts_with("invalid: the archive was refused"));
}

/// Whatever is cut: a read that is answered is right, and a write that is answered is there.
#[tokio::test(flavor = "multi_thread")]
async fn files_are_right_over_connections_that_are_cut() {
    let mut answered = 0;
    for seed in 0..12 {
        let world = World::with(Settings::default(), Faults::from_seed(seed)).await;
        let container = world.spawn().await;
        for number in 0..12_u8 {
            let name = path(&format!("f{number}"));
            let data = Bytes::from(vec![number; 40_000]);
            let write = async |options| {
                let data = data.clone();
                let service = &world.service;
                service
                    .file_write(&world.caller, &container, &name, data, options)
                    .await
            };
            if let Err(error) = write(WriteOptions::default()).await {
                assert!(is_honest(&error), "seed {seed}: {error}");
                continue;
            }
            let read = async {
                let service = &world.service;
                let read = service.file_read(&world.caller, &container, &name, 0, None);
                let (_, reader) = read.await?;
                reader.collect(1 << 20).await
            };
            match read.await {
                Ok(read) => {
                    assert!(read == data, "seed {seed}");
                    answered += 1;
                }
                Err(error) => assert!(is_honest(&error), "seed {seed}: {error}"),
            }
            let absent = WriteOptions {
                precondition: Precondition::Absent,
                ..WriteOptions::default()
            };
            if let Err(error) = write(absent).await {
                let exists = matches!(error, ServiceError::AlreadyExists { .. });
                assert!(exists || is_honest(&error), "seed {seed}: {error}");
            } else {
                panic!("seed {seed}: the file was not there");
            }
        }
    }
    assert!(answered > 60, "only {answered} were answered");
}

/// The container died or could not be reached: nothing else may go wrong.
fn is_honest(error: &ServiceError) -> bool {
    matches!(
        error,
        ServiceError::Unavailable { .. }
            | ServiceError::NotFound {
                what: "container",
                ..
            }
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_can_be_made_from_any_task() {
    let world = World::new().await;
    let container = world.spawn().await;
    let (service, caller) = (world.service.clone(), world.caller.clone());
    let name = path("f");
    let task = tokio::spawn(async move {
        let options = WriteOptions::default();
        let data = Bytes::from_static(b"x");
        service
            .file_write(&caller, &container, &name, data, options)
            .await?;
        service.file_stat(&caller, &container, &name).await?;
        let options = WriteOptions::default();
        let writer = service
            .file_writer(&caller, &container, &name, options)
            .await?;
        writer.finish().await?;
        let (_, mut reader) = service
            .file_read(&caller, &container, &name, 0, None)
            .await?;
        while reader.next().await?.is_some() {}
        let list = hotcell_service::List {
            limit: 1,
            ..hotcell_service::List::default()
        };
        service
            .file_list(&caller, &container, &path("."), list)
            .await?;
        let any = Precondition::Any;
        service
            .file_delete(&caller, &container, &name, true, any)
            .await?;
        service
            .file_batch(&caller, &container, vec![], true)
            .await
            .map(drop)
    });
    let done = tokio::time::timeout(PATIENCE, task).await;
    assert!(said(done.unwrap().unwrap()).starts_with("invalid: a batch"));
}
