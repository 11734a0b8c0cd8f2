//! Starting commands and reading what they write.

use std::time::Duration;

use bytes::Bytes;
use hotcell_domain::{Command, ContainerRef, Env, ExecId, ExecStatus};
use hotcell_service::{Input, Poll, Settings, Start};
use hotcell_testkit::world::{PATIENCE, World, caller, name, open_sh, said, sh};

#[tokio::test(flavor = "multi_thread")]
async fn a_command_runs_and_its_output_and_its_end_are_told() {
    let world = World::new().await;
    let container = world.spawn().await;
    let ended = world
        .run(&container, "echo out; echo err >&2; exit 3")
        .await;
    assert_eq!(
        (&*ended.stdout, &*ended.stderr),
        (&b"out\n"[..], &b"err\n"[..])
    );
    let end = ended.view.end.unwrap();
    assert_eq!((end.status, end.exit_code), (ExecStatus::Failed, Some(3)));
    let usage = end.usage.unwrap();
    assert_eq!((usage.stdout_bytes, usage.stderr_bytes), (4, 4));
    assert!(usage.max_rss_bytes > 0);

    let ended = world.run(&container, "kill -9 $$").await;
    let end = ended.view.end.unwrap();
    assert_eq!((end.status, end.signal), (ExecStatus::Failed, Some(9)));
    let ended = world.run(&container, "true").await;
    assert_eq!(ended.view.status, ExecStatus::Succeeded);
    assert!(ended.view.messages.is_empty());
}

/// Starts a command that writes `a`, and `b` when it is let go on: two messages, however slow
/// whoever reads them is.
async fn start_a_then_b(world: &World, container: &ContainerRef) -> ExecId {
    let id = world
        .start(container, open_sh("echo a; read line; echo b"))
        .await;
    world.until_wrote(&id, "a").await;
    id
}

