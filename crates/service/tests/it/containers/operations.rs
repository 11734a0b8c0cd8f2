//! Every operation ends once, with its outcome, in the metrics.

use std::time::Duration;

use hotcell_domain::{Command, Network};
use hotcell_service::{Action, FilePath, Poll, Service, Spawn, Start, WriteOptions};

use crate::fixture::{Fixture, begin_and_drop, by_alias, by_id, me, somebody_else};

fn count(service: &Service, action: &str, outcome: &str) -> u64 {
    let series =
        format!(r#"hotcell_operations_total{{operation="{action}",outcome="{outcome}"}} "#);
    let text = service.metrics_text(&me());
    let line = text.lines().find_map(|line| line.strip_prefix(&series));
    line.map_or(0, |number| number.parse().expect("a count"))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operation_ends_as_done_denied_failed_or_abandoned() {
    let fixture = Fixture::new();
    let service = fixture.start().await;
    let container = service.spawn(&me(), Spawn::default()).await.unwrap();
    let target = by_id(&container);
    let networked = Spawn {
        network: Some(Network::Full),
        ..Spawn::default()
    };
    service.spawn(&me(), networked).await.unwrap_err();
    service
        .kill(&me(), &by_alias("none"), true)
        .await
        .unwrap_err();
    let command = Command::new(vec!["sleep".into(), "1000".into()]).unwrap();
    let start = Start {
        command,
        key: None,
        abandonment: hotcell_service::Abandonment::default(),
    };
    let exec = service.exec_start(&me(), &target, start).await.unwrap();
    let poll = Poll {
        after_seq: 0,
        wait: Duration::from_mins(1),
        bytes_max: 100,
        until_end: true,
    };
    begin_and_drop(service.exec_news(&me(), &exec, poll)).await;
    service.deny(&somebody_else(), Action::Reconcile).await;
    for (action, outcome) in [
        ("spawn", "ok"),
        ("spawn", "denied"),
        ("kill", "failed"),
        ("exec_start", "ok"),
        ("exec_wait", "abandoned"),
        ("reconcile", "denied"),
    ] {
        assert_eq!(count(&service, action, outcome), 1, "{action} {outcome}");
    }
    assert_eq!(count(&service, "exec_wait", "ok"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transfer_ends_with_its_last_byte_or_is_abandoned() {
    let fixture = Fixture::new();
    let service = fixture.start().await;
    let container = service.spawn(&me(), Spawn::default()).await.unwrap();
    let target = by_id(&container);
    let path = FilePath::parse(b"file").unwrap();
    let data = vec![b'x'; 4096];
    let options = WriteOptions::default();
    let (me, again) = (me(), options.clone());
    let mut writer = service
        .file_writer(&me, &target, &path, options)
        .await
        .unwrap();
    writer.write(data.into()).await.unwrap();
    assert_eq!(count(&service, "fs_write", "ok"), 0, "it goes on");
    writer.finish().await.unwrap();
    assert_eq!(count(&service, "fs_write", "ok"), 1);
    let writer = service.file_writer(&me, &target, &path, again).await;
    drop(writer.unwrap());
    assert_eq!(count(&service, "fs_write", "abandoned"), 1);

    let read = async || {
        service
            .file_read(&me, &target, &path, 0, None)
            .await
            .unwrap()
            .1
    };
    let mut reader = read().await;
    let mut bytes = 0;
    while bytes < 4096 {
        bytes += reader.next().await.unwrap().unwrap().len();
    }
    drop(reader);
    assert_eq!(count(&service, "fs_read", "ok"), 1, "it has every byte");
    read().await.close();
    assert_eq!(count(&service, "fs_read", "ok"), 2);
    drop(read().await);
    assert_eq!(count(&service, "fs_read", "abandoned"), 1);
    let text = service.metrics_text(&me);
    let known = r#"mcp_devbench_fs_operations_total{operation="read",outcome="error"} 1"#;
    assert!(text.contains(known), "{text}");
}
