//! Input of an exec.

use std::time::Duration;

use bytes::Bytes;
use hotcell_domain::{ExecId, ExecStatus, Stdin};
use hotcell_service::{Input, ServiceError, Settings, Signal};
use hotcell_testkit::fake::Faults;
use hotcell_testkit::world::{World, open_sh, said, sh};

async fn send(world: &World, id: &ExecId, data: &str, eof: bool) -> Result<(), ServiceError> {
    let input = Input {
        data: Bytes::copy_from_slice(data.as_bytes()),
        eof,
        ..Input::default()
    };
    world.service.exec_input(&world.caller, id, input).await
}

async fn signal(world: &World, id: &ExecId, signal: Signal) -> Result<(), ServiceError> {
    let input = Input {
        signal: Some(signal),
        ..Input::default()
    };
    world.service.exec_input(&world.caller, id, input).await
}

#[tokio::test(flavor = "multi_thread")]
async fn input_arrives_whole_and_in_order_also_from_many_at_once() {
    let world = World::new().await;
    let container = world.spawn().await;
    let id = world.start(&container, open_sh("cat")).await;
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..16 {
        let (service, caller, id) = (world.service.clone(), world.caller.clone(), id.clone());
        tasks.spawn(async move {
            // More than a pipe holds, so that chunks would mix if they could.
            let line = format!("{number:x}").repeat(100_000) + "\n";
            let input = Input {
                data: line.into(),
                ..Input::default()
            };
            service.exec_input(&caller, &id, input).await.unwrap();
        });
    }
    tasks.join_all().await;
    send(&world, &id, "the end\n", true).await.unwrap();
    let ended = world.finish(&id).await;
    let text = String::from_utf8(ended.stdout).unwrap();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 17);
    assert_eq!(lines[16], "the end");
    let mut seen: Vec<_> = lines[..16].iter().map(|line| &line[..1]).collect();
    for line in &lines[..16] {
        assert_eq!(line.len(), 100_000);
        assert!(line.bytes().all(|byte| byte == line.as_bytes()[0]), "mixed");
    }
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 16);
}

