//! Numbered events: followed, dropped, resumed, taken over, and kept when nobody reads.

use std::time::{Duration, Instant};

use hotcell_agent_api::bounds::{CHUNK_BYTES_MAX, UNACKED_BYTES_MAX, UNACKED_EVENTS_MAX};
use hotcell_agent_api::v1::ExecEvent;
use hotcell_agent_api::v1::exec_event::Event;
use tonic::Code;

use crate::harness::{self, Agent, Following, command, shell, until, within};

/// The fewest events that an exec with a full buffer has.
const UNACKED_CHUNKS: u64 = (UNACKED_BYTES_MAX / CHUNK_BYTES_MAX) as u64;

/// Waits until the agent's buffer is full: at least as many events as whole chunks make, and no new
/// ones.
async fn until_full(agent: &Agent, id: &str) {
    let mut before = agent.info(id).await;
    let deadline = Instant::now() + harness::DEADLINE;
    loop {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let now = agent.info(id).await;
        let held = now.last_seq - now.acked_seq;
        if now.last_seq == before.last_seq && held > UNACKED_CHUNKS {
            return;
        }
        assert!(Instant::now() < deadline);
        before = now;
    }
}

fn bytes(event: &ExecEvent) -> Option<&[u8]> {
    match event.event.as_ref() {
        Some(Event::Output(output)) => Some(&output.data),
        _ => None,
    }
}

#[tokio::test]
async fn every_byte_comes_once_over_dropped_connections() {
    let agent = Agent::start().await;
    let script = "i=0; while [ $i -lt 60000 ]; do echo $i; i=$((i+1)); done";
    let expected: String = (0..60_000)
        .flat_map(|number: u32| [number.to_string(), "\n".into()])
        .collect();
    let mut exec = agent.start_exec(shell("dropped", script)).await.unwrap();
    let (mut output, mut seq, mut turn) = (Vec::new(), 0, 0_u64);
    loop {
        // Drops the stream repeatedly, sometimes at once; its events are acknowledged only partly.
        // After enough rounds it is followed to the end.
        turn += 1;
        let events = if turn < 300 { turn % 50 } else { u64::MAX };
        for _ in 0..events {
            let Some(event) = exec.next().await.unwrap() else {
                assert_eq!(String::from_utf8(output).unwrap(), expected);
                return;
            };
            assert_eq!(event.seq, seq + 1);
            seq = event.seq;
            output.extend(bytes(&event).unwrap_or_default());
            if seq.is_multiple_of(7) {
                exec.ack(seq - turn % 3).await;
            }
        }
        drop(exec);
        exec = agent.resume("dropped", seq).await.unwrap();
        // The last acknowledgement before the drop may never have arrived.
        exec.ack(seq).await;
    }
}

#[tokio::test]
async fn a_new_connection_goes_on_where_a_lost_one_was() {
    let mut agent = Agent::start().await;
    let mut start = shell("lost", "echo first; cat; echo last");
    start.stdin = true;
    let mut exec = agent.start_exec(start).await.unwrap();
    exec.until_stdout_has("first\n").await;
    let second = agent.another_connection().await;
    drop(exec);
    agent.client = second;
    agent.input("lost", 0, "middle\n", true).await.unwrap();
    let acked = agent.info("lost").await.acked_seq;
    let done = agent.resume("lost", 2).await.unwrap().finish().await;
    assert!(acked <= 2);
    assert_eq!(done.text(), "middle\nlast\n");
}

#[tokio::test]
async fn a_full_exec_pauses_and_holds_nobody_else_up() {
    let agent = Agent::start().await;
    let before = agent.resident_bytes();
    let mut stopped = Vec::new();
    for index in 0..8 {
        let start = command(
            &format!("stopped-{index}"),
            &["head", "-c", "100M", "/dev/zero"],
        );
        stopped.push(agent.start_exec(start).await.unwrap());
    }
    for index in 0..8 {
        until_full(&agent, &format!("stopped-{index}")).await;
    }
    let grown = agent.resident_bytes() - before;
    assert!(grown < 16 << 20, "eight stopped readers cost {grown} bytes");
    // If a full stream blocked the connection, this would never be answered.
    assert_eq!(agent.sh("echo quick").await.text(), "quick\n");
    let one = stopped.remove(3).finish().await;
    assert_eq!((one.stdout.len(), one.exit.code), (100 << 20, Some(0)));
    for index in [0, 7] {
        agent.cancel(&format!("stopped-{index}"), 0).await.unwrap();
    }
}

/// Whether an exec that could write stays silent.
async fn nothing_comes(exec: &mut Following) -> bool {
    let wait = Duration::from_millis(100);
    tokio::time::timeout(wait, exec.events.message())
        .await
        .is_err()
}

#[tokio::test]
async fn without_acknowledgements_exactly_the_bound_is_sent() {
    let agent = Agent::start().await;
    let start = command("unread", &["head", "-c", "10M", "/dev/zero"]);
    let mut exec = agent.start_exec(start).await.unwrap();
    exec.started().await;
    let (mut held, mut last) = (0, 1);
    while held < UNACKED_BYTES_MAX {
        let event = exec.next().await.unwrap().unwrap();
        held += bytes(&event).unwrap().len();
        last = event.seq;
    }
    assert_eq!(held, UNACKED_BYTES_MAX);
    assert!(nothing_comes(&mut exec).await);
    exec.ack(last).await;
    let done = exec.finish().await;
    assert_eq!(done.stdout.len(), 10 << 20);
}

