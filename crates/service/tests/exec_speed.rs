//! How fast a command is, through store, service, agent and back. The bound is generous:
//! this is not an optimised build, and the machine may be busy.

mod world;

use std::time::{Duration, Instant};

use bytes::Bytes;
use hotcell_domain::{Command, ExecStatus};
use hotcell_service::{Input, Poll, Start};
use world::{PATIENCE, World, open_sh};

const ROUNDS: usize = 200;

const MEDIAN_MAX: Duration = Duration::from_millis(20);

#[tokio::test(flavor = "multi_thread")]
async fn a_short_command_takes_milliseconds() {
    let world = World::new().await;
    let container = world.spawn().await;
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let began = Instant::now();
        let request = Start {
            command: Command::new(vec!["true".into()]).unwrap(),
            key: None,
        };
        let service = &world.service;
        let id = service.exec_start(&world.caller, &container, request);
        let id = id.await.unwrap();
        let poll = Poll {
            after_seq: 0,
            wait: PATIENCE,
            bytes_max: 64 << 10,
            until_end: true,
        };
        let view = service.exec_poll(&world.caller, &id, poll).await.unwrap();
        assert!(view.is_complete);
        times.push(began.elapsed());
    }
    times.sort_unstable();
    let (median, slow) = (times[ROUNDS / 2], times[ROUNDS * 95 / 100]);
    eprintln!("true: {median:?} in the middle, {slow:?} at 95 %");
    assert!(median < MEDIAN_MAX, "{median:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_byte_can_be_read_within_milliseconds_while_the_command_runs() {
    let world = World::new().await;
    let container = world.spawn().await;
    let id = world.start(&container, open_sh("cat")).await;
    let (mut after_seq, mut times) = (0, Vec::new());
    for _ in 0..ROUNDS {
        let began = Instant::now();
        let input = Input {
            data: Bytes::from_static(b"x\n"),
            ..Input::default()
        };
        let sent = world.service.exec_input(&world.caller, &id, input);
        sent.await.unwrap();
        let view = world.poll(&id, after_seq, PATIENCE).await;
        times.push(began.elapsed());
        assert_eq!(view.status, ExecStatus::Running);
        after_seq = view.next_seq;
    }
    times.sort_unstable();
    let median = times[ROUNDS / 2];
    eprintln!("from input to output: {median:?} in the middle");
    assert!(median < MEDIAN_MAX, "{median:?}");
}

/// Output that one command writes at once.
const LARGE_BYTES: usize = 10_000_000;

const LARGE_MAX: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread")]
async fn much_output_is_read_at_the_speed_it_is_written() {
    let world = World::new().await;
    let container = world.spawn().await;
    let began = Instant::now();
    let script = format!("yes 0123456789abcdef | head -c {LARGE_BYTES}");
    let ended = world.run(&container, &script).await;
    let took = began.elapsed();
    assert_eq!(ended.stdout.len(), LARGE_BYTES);
    eprintln!("{LARGE_BYTES} bytes: {took:?}");
    assert!(took < LARGE_MAX, "{took:?}");
}
