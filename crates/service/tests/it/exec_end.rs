//! How execs end: by timeout, by cancel, with their container.

use std::time::{Duration, Instant};

use hotcell_domain::{ContainerRef, ExecStatus};
use hotcell_service::{Poll, Settings, Start};
use hotcell_testkit::fake::Faults;
use hotcell_testkit::world::{PATIENCE, World, caller, name, open_sh, processes_with, said, sh};

/// A command whose child leaves its session, ignores SIGTERM and has this mark.
fn stubborn(mark: &str) -> String {
    let child = format!("trap \"\" TERM; : {mark}; while :; do sleep 0.1; done");
    format!("setsid sh -c '{child}' & echo started; sleep 1000 # {mark}")
}

/// A text that only this test's processes have.
fn mark(container: &ContainerRef, what: &str) -> String {
    let ContainerRef::Id(id) = container else {
        panic!("tests name containers by id");
    };
    format!("{what}-{id}")
}

fn quick_to_kill() -> Settings {
    Settings {
        kill_grace: Duration::from_millis(200),
        ..Settings::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timeout_ends_the_whole_tree_and_keeps_the_output() {
    let world = World::with(quick_to_kill(), Faults::none()).await;
    let container = world.spawn().await;
    let mark = mark(&container, "timeout");
    // On a busy machine the timeout may come before the shell has printed its word.
    for timeout_s in [0.5, 5.0, 40.0] {
        let mut command = sh(&stubborn(&mark));
        command.set_timeout_s(timeout_s).unwrap();
        let id = world.start(&container, command).await;
        let ended = world.finish(&id).await;
        let end = ended.view.end.unwrap();
        assert_eq!(end.status, ExecStatus::TimedOut);
        let reason = format!("it was ended after timeout_s = {timeout_s}");
        assert_eq!(end.reason.unwrap(), reason);
        assert_eq!(processes_with(&mark), 0, "complete means that all is gone");
        if ended.stdout == b"started\n" {
            return;
        }
        assert_eq!(ended.stdout, b"");
    }
    panic!("its output was lost");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_ends_the_whole_tree_and_keeps_the_output() {
    let world = World::with(quick_to_kill(), Faults::none()).await;
    let container = world.spawn().await;
    let mark = mark(&container, "cancel");
    let id = world.start(&container, sh(&stubborn(&mark))).await;
    world.until_wrote(&id, "started").await;
    assert!(processes_with(&mark) > 0);
    let status = world.service.exec_cancel(&world.caller, &id).await.unwrap();
    assert_eq!(status, ExecStatus::Cancelled);
    assert_eq!(processes_with(&mark), 0, "cancelled means that all is gone");
    let ended = world.finish(&id).await;
    assert_eq!(ended.stdout, b"started\n");
    // Cancelling again changes nothing.
    let again = world.service.exec_cancel(&world.caller, &id).await.unwrap();
    assert_eq!(again, ExecStatus::Cancelled);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_that_nobody_waits_for_goes_on() {
    let world = World::new().await;
    let container = world.spawn().await;
    let id = world
        .start(&container, sh("echo started; sleep 1000"))
        .await;
    world.until_wrote(&id, "started").await;
    {
        let cancel = world.service.exec_cancel(&world.caller, &id);
        let _ = tokio::time::timeout(Duration::from_millis(1), cancel).await;
    }
    assert_eq!(world.finish(&id).await.view.status, ExecStatus::Cancelled);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exec_that_waits_is_cancelled_at_once_and_never_runs() {
    let settings = Settings {
        execs_running_max: 1,
        ..quick_to_kill()
    };
    let world = World::with(settings, Faults::none()).await;
    let container = world.spawn().await;
    let first = world.start(&container, open_sh("cat")).await;
    let second = world.start(&container, sh("echo ran > ran")).await;
    let third = world.start(&container, sh("echo third")).await;
    world.until(&second, ExecStatus::Queued).await;
    // The first one never ends by itself.
    let cancel = world.service.exec_cancel(&world.caller, &second);
    let status = tokio::time::timeout(PATIENCE, cancel).await;
    let status = status.expect("it does not wait for its turn");
    assert_eq!(status.unwrap(), ExecStatus::Cancelled);
    let view = world.poll(&second, 0, Duration::ZERO).await;
    assert!(view.is_complete);
    world
        .service
        .exec_cancel(&world.caller, &first)
        .await
        .unwrap();
    assert_eq!(world.finish(&third).await.stdout, b"third\n");
    assert!(!world.root(&container).join("ran").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_take_turns_and_the_queue_is_bounded() {
    let settings = Settings {
        execs_running_max: 1,
        execs_queued_max: 6,
        ..Settings::default()
    };
    let world = World::with(settings, Faults::none()).await;
    let container = world.spawn().await;
    let gate = world.start(&container, open_sh("cat")).await;
    world.until(&gate, ExecStatus::Running).await;
    let (busy, rare) = (caller("local", "busy"), caller("local", "rare"));
    let start = async |caller: &_, word: &str| {
        let request = Start {
            command: sh(&format!("echo {word} >> order")),
            key: (word == "busy4").then(|| name("key")),
            abandonment: hotcell_service::Abandonment::default(),
        };
        world.service.exec_start(caller, &container, request).await
    };
    let mut last = None;
    for number in 1..=4 {
        last = Some(start(&busy, &format!("busy{number}")).await.unwrap());
    }
    start(&rare, "rare1").await.unwrap();
    start(&rare, "rare2").await.unwrap();
    assert_eq!(
        said(start(&rare, "rare3").await),
        "exhausted: the exec queue of this container is full (1 may run and 6 wait, with at most 64 MiB of arguments and input); wait for one to finish or cancel one"
    );
    // A repeated request is not a new one.
    assert_eq!(start(&busy, "busy4").await.unwrap(), last.clone().unwrap());
    world
        .service
        .exec_cancel(&world.caller, &gate)
        .await
        .unwrap();
    world.finish(&last.unwrap()).await;
    let order = std::fs::read_to_string(world.root(&container).join("order")).unwrap();
    let order: Vec<_> = order.lines().collect();
    assert_eq!(
        order,
        ["busy1", "rare1", "busy2", "rare2", "busy3", "busy4"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_is_bounded_in_bytes_too() {
    let settings = Settings {
        execs_running_max: 1,
        ..Settings::default()
    };
    let world = World::with(settings, Faults::none()).await;
    let container = world.spawn().await;
    let large = || {
        let mut command = sh("cat > /dev/null");
        let text = "x".repeat(4 << 20);
        command
            .set_stdin(hotcell_domain::Stdin::Text(text))
            .unwrap();
        Start {
            command,
            key: None,
            abandonment: hotcell_service::Abandonment::default(),
        }
    };
    let gate = world.start(&container, open_sh("cat")).await;
    world.until(&gate, ExecStatus::Running).await;
    let mut ids = Vec::new();
    let refused = loop {
        let started = world.service.exec_start(&world.caller, &container, large());
        match started.await {
            Ok(id) => ids.push(id),
            refused @ Err(_) => break refused,
        }
    };
    assert!(said(refused).starts_with("exhausted"));
    assert_eq!(ids.len(), 15, "of 64 that may wait");
    world
        .service
        .exec_cancel(&world.caller, &gate)
        .await
        .unwrap();
    for id in &ids {
        assert_eq!(world.finish(id).await.view.status, ExecStatus::Succeeded);
    }
    // There is room again.
    let started = world.service.exec_start(&world.caller, &container, large());
    world.finish(&started.await.unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killing_the_container_cancels_its_execs_and_keeps_what_they_wrote() {
    // A process that obeys has enough time.
    let settings = Settings {
        execs_running_max: 1,
        kill_grace: PATIENCE,
        ..Settings::default()
    };
    for force in [false, true] {
        let world = World::with(settings.clone(), Faults::none()).await;
        let container = world.spawn().await;
        let script = "trap 'echo bye; exit' TERM; echo here; while :; do sleep 0.02; done";
        let running = world.start(&container, sh(script)).await;
        let waiting = world.start(&container, sh("echo ran")).await;
        world.until_wrote(&running, "here").await;
        world
            .service
            .kill(&world.caller, &container, force)
            .await
            .unwrap();
        for id in [&running, &waiting] {
            let view = world.poll(id, 0, Duration::ZERO).await;
            assert_eq!(
                (view.status, view.is_complete),
                (ExecStatus::Cancelled, true)
            );
        }
        let wrote = world.finish(&running).await.stdout;
        let expected: &[u8] = if force { b"here\n" } else { b"here\nbye\n" };
        assert_eq!(wrote, expected);
        assert_eq!(world.finish(&waiting).await.stdout, b"");
        let request = Start {
            command: sh("true"),
            key: None,
            abandonment: hotcell_service::Abandonment::default(),
        };
        let refused = world.service.exec_start(&world.caller, &container, request);
        assert!(said(refused.await).starts_with("not found"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exec_whose_container_vanishes_is_lost_and_keeps_what_it_wrote() {
    let world = World::new().await;
    let container = world.spawn().await;
    let id = world.start(&container, sh("echo here; sleep 1000")).await;
    world.until_wrote(&id, "here").await;
    let ContainerRef::Id(container) = &container else {
        panic!("tests name containers by id");
    };
    world.engine.destroy(container).await.unwrap();
    let ended = world.finish(&id).await;
    assert_eq!(ended.view.status, ExecStatus::Lost);
    assert!(ended.view.end.unwrap().reason.is_some());
    assert_eq!(ended.stdout, b"here\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_poll_that_nobody_waits_for_changes_nothing() {
    let world = World::new().await;
    let container = world.spawn().await;
    let id = world.start(&container, open_sh("cat")).await;
    for _ in 0..50 {
        let poll = Poll {
            after_seq: 0,
            wait: PATIENCE,
            bytes_max: 1000,
            until_end: true,
        };
        let poll = world.service.exec_poll(&world.caller, &id, poll);
        let _ = tokio::time::timeout(Duration::from_millis(1), poll).await;
    }
    assert_eq!(
        world.poll(&id, 0, Duration::ZERO).await.status,
        ExecStatus::Running
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exec_that_nobody_waited_for_runs_all_the_same_or_not_at_all() {
    let world = World::new().await;
    let container = world.spawn().await;
    for delay_us in 0..40 {
        let request = Start {
            command: sh("true"),
            key: None,
            abandonment: hotcell_service::Abandonment::default(),
        };
        let start = world.service.exec_start(&world.caller, &container, request);
        let _ = tokio::time::timeout(Duration::from_micros(delay_us * 20), start).await;
    }
    let deadline = Instant::now() + PATIENCE;
    loop {
        let living = world
            .service
            .execs(&world.caller, None, false)
            .await
            .unwrap();
        if living.is_empty() {
            break;
        }
        assert!(Instant::now() < deadline, "these never end: {living:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let all = world
        .service
        .execs(&world.caller, None, true)
        .await
        .unwrap();
    assert!(all.iter().all(|exec| exec.status == ExecStatus::Succeeded));
}
