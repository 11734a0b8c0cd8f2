//! What the operator sees.

use hotcell_domain::Network;
use hotcell_service::Spawn;

use crate::fixture::{Fixture, by_id, me};

#[tokio::test(flavor = "multi_thread")]
async fn status_tells_what_there_is_and_what_is_not_limited() {
    let fixture = Fixture::new();
    let service = fixture.start().await;
    let view = service.spawn(&me(), Spawn::default()).await.unwrap();
    let status = service.status(&me()).await.unwrap();
    assert_eq!(
        (status.engine.as_str(), status.engine_is_up),
        ("fake", true)
    );
    assert_eq!((status.containers, status.is_ready), (1, true));
    let limits: Vec<_> = status
        .limits
        .iter()
        .map(|view| (view.limit, view.by))
        .collect();
    let expected = [
        ("memory", None),
        ("cpu", None),
        ("pids", None),
        ("disk", Some("watched")),
    ];
    assert_eq!(limits, expected);
    assert_eq!(view.enforced, status.limits);
    assert!(status.reconciled.is_some());
    service.kill(&me(), &by_id(&view), true).await.unwrap();
    assert_eq!(service.status(&me()).await.unwrap().containers, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_keep_the_names_that_dashboards_know() {
    let fixture = Fixture::new();
    let service = fixture.start().await;
    service.spawn(&me(), Spawn::default()).await.unwrap();
    let refused = Spawn {
        network: Some(Network::Full),
        ..Spawn::default()
    };
    service.spawn(&me(), refused).await.unwrap_err();
    let text = service.metrics_text(&me());
    let lines = [
        r#"mcp_devbench_container_spawns_total{outcome="ok"} 1"#,
        r#"mcp_devbench_container_spawns_total{outcome="error"} 1"#,
        r#"mcp_devbench_exec_total{status="succeeded"} 0"#,
        "# TYPE mcp_devbench_exec_duration_seconds histogram",
        "mcp_devbench_active_containers 1",
        "mcp_devbench_memory_usage_bytes 0",
        r#"hotcell_containers{phase="running"} 1"#,
        "hotcell_execs_running 0",
        "hotcell_execs_queued 0",
        r#"hotcell_gc_removed_total{what="exec"} 0"#,
        r#"hotcell_reconcile_total{outcome="adopted"} 0"#,
        "hotcell_store_errors_total 0",
    ];
    for line in lines {
        assert!(text.lines().any(|one| one == line), "no {line} in:\n{text}");
    }
    assert!(text.ends_with("# EOF\n"));
}
