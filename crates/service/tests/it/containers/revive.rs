//! Persistent containers that end by themselves: only `kill` removes them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hotcell_domain::{ContainerId, ExecId, ExecStatus, Phase};
use hotcell_engine::Engine;
use hotcell_service::{ContainerView, Poll, Service, ServiceError, Spawn, Start};

use super::faulty_engine::FaultyEngine;
use crate::fixture::{Fixture, attach, by_alias, by_id, me, named, persistent, until};

/// How often a container that does not last is restarted.
const STARTS_MAX: usize = 5;

fn kept() -> Spawn {
    Spawn {
        is_persistent: true,
        ..named("box")
    }
}

pub(crate) async fn start(service: &Service, view: &ContainerView, script: &str) -> ExecId {
    let command = vec!["/bin/sh".into(), "-c".into(), script.into()];
    let request = Start {
        command: hotcell_domain::Command::new(command).expect("a command"),
        key: None,
        abandonment: hotcell_service::Abandonment::default(),
    };
    let started = service.exec_start(&me(), &by_id(view), request).await;
    started.expect("it starts")
}

/// Waits for the end of an exec; returns its status and output.
pub(crate) async fn finish(service: &Service, id: &ExecId) -> (ExecStatus, String) {
    let poll = Poll {
        after_seq: 0,
        wait: crate::fixture::DEADLINE,
        bytes_max: 1 << 20,
        until_end: true,
    };
    let view = service.exec_poll(&me(), id, poll).await.expect("it tells");
    assert!(view.is_complete, "{view:?}");
    let said = view
        .messages
        .iter()
        .flat_map(|message| message.data.to_vec());
    (
        view.status,
        String::from_utf8(said.collect()).expect("text"),
    )
}

async fn phase(service: &Service, id: &ContainerId) -> Phase {
    let all = service.containers(&me(), true).await.expect("it lists");
    let view = all.iter().find(|view| view.id == *id);
    view.expect("it is remembered").phase
}

/// Leaves a file in the workspace and a running exec.
async fn work(service: &Service, view: &ContainerView) -> ExecId {
    let wrote = start(service, view, "echo before > kept").await;
    assert_eq!(finish(service, &wrote).await.0, ExecStatus::Succeeded);
    start(service, view, "sleep 1000").await
}

/// The exec is lost, the file exists, and new execs run.
async fn expect_kept(service: &Service, view: &ContainerView, exec: &ExecId) {
    assert_eq!(finish(service, exec).await.0, ExecStatus::Lost);
    expect_file(service, view).await;
}

