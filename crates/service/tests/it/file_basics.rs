//! Files through the service.

use bytes::Bytes;
use hotcell_domain::ContainerRef;
use hotcell_service::{
    FileInfo, FileOperation, FilePath, List, Precondition, ServiceError, WriteOptions,
};
use hotcell_testkit::world::{World, caller, said};

fn path(text: &str) -> FilePath {
    FilePath::parse(text.as_bytes()).expect("it is short")
}

async fn write(
    world: &World,
    container: &ContainerRef,
    name: &str,
    data: &[u8],
    options: WriteOptions,
) -> Result<FileInfo, ServiceError> {
    let data = Bytes::copy_from_slice(data);
    let service = &world.service;
    service
        .file_write(&world.caller, container, &path(name), data, options)
        .await
}

async fn read(
    world: &World,
    container: &ContainerRef,
    name: &str,
) -> Result<(FileInfo, Vec<u8>), ServiceError> {
    let path = path(name);
    let read = world
        .service
        .file_read(&world.caller, container, &path, 0, None);
    let (info, reader) = read.await?;
    Ok((info, reader.collect(64 << 20).await?))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_written_is_read_and_has_one_etag_everywhere() {
    let world = World::new().await;
    let container = world.spawn().await;
    let parents = WriteOptions {
        create_parents: true,
        ..WriteOptions::default()
    };
    let binary: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    let written = write(&world, &container, "/workspace/a/b.bin", &binary, parents)
        .await
        .unwrap();
    let (info, data) = read(&world, &container, "a/b.bin").await.unwrap();
    assert!(data == binary);
    let stat = world
        .service
        .file_stat(&world.caller, &container, &path("a//b.bin"))
        .await
        .unwrap();
    let list = List {
        limit: 10,
        ..List::default()
    };
    let page = world
        .service
        .file_list(&world.caller, &container, &path("a"), list)
        .await
        .unwrap();
    let listed = &page.entries[0];
    assert_eq!(
        [&info.etag, &stat.etag, &listed.etag],
        [&written.etag, &written.etag, &written.etag]
    );
    assert_eq!((stat.size, &*listed.path), (100_000, &b"a/b.bin"[..]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_of_a_file_is_read() {
    let world = World::new().await;
    let container = world.spawn().await;
    write(
        &world,
        &container,
        "f",
        b"0123456789",
        WriteOptions::default(),
    )
    .await
    .unwrap();
    let name = path("f");
    let read = world
        .service
        .file_read(&world.caller, &container, &name, 3, Some(4));
    let (info, reader) = read.await.unwrap();
    assert_eq!(info.size, 10);
    assert_eq!(reader.collect(100).await.unwrap(), b"3456");
    let read = world
        .service
        .file_read(&world.caller, &container, &name, 0, None);
    let (_, reader) = read.await.unwrap();
    assert_eq!(
        said(reader.collect(5).await),
        "exhausted: it has more than 5 bytes"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_file_is_a_conflict_with_its_etag() {
    let world = World::new().await;
    let container = world.spawn().await;
    let first = write(&world, &container, "f", b"one", WriteOptions::default())
        .await
        .unwrap();
    let matching = |etag: &str| WriteOptions {
        precondition: Precondition::Matches(etag.to_owned()),
        ..WriteOptions::default()
    };
    let second = write(&world, &container, "f", b"two", matching(&first.etag))
        .await
        .unwrap();
    let refused = write(&world, &container, "f", b"three", matching(&first.etag)).await;
    let Err(ServiceError::Conflict { current_etag, .. }) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(current_etag, Some(second.etag));
    let refused = write(&world, &container, "new", b"x", matching(&first.etag)).await;
    assert!(matches!(
        refused,
        Err(ServiceError::Conflict {
            current_etag: None,
            ..
        })
    ));
    let absent = WriteOptions {
        precondition: Precondition::Absent,
        ..WriteOptions::default()
    };
    let refused = write(&world, &container, "f", b"x", absent).await;
    assert_eq!(said(refused), "exists: file f exists already");
    assert_eq!(read(&world, &container, "f").await.unwrap().1, b"two");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_path_leads_out() {
    let world = World::new().await;
    let container = world.spawn().await;
    let root = world.root(&container);
    std::os::unix::fs::symlink("/etc/passwd", root.join("absolute")).unwrap();
    std::os::unix::fs::symlink("../../..", root.join("up")).unwrap();
    std::fs::create_dir(root.with_file_name("root2")).unwrap();
    let beside = root.canonicalize().unwrap().display().to_string() + "2/f";
    for name in [
        "absolute",
        "up/x",
        "../x",
        "/etc/passwd",
        "/workspace2",
        "/workspace2/f",
        "/workspace/../x",
        "/proc/1/environ",
        &beside,
    ] {
        let refused = read(&world, &container, name).await;
        assert!(said(refused).starts_with("denied: "), "{name}");
        let refused = write(&world, &container, name, b"x", WriteOptions::default()).await;
        assert!(said(refused).starts_with("denied: "), "{name}");
    }
    assert!(!root.with_file_name("root2").join("f").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn any_name_works_and_its_errors_name_it() {
    let world = World::new().await;
    let container = world.spawn().await;
    for name in ["new\nline", "a|b", "ü 😀", " ", "-rf", "\u{1b}[31m"] {
        write(&world, &container, name, b"x", WriteOptions::default())
            .await
            .unwrap();
        assert_eq!(read(&world, &container, name).await.unwrap().1, b"x");
    }
    let missing = read(&world, &container, "no/such").await;
    assert_eq!(said(missing), "not found: there is no file no/such");
    let stranger = caller("stranger", "client");
    let foreign = world
        .service
        .file_stat(&stranger, &container, &path("f"))
        .await;
    assert_eq!(
        said(foreign),
        format!("not found: there is no container {container}")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_deleted_and_the_root_is_not() {
    let world = World::new().await;
    let container = world.spawn().await;
    write(&world, &container, "f", b"x", WriteOptions::default())
        .await
        .unwrap();
    let delete = async |name: &str| {
        let path = path(name);
        let any = Precondition::Any;
        world
            .service
            .file_delete(&world.caller, &container, &path, true, any)
            .await
    };
    delete("f").await.unwrap();
    assert_eq!(said(delete("f").await), "not found: there is no file f");
    for root in ["/workspace", ".", "/workspace/", "a/.."] {
        let refused = said(delete(root).await);
        assert!(!refused.starts_with("internal"), "{root}: {refused}");
    }
    assert!(world.root(&container).is_dir());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_is_all_or_nothing_and_names_what_failed() {
    let world = World::new().await;
    let container = world.spawn().await;
    let write = |name: &str| FileOperation::Write {
        path: name.into(),
        data: Bytes::from_static(b"x"),
        options: WriteOptions::default(),
    };
    let read = |name: &str| FileOperation::Read { path: name.into() };
    let batch = async |operations, atomic| {
        world
            .service
            .file_batch(&world.caller, &container, operations, atomic)
            .await
    };
    let failed = batch(vec![write("/workspace/a"), read("missing")], true).await;
    assert!(matches!(
        &failed,
        Err(ServiceError::Batch { index: 1, is_undone: true, cause })
            if matches!(**cause, ServiceError::NotFound { .. })
    ));
    assert_eq!(said(failed), "batch: operation 2: there is no file missing");
    assert!(!world.root(&container).join("a").exists());
    let results = batch(vec![write("/workspace/a"), read("missing")], false)
        .await
        .unwrap();
    assert!(results[0].is_ok());
    let missing = results.into_iter().nth(1).unwrap();
    assert_eq!(said(missing), "not found: there is no file missing");
    assert!(world.root(&container).join("a").exists());
    assert!(said(batch(vec![], true).await).starts_with("invalid: a batch must have"));
    let refused = batch(vec![read("a"), write("")], true).await;
    assert!(said(refused).starts_with("batch: operation 2: a path must have"));
    for path in ["../x", "no/such/../../../x"] {
        let refused = batch(vec![write("b"), write(path)], true).await;
        assert!(matches!(
            refused,
            Err(ServiceError::Batch { index: 1, cause, .. })
                if matches!(*cause, ServiceError::Denied { .. })
        ));
        assert!(!world.root(&container).join("b").exists());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn senseless_lists_are_refused() {
    let world = World::new().await;
    let container = world.spawn().await;
    let list = async |list| {
        world
            .service
            .file_list(&world.caller, &container, &path("."), list)
            .await
    };
    let with_limit = |limit| List {
        limit,
        ..List::default()
    };
    assert!(said(list(with_limit(0)).await).starts_with("invalid: limit"));
    assert!(said(list(with_limit(u32::MAX)).await).starts_with("invalid: limit"));
    let long = List {
        limit: 1,
        glob: Some("x".repeat(5000)),
        ..List::default()
    };
    assert!(said(list(long).await).starts_with("invalid: a glob"));
    let strange = List {
        limit: 1,
        cursor: Some(vec![0; 9000]),
        ..List::default()
    };
    assert!(said(list(strange).await).starts_with("invalid: cursor"));
}
