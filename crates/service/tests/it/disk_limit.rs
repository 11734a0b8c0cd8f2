//! What a container may take of the disk, watched through its agent.

use std::time::Duration;

use bytes::Bytes;
use hotcell_domain::{Bytes as Size, ContainerRef, ExecStatus, Limits};
use hotcell_service::{CodeRequest, FilePath, Precondition, Settings, WriteOptions};
use hotcell_testkit::fake::Faults;
use hotcell_testkit::world::{World, eventually, processes_with, said, sh};

use crate::code::{run, snippet};

async fn small() -> (World, ContainerRef) {
    let settings = Settings {
        default_limits: Limits {
            disk: Size::parse("16m").expect("a size"),
            ..Limits::default()
        },
        ..Settings::default()
    };
    let world = World::with(settings, Faults::none()).await;
    let container = world.spawn().await;
    (world, container)
}

fn path(text: &str) -> FilePath {
    FilePath::parse(text.as_bytes()).expect("a path")
}

async fn write(
    world: &World,
    container: &ContainerRef,
    name: &str,
) -> Result<(), hotcell_service::ServiceError> {
    let (data, options) = (Bytes::from_static(b"x"), WriteOptions::default());
    let path = path(name);
    let service = &world.service;
    let written = service.file_write(&world.caller, container, &path, data, options);
    written.await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exec_that_writes_too_much_ends_and_after_deleting_everything_works_again() {
    let (world, container) = small().await;
    write(&world, &container, "before").await.unwrap();
    let fill = "head -c 30000000 /dev/zero >full; sleep 1000";
    let ended = world.run(&container, fill).await;
    assert_eq!(ended.view.status, ExecStatus::DiskLimit);
    let end = ended.view.end.unwrap();
    assert!(end.usage.is_some(), "it ran: {end:?}");
    let reason = end.reason.unwrap();
    assert!(
        reason.contains("disk limit of 16 MiB and 10000 files"),
        "{reason}"
    );

    let refused = said(write(&world, &container, "more").await);
    assert!(
        refused.starts_with("exhausted: the container is over its disk limit of 16 MiB"),
        "{refused}"
    );
    let more = path("more");
    let writer =
        world
            .service
            .file_writer(&world.caller, &container, &more, WriteOptions::default());
    assert!(said(writer.await.map(drop)).starts_with("exhausted"));
    // Reading and deleting go on.
    let service = &world.service;
    service
        .file_stat(&world.caller, &container, &path("full"))
        .await
        .unwrap();
    service
        .file_delete(
            &world.caller,
            &container,
            &path("full"),
            false,
            Precondition::Any,
        )
        .await
        .unwrap();
    write(&world, &container, "more").await.unwrap();
    let ended = world.run(&container, "echo hello").await;
    assert_eq!(ended.view.status, ExecStatus::Succeeded);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_little_over_the_limit_an_exec_can_delete_and_far_over_only_the_server_can() {
    let (world, container) = small().await;
    let fill = |bytes: u32| format!("head -c {bytes} /dev/zero >full; sleep 1000");
    let ended = world.run(&container, &fill(18_000_000)).await;
    assert_eq!(ended.view.status, ExecStatus::DiskLimit);
    let ended = world.run(&container, "rm full").await;
    assert_eq!(ended.view.status, ExecStatus::Succeeded);
    write(&world, &container, "more").await.unwrap();

    let ended = world.run(&container, &fill(60_000_000)).await;
    assert_eq!(ended.view.status, ExecStatus::DiskLimit);
    let start = hotcell_service::Start {
        command: sh("rm full"),
        key: None,
        abandonment: hotcell_service::Abandonment::default(),
    };
    let refused = world.service.exec_start(&world.caller, &container, start);
    let refused = said(refused.await);
    assert!(
        refused.contains("nothing is started in it until files are deleted"),
        "{refused}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_ended_exec_left_behind_is_ended_too() {
    let (world, container) = small().await;
    let mark = format!("hotcell-disk-limit-{}", std::process::id());
    let script = format!(
        "(exec 1>&- 2>&-; i=0; while [ $i -lt 30 ]; do head -c 1000000 /dev/zero >>full; i=$((i+1)); done; exec sh -c 'sleep 1000' {mark}) &"
    );
    let ended = world.run(&container, &script).await;
    assert_eq!(ended.view.status, ExecStatus::Succeeded);
    eventually("it runs in the background", || processes_with(&mark) > 0).await;
    eventually("it is ended", || processes_with(&mark) == 0).await;
    assert!(write(&world, &container, "more").await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_takes_too_much_is_stopped() {
    let (world, container) = small().await;
    let large = path("large");
    let writer =
        world
            .service
            .file_writer(&world.caller, &container, &large, WriteOptions::default());
    let mut writer = writer.await.unwrap();
    let piece = Bytes::from(vec![7; 1 << 20]);
    let refused = loop {
        match writer.write(piece.clone()).await {
            Ok(()) => tokio::time::sleep(Duration::from_millis(20)).await,
            Err(error) => break error.to_string(),
        }
    };
    assert!(refused.contains("disk limit of 16 MiB"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snippet_that_fills_its_session_is_told_so_and_the_next_one_can_delete() {
    let (world, _) = small().await;
    let service = &world.service;
    let fill = |bytes: u32| {
        let source = format!("head -c {bytes} /dev/zero >full; sleep 1000");
        snippet("sh", &source)
    };
    let ended = run(service, fill(18_000_000)).await;
    assert_eq!(ended.end.status, ExecStatus::DiskLimit, "{ended:?}");
    let deleted = run(service, snippet("sh", "rm full")).await;
    assert_eq!(deleted.end.status, ExecStatus::Succeeded, "{deleted:?}");

    // A notebook writes no source, and is ended all the same. More than before, because what was
    // deleted need not have been noticed yet.
    let cell = |source: &str| CodeRequest {
        stateful: true,
        is_cold: false,
        ..snippet("python", source)
    };
    let source = "import time; open('full', 'wb').write(bytes(20_000_000)); time.sleep(1000)";
    let ended = run(service, cell(source)).await;
    assert_eq!(ended.end.status, ExecStatus::DiskLimit, "{ended:?}");
    let reason = ended.end.reason.unwrap_or_default();
    assert!(
        reason.contains("16 MiB") && reason.contains("variables are gone"),
        "{reason}"
    );
    let deleted = run(service, snippet("python", "import os; os.unlink('full')")).await;
    assert_eq!(deleted.end.status, ExecStatus::Succeeded, "{deleted:?}");

    run(service, fill(60_000_000)).await;
    for request in [snippet("sh", "rm full"), cell("1")] {
        let refused = said(service.run_code(&world.caller, request).await);
        assert!(refused.contains("nothing is started in it"), "{refused}");
        assert!(refused.contains("kill ends the container"), "{refused}");
    }
}