async fn expect_file(service: &Service, view: &ContainerView) {
    until("it runs", async || {
        phase(service, &view.id).await == Phase::Running
    })
    .await;
    let read = start(service, view, "cat kept").await;
    let (status, said) = finish(service, &read).await;
    assert_eq!((status, said.as_str()), (ExecStatus::Succeeded, "before\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_persistent_container_whose_agent_dies_is_started_again_with_its_files() {
    let fixture = Fixture::new();
    let service = fixture.start().await;
    let view = service.spawn(&me(), kept()).await.unwrap();
    for _ in 0..2 {
        let exec = work(&service, &view).await;
        fixture.engine().crash(&view.id).await.unwrap();
        expect_kept(&service, &view, &exec).await;
    }
    let found = service.container(&me(), &by_alias("box")).await.unwrap();
    assert_eq!(found.id, view.id);
    assert_eq!(service.reconcile(&me()).await.unwrap().discovered, 1);
    service.kill(&me(), &by_id(&view), false).await.unwrap();
    fixture.assert_empty().await;
    assert_eq!(phase(&service, &view.id).await, Phase::Stopped);
}

/// An exec that is told as lost tells its caller to go on: what the caller starts then must not go to
/// the dead agent too.
#[tokio::test(flavor = "multi_thread")]
async fn an_exec_started_after_another_was_told_as_lost_waits_for_the_restart() {
    let fixture = Fixture::new();
    let engine = FaultyEngine::new(&fixture);
    let service = fixture
        .start_on(Arc::clone(&engine) as Arc<dyn Engine>)
        .await;
    let view = service.spawn(&me(), kept()).await.unwrap();
    let exec = work(&service, &view).await;
    engine.is_blind.send_replace(true);
    fixture.engine().crash(&view.id).await.unwrap();
    let before = engine.opens.load(Ordering::SeqCst);
    let noticed = async {
        // The exec's follower has looked for the agent, in vain, more than once.
        until("the agent is missed", async || {
            engine.opens.load(Ordering::SeqCst) > before + 2
        })
        .await;
        engine.is_blind.send_replace(false);
    };
    let told = async {
        assert_eq!(finish(&service, &exec).await.0, ExecStatus::Lost);
        let read = start(&service, &view, "cat kept").await;
        finish(&service, &read).await
    };
    let ((), told) = tokio::join!(noticed, told);
    assert_eq!(told, (ExecStatus::Succeeded, "before\n".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_persistent_container_that_ended_while_no_server_ran_is_started_again() {
    let fixture = Fixture::new();
    let service = fixture.start().await;
    let view = service.spawn(&me(), kept()).await.unwrap();
    let exec = work(&service, &view).await;
    drop(service);
    let store = fixture.store().await;
    fixture.engine().crash(&view.id).await.unwrap();
    drop(store);

    let service = fixture.start().await;
    expect_kept(&service, &view, &exec).await;
    let reconciled = service.status(&me()).await.unwrap().reconciled.unwrap().1;
    assert_eq!((reconciled.discovered, reconciled.errors), (1, 0));
    assert_eq!((reconciled.cleaned, reconciled.orphaned), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_does_not_last_is_halted_and_keeps_its_files() {
    let fixture = Fixture::new();
    let engine = FaultyEngine::new(&fixture);
    let service = fixture
        .start_on(Arc::clone(&engine) as Arc<dyn Engine>)
        .await;
    let view = service.spawn(&me(), kept()).await.unwrap();
    let exec = work(&service, &view).await;
    engine.is_full.store(true, Ordering::SeqCst);
    fixture.engine().crash(&view.id).await.unwrap();
    until("it is given up", async || {
        engine.restarts.load(Ordering::SeqCst) == STARTS_MAX
            && phase(&service, &view.id).await == Phase::Halted
    })
    .await;
    assert_eq!(finish(&service, &exec).await.0, ExecStatus::Lost);
    let refused = attach(&service, &by_id(&view), "s").await;
    assert!(
        matches!(refused, Err(ServiceError::Halted { .. })),
        "{refused:?}"
    );
    fixture.advance(Duration::from_hours(24 * 365));
    service.collect_garbage(&me(), false).await.unwrap();
    assert_eq!(service.reconcile(&me()).await.unwrap().errors, 0);
    assert_eq!(engine.restarts.load(Ordering::SeqCst), STARTS_MAX);
    let listed = service.containers(&me(), false).await.unwrap();
    assert_eq!((listed.len(), listed[0].phase), (1, Phase::Halted));
    service.stop(Duration::ZERO).await;
    drop(service);

    // The next server may succeed.
    let service = fixture.start().await;
    expect_file(&service, &view).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_halted_container_is_removed_by_kill_and_by_nothing_else() {
    let fixture = Fixture::new();
    let engine = FaultyEngine::new(&fixture);
    let service = fixture
        .start_on(Arc::clone(&engine) as Arc<dyn Engine>)
        .await;
    let view = service.spawn(&me(), persistent()).await.unwrap();
    engine.is_full.store(true, Ordering::SeqCst);
    fixture.engine().crash(&view.id).await.unwrap();
    until("it is halted", async || {
        phase(&service, &view.id).await == Phase::Halted
    })
    .await;
    service.kill(&me(), &by_id(&view), false).await.unwrap();
    fixture.assert_empty().await;
    assert_eq!(phase(&service, &view.id).await, Phase::Stopped);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_persistent_container_of_which_nothing_is_left_has_failed() {
    let fixture = Fixture::new();
    let service = fixture.start().await;
    let view = service.spawn(&me(), kept()).await.unwrap();
    // Its agent is still running, so only the engine can tell.
    let home = fixture.directory(&view.id);
    let elsewhere = home.with_extension("lost");
    std::fs::rename(&home, &elsewhere).unwrap();
    until("it is noted as failed", async || {
        assert_eq!(service.reconcile(&me()).await.unwrap().errors, 0);
        phase(&service, &view.id).await == Phase::Failed
    })
    .await;
    service.spawn(&me(), kept()).await.unwrap();
    std::fs::rename(&elsewhere, &home).unwrap();
}