async fn go_on(world: &World, id: &ExecId) {
    let input = Input {
        data: Bytes::from_static(b"go on\n"),
        ..Input::default()
    };
    let sent = world.service.exec_input(&world.caller, id, input);
    sent.await.expect("it takes it");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_message_is_number_one_and_comes_after_zero() {
    let world = World::new().await;
    let container = world.spawn().await;
    let id = start_a_then_b(&world, &container).await;
    go_on(&world, &id).await;
    world.finish(&id).await;
    let view = world.poll(&id, 0, Duration::ZERO).await;
    assert_eq!(view.messages[0].seq, 1);
    assert_eq!(view.messages[0].data, "a\n");
    let view = world.poll(&id, 1, Duration::ZERO).await;
    assert_eq!(view.messages[0].data, "b\n");
    // Beyond the end there is nothing, and that is all.
    let view = world.poll(&id, 99, Duration::from_secs(20)).await;
    assert!(view.messages.is_empty() && view.is_complete);
    assert_eq!(view.next_seq, 99);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_byte_can_be_read_while_the_command_runs() {
    let world = World::new().await;
    let container = world.spawn().await;
    let id = world.start(&container, open_sh("cat")).await;
    let mut after_seq = 0;
    for _ in 0..31 {
        let input = Input {
            data: Bytes::from_static(b"x\n"),
            ..Input::default()
        };
        world
            .service
            .exec_input(&world.caller, &id, input)
            .await
            .unwrap();
        let view = world.poll(&id, after_seq, PATIENCE).await;
        assert_eq!(view.status, ExecStatus::Running);
        assert_eq!(view.messages[0].data, "x\n");
        after_seq = view.next_seq;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_for_the_end_answers_everything_at_once() {
    let world = World::new().await;
    let container = world.spawn().await;
    let id = start_a_then_b(&world, &container).await;
    let until_end = |wait, bytes_max| Poll {
        after_seq: 0,
        wait,
        bytes_max,
        until_end: true,
    };
    let poll = until_end(PATIENCE, 1 << 20);
    let polling = world.service.exec_poll(&world.caller, &id, poll);
    let (view, ()) = tokio::join!(polling, go_on(&world, &id));
    let view = view.unwrap();
    assert!(view.is_complete);
    assert_eq!(view.messages.len(), 2);

    // When the time is up, what there is comes.
    let id = world.start(&container, sh("echo a; sleep 1000")).await;
    world.until_wrote(&id, "a").await;
    let poll = until_end(Duration::from_millis(300), 1 << 20);
    let view = world
        .service
        .exec_poll(&world.caller, &id, poll)
        .await
        .unwrap();
    assert_eq!(
        (view.status, view.is_complete),
        (ExecStatus::Running, false)
    );
    assert_eq!(view.messages[0].data, "a\n");

    // So it does when there is as much as was asked for.
    let id = world
        .start(&container, sh("yes | head -c 300000; sleep 1000"))
        .await;
    let poll = until_end(2 * PATIENCE, 100_000);
    let polling = world.service.exec_poll(&world.caller, &id, poll);
    let view = tokio::time::timeout(PATIENCE, polling).await;
    let view = view.expect("long before the time is up").unwrap();
    assert_eq!(
        (view.status, view.is_complete),
        (ExecStatus::Running, false)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_raced_by_sixteen_callers_runs_once() {
    let world = World::new().await;
    let container = world.spawn().await;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..16 {
        let (service, caller) = (world.service.clone(), world.caller.clone());
        let container = container.clone();
        tasks.spawn(async move {
            let request = Start {
                command: sh("echo once >> ran"),
                key: Some(name("the same")),
                abandonment: hotcell_service::Abandonment::default(),
            };
            service
                .exec_start(&caller, &container, request)
                .await
                .unwrap()
        });
    }
    let ids: Vec<_> = tasks.join_all().await;
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    world.finish(&ids[0]).await;
    let ran = || std::fs::read_to_string(world.root(&container).join("ran")).unwrap();
    assert_eq!(ran(), "once\n");

    // Also when it has ended, and after a restart.
    let world_root = world.root(&container);
    let world = world.restart().await;
    let request = Start {
        command: sh("echo once >> ran"),
        key: Some(name("the same")),
        abandonment: hotcell_service::Abandonment::default(),
    };
    let again = world
        .service
        .exec_start(&world.caller, &container, request)
        .await;
    assert_eq!(again.unwrap(), ids[0]);
    assert_eq!(
        std::fs::read_to_string(world_root.join("ran")).unwrap(),
        "once\n"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn sixteen_execs_at_once_all_succeed() {
    let settings = Settings {
        execs_running_max: 16,
        ..Settings::default()
    };
    let world = World::with(settings, hotcell_testkit::fake::Faults::none()).await;
    let container = world.spawn().await;
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..16 {
        let (service, caller) = (world.service.clone(), world.caller.clone());
        let container = container.clone();
        tasks.spawn(async move {
            for _ in 0..10 {
                let request = Start {
                    command: sh(&format!("echo {number}")),
                    key: None,
                    abandonment: hotcell_service::Abandonment::default(),
                };
                let id = service
                    .exec_start(&caller, &container, request)
                    .await
                    .unwrap();
                let poll = Poll {
                    after_seq: 0,
                    wait: PATIENCE,
                    bytes_max: 1 << 20,
                    until_end: true,
                };
                let view = service.exec_poll(&caller, &id, poll).await.unwrap();
                assert_eq!(view.status, ExecStatus::Succeeded);
                assert_eq!(view.messages[0].data, format!("{number}\n"));
            }
        });
    }
    tasks.join_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_cannot_start_says_why() {
    let world = World::new().await;
    let container = world.spawn().await;
    let reason = async |command| {
        let id = world.start(&container, command).await;
        let end = world.finish(&id).await.view.end.unwrap();
        assert_eq!((end.status, end.exit_code), (ExecStatus::Failed, None));
        end.reason.unwrap()
    };
    let missing = Command::new(vec!["no-such-program".into()]).unwrap();
    assert_eq!(
        reason(missing).await,
        "there is no program `no-such-program` in the container"
    );
    let mut nowhere = sh("true");
    nowhere.set_cwd("no/such/place").unwrap();
    assert_eq!(
        reason(nowhere).await,
        "there is no directory `/workspace/no/such/place` in the container"
    );
    std::fs::write(world.root(&container).join("plain"), "x").unwrap();
    let plain = Command::new(vec!["./plain".into()]).unwrap();
    assert!(reason(plain).await.contains("not executable"));
}

#[tokio::test(flavor = "multi_thread")]
async fn root_is_refused_by_name_of_the_rule() {
    let world = World::new().await;
    let container = world.spawn().await;
    let mut command = sh("true");
    command.as_root = true;
    let request = Start {
        command,
        key: None,
        abandonment: hotcell_service::Abandonment::default(),
    };
    let refused = world.service.exec_start(&world.caller, &container, request);
    assert_eq!(
        said(refused.await),
        "denied: running as root is not allowed here (rule `allow_as_root`)"
    );
    let all = world
        .service
        .execs(&world.caller, None, true)
        .await
        .unwrap();
    assert_eq!(all, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_finds_its_environment() {
    let world = World::new().await;
    let container = world.spawn().await;
    let mut command = sh("cd / && echo $HOME $LANG $MINE && cd && pwd");
    let mut env = Env::default();
    env.set("MINE", "yes").unwrap();
    command.env = env;
    let id = world.start(&container, command).await;
    let root = world.root(&container).canonicalize().unwrap();
    let root = root.display();
    let expected = format!("{root} C.UTF-8 yes\n{root}\n");
    assert_eq!(world.finish(&id).await.stdout, expected.as_bytes());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_exec_is_as_a_missing_one() {
    let world = World::new().await;
    let container = world.spawn().await;
    let id = world.start(&container, open_sh("cat")).await;
    let ended = world.start(&container, sh("true")).await;
    world.finish(&ended).await;
    let stranger = caller("stranger", "client");
    let poll = Poll {
        after_seq: 0,
        wait: Duration::ZERO,
        bytes_max: 1000,
        until_end: false,
    };
    let missing = hotcell_domain::ExecId::from_parts(1, [1; 10]);
    for id in [&id, &ended, &missing] {
        let expected = format!("not found: there is no exec {id}");
        let polled = world.service.exec_poll(&stranger, id, poll).await;
        assert_eq!(said(polled), expected);
        let input = world
            .service
            .exec_input(&stranger, id, Input::default())
            .await;
        assert_eq!(said(input), expected);
        let cancelled = world.service.exec_cancel(&stranger, id).await;
        assert_eq!(said(cancelled), expected);
    }
    assert_eq!(
        world.service.execs(&stranger, None, true).await.unwrap(),
        []
    );
    let refused = world.service.execs(&stranger, Some(&container), true).await;
    assert!(said(refused).starts_with("not found"));
}

#[tokio::test(flavor = "multi_thread")]
async fn execs_are_listed_in_their_order() {
    let world = World::new().await;
    let container = world.spawn().await;
    let first = world.start(&container, sh("true")).await;
    world.finish(&first).await;
    let second = world.start(&container, sh("sleep 1000")).await;
    let list = async |finished| {
        let all = world
            .service
            .execs(&world.caller, Some(&container), finished);
        let all = all.await.unwrap();
        all.into_iter().map(|exec| exec.id).collect::<Vec<_>>()
    };
    assert_eq!(list(false).await, std::slice::from_ref(&second));
    assert_eq!(list(true).await, [first, second]);
}