#[tokio::test(flavor = "multi_thread")]
async fn text_that_was_given_is_read_to_its_end() {
    let world = World::new().await;
    let container = world.spawn().await;
    for length in [0, 1, 32 << 10, (32 << 10) + 1, 4 << 20] {
        let text: String = ('a'..='z').cycle().take(length).collect();
        let mut command = sh("cat; echo -n .");
        command.set_stdin(Stdin::Text(text.clone())).unwrap();
        let id = world.start(&container, command).await;
        let ended = world.finish(&id).await;
        assert!(ended.stdout == (text + ".").as_bytes(), "of {length} bytes");
    }
    // A command that does not read it ends anyway.
    let mut command = sh("true");
    command.set_stdin(Stdin::Text("x".repeat(1 << 20))).unwrap();
    let id = world.start(&container, command).await;
    assert_eq!(world.finish(&id).await.view.status, ExecStatus::Succeeded);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_callers_send_comes_behind_the_text_that_was_given() {
    let world = World::new().await;
    let container = world.spawn().await;
    for length in [0, 5, 1 << 20] {
        let text: String = ('a'..='z').cycle().take(length).collect();
        let mut command = sh("cat");
        let stdin = Stdin::TextThenOpen(text.clone());
        command.set_stdin(stdin).unwrap();
        let id = world.start(&container, command).await;
        send(&world, &id, "+", false).await.unwrap();
        send(&world, &id, ".", true).await.unwrap();
        let ended = world.finish(&id).await;
        assert!(
            ended.stdout == (text + "+.").as_bytes(),
            "of {length} bytes"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn closed_input_is_a_conflict_that_says_why() {
    let world = World::new().await;
    let container = world.spawn().await;
    let empty = world.start(&container, sh("sleep 1000")).await;
    let refused = send(&world, &empty, "x", false).await;
    assert!(said(refused).starts_with("conflict: the exec was started without standard input"));

    let mut command = sh("sleep 1000");
    command.set_stdin(Stdin::Text("x".into())).unwrap();
    let given = world.start(&container, command).await;
    let refused = send(&world, &given, "x", false).await;
    assert!(
        said(refused)
            .starts_with("conflict: the exec's standard input was given when it was started")
    );

    let open = world.start(&container, open_sh("cat; sleep 1000")).await;
    send(&world, &open, "x", true).await.unwrap();
    let refused = send(&world, &open, "y", false).await;
    assert_eq!(
        said(refused),
        "conflict: the exec's standard input was closed by eof"
    );

    let ended = world.start(&container, open_sh("true")).await;
    world.finish(&ended).await;
    assert_eq!(
        said(send(&world, &ended, "x", false).await),
        "conflict: the exec has ended"
    );
    assert_eq!(
        said(signal(&world, &ended, Signal::Term).await),
        "conflict: the exec has ended"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn input_that_is_dropped_half_way_is_counted() {
    let world = World::new().await;
    let container = world.spawn().await;
    // It reads nothing until it gets a signal.
    let script = "trap 'exec cat' USR1; echo ready; while :; do sleep 0.01; done";
    let id = world.start(&container, open_sh(script)).await;
    world.until_wrote(&id, "ready").await;
    // So that the pipe is full in the middle of a chunk.
    send(&world, &id, &"a".repeat(1000), false).await.unwrap();
    let data = "a".repeat(300_000);
    let sent = tokio::time::timeout(Duration::from_millis(300), send(&world, &id, &data, false));
    assert!(sent.await.is_err(), "a pipe does not hold that much");
    let input = Input {
        signal: Some(Signal::Usr1),
        ..Input::default()
    };
    // Signals reach it while its input is blocked.
    world
        .service
        .exec_input(&world.caller, &id, input)
        .await
        .unwrap();
    send(&world, &id, "the end", true).await.unwrap();
    let text = String::from_utf8(world.finish(&id).await.stdout).unwrap();
    let rest = text
        .strip_prefix("ready\n")
        .unwrap()
        .trim_start_matches('a');
    assert_eq!(rest, "the end");
}

#[tokio::test(flavor = "multi_thread")]
async fn signals_reach_every_process_of_a_running_exec() {
    let world = World::new().await;
    let container = world.spawn().await;
    let script = "trap 'echo got it; exit 5' INT; echo ready; while :; do sleep 0.01; done";
    let id = world.start(&container, sh(script)).await;
    world.until_wrote(&id, "ready").await;
    signal(&world, &id, Signal::Int).await.unwrap();
    let ended = world.finish(&id).await;
    assert_eq!(ended.stdout, b"ready\ngot it\n");
    assert_eq!(ended.view.end.unwrap().exit_code, Some(5));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_is_resized_and_pipes_are_not() {
    let world = World::new().await;
    let container = world.spawn().await;
    let mut command = open_sh("stty size; echo $TERM; read line; stty size");
    command.tty = true;
    let id = world.start(&container, command).await;
    world.until_wrote(&id, "xterm").await;
    let input = Input {
        resize: Some((50, 132)),
        data: Bytes::from_static(b"go\n"),
        ..Input::default()
    };
    world
        .service
        .exec_input(&world.caller, &id, input.clone())
        .await
        .unwrap();
    let text = String::from_utf8(world.finish(&id).await.stdout).unwrap();
    assert!(text.contains("24 80") && text.contains("50 132"), "{text}");

    let id = world.start(&container, open_sh("cat")).await;
    let refused = world.service.exec_input(&world.caller, &id, input).await;
    assert!(said(refused).starts_with("conflict: the exec has no terminal"));
}

#[tokio::test(flavor = "multi_thread")]
async fn input_that_a_command_reads_and_ends_on_was_taken() {
    let world = World::new().await;
    let container = world.spawn().await;
    for round in 0..40 {
        let id = world.start(&container, open_sh("read line")).await;
        let sent = send(&world, &id, "go\n", false).await;
        sent.unwrap_or_else(|error| panic!("round {round}: {error}"));
        world.finish(&id).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn input_waits_a_little_for_an_exec_that_waits() {
    let settings = Settings {
        execs_running_max: 1,
        ..Settings::default()
    };
    let world = World::with(settings, Faults::none()).await;
    let container = world.spawn().await;
    let first = world.start(&container, open_sh("cat")).await;
    let second = world.start(&container, open_sh("cat")).await;
    let (sent, ended) = tokio::join!(send(&world, &second, "hello", true), async {
        world.until(&second, ExecStatus::Queued).await;
        send(&world, &first, "", true).await
    });
    sent.unwrap();
    ended.unwrap();
    assert_eq!(world.finish(&second).await.stdout, b"hello");
}