#[tokio::test]
async fn what_is_in_the_pipe_when_the_leader_ends_comes_before_its_exit() {
    let agent = Agent::start().await;
    // More than the agent buffers, but not more than fits into the pipe as well.
    let bytes = (UNACKED_BYTES_MAX + 50_000).to_string();
    let exec = agent
        .start_exec(command("rest", &["head", "-c", &bytes, "/dev/zero"]))
        .await;
    let exec = exec.unwrap();
    let deadline = Instant::now() + harness::DEADLINE;
    while agent.info("rest").await.running {
        assert!(
            Instant::now() < deadline,
            "the leader ends with its output in the pipe"
        );
    }
    assert_eq!(exec.finish().await.stdout.len(), UNACKED_BYTES_MAX + 50_000);
}

#[tokio::test]
async fn many_tiny_events_are_bounded_too() {
    let agent = Agent::start().await;
    let script = "while :; do echo; sleep 0; done";
    let mut start = command(
        "tiny",
        &[
            "perl",
            "-e",
            "$|=1; while (1) { syswrite(STDOUT, 'x'); select(undef,undef,undef,0.0002) }",
        ],
    );
    if !std::path::Path::new("/usr/bin/perl").exists() {
        start = shell("tiny", script);
    }
    let mut exec = agent.start_exec(start).await.unwrap();
    for seq in 1..=UNACKED_EVENTS_MAX as u64 {
        assert_eq!(exec.next().await.unwrap().unwrap().seq, seq);
    }
    assert!(nothing_comes(&mut exec).await);
    agent.cancel("tiny", 0).await.unwrap();
}

#[tokio::test]
async fn a_second_follower_takes_over() {
    let agent = Agent::start().await;
    let mut start = shell("shared", "echo one; cat");
    start.stdin = true;
    let mut first = agent.start_exec(start.clone()).await.unwrap();
    first.started().await;
    let mut second = agent.start_exec(start).await.unwrap();
    assert_eq!(second.started().await, first_pid(&agent));
    let ended = loop {
        match first.next().await {
            Ok(Some(_)) => {}
            other => break other,
        }
    };
    assert_eq!(ended.unwrap_err().code(), Code::Aborted);
    agent.input("shared", 0, "two\n", true).await.unwrap();
    assert_eq!(second.finish().await.text(), "one\ntwo\n");
}

fn first_pid(agent: &Agent) -> i32 {
    harness::children(harness::children(agent.pid())[0])[0]
}

#[tokio::test]
async fn an_id_belongs_to_one_start() {
    let agent = Agent::start().await;
    let start = shell("once", "echo ran");
    let exec = agent.start_exec(start.clone()).await.unwrap();
    let mut other = start.clone();
    other.timeout_ms = 1;
    assert_eq!(
        agent.start_exec(other).await.err().unwrap().code(),
        Code::AlreadyExists
    );
    assert_eq!(exec.finish().await.text(), "ran\n");
    agent.until_acknowledged("once").await;
    let gone = agent.start_exec(start).await.err().unwrap();
    assert_eq!(
        gone.code(),
        Code::FailedPrecondition,
        "what was acknowledged is gone"
    );
}

#[tokio::test]
async fn a_finished_exec_can_be_read_until_it_is_acknowledged() {
    let agent = Agent::start().await;
    let mut exec = agent.start_exec(shell("again", "echo text")).await.unwrap();
    while !matches!(
        exec.next().await.unwrap().unwrap().event,
        Some(Event::Exit(_))
    ) {}
    drop(exec);
    for after in 0..3 {
        let mut exec = agent.resume("again", after).await.unwrap();
        let first = exec.next().await.unwrap().unwrap();
        assert_eq!(first.seq, after + 1);
    }
    let mut after_exit = agent.resume("again", 3).await.unwrap();
    assert_eq!(after_exit.next().await.unwrap(), None);
    assert_eq!(
        agent.resume("again", 9).await.err().unwrap().code(),
        Code::FailedPrecondition
    );
    assert_eq!(
        agent.resume("never", 0).await.err().unwrap().code(),
        Code::NotFound
    );
}

#[tokio::test]
async fn an_acknowledgement_of_what_does_not_exist_ends_the_stream() {
    let agent = Agent::start().await;
    let mut start = command("liar", &["cat"]);
    start.stdin = true;
    let mut exec = agent.start_exec(start).await.unwrap();
    exec.started().await;
    exec.ack(1000).await;
    assert_eq!(
        exec.next().await.unwrap_err().code(),
        Code::FailedPrecondition
    );
    agent.input("liar", 0, "fine", true).await.unwrap();
    assert_eq!(
        agent.resume("liar", 1).await.unwrap().finish().await.text(),
        "fine"
    );
}

#[tokio::test]
async fn a_bridge_carries_the_protocol() {
    use std::process::{Command, Stdio};
    let agent = Agent::start().await;
    let mut bridge = Command::new(env!("CARGO_BIN_EXE_hotcell-agent"))
        .arg("connect")
        .arg(agent.socket())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let stdout = std::os::fd::OwnedFd::from(bridge.stdout.take().unwrap());
    let stdin = std::os::fd::OwnedFd::from(bridge.stdin.take().unwrap());
    let stream = tokio::io::join(
        tokio::net::unix::pipe::Receiver::from_owned_fd(stdout).unwrap(),
        tokio::net::unix::pipe::Sender::from_owned_fd(stdin).unwrap(),
    );
    let mut client = harness::connect_over(stream).await;
    let hello = hotcell_agent_api::v1::HelloRequest::default();
    within(client.hello(hello)).await.unwrap();
    drop(client);
    let mut status = None;
    until("the bridge ends with its stdin", || {
        status = bridge.try_wait().unwrap();
        status.is_some()
    })
    .await;
}
