//! How fast and how small the agent is. Run with the program that is shipped:
//!
//! ```text
//! HOTCELL_AGENT_PROGRAM=… cargo test --release -p hotcell-agent --test exec_speed -- --ignored --nocapture
//! ```

mod common;

use std::time::{Duration, Instant};

use common::{Agent, command, shell};
use hotcell_agent_api::v1::HelloRequest;
use hotcell_agent_api::v1::exec_event::Event;

/// Calls measured.
const CALLS: usize = 500;

/// The largest resident size while a gigabyte goes through.
const RESIDENT_BYTES_MAX: u64 = 6 << 20;

/// The median, and the tenth that a busy machine disturbs least.
fn spread(mut times: Vec<Duration>) -> String {
    times.sort_unstable();
    format!(
        "p50 {:?}, p10 {:?}",
        times[times.len() / 2],
        times[times.len() / 10]
    )
}

#[tokio::test]
#[ignore = "measures; run by name"]
async fn the_agent_is_small_and_fast() {
    let agent = Agent::start().await;
    let mut client = agent.client.clone();
    let mut hellos = Vec::new();
    for _ in 0..CALLS {
        let began = Instant::now();
        client.hello(HelloRequest { protocol: 1 }).await.unwrap();
        hellos.push(began.elapsed());
    }
    println!("hello: {}", spread(hellos));
    println!("resident, idle: {} KiB", agent.resident_bytes() >> 10);
    let mut execs = Vec::new();
    for index in 0..CALLS {
        let start = command(&format!("true-{index}"), &["/bin/true"]);
        let began = Instant::now();
        agent.run(start).await;
        execs.push(began.elapsed());
    }
    println!("exec /bin/true: {}", spread(execs));
    println!(
        "resident, after {CALLS} execs: {} KiB",
        agent.resident_bytes() >> 10
    );
}

#[tokio::test]
#[ignore = "measures; run by name"]
async fn a_gigabyte_streams_in_little_memory() {
    let agent = Agent::start().await;
    let start = shell("gigabyte", "exec head -c 1G /dev/zero");
    let began = Instant::now();
    let mut exec = agent.start_exec(start).await.unwrap();
    let (mut bytes, mut resident) = (0_u64, 0);
    while let Some(event) = exec.events.message().await.unwrap() {
        if event.seq % 4 == 0 {
            exec.ack(event.seq).await;
        }
        if event.seq % 2048 == 0 {
            resident = resident.max(agent.resident_bytes());
        }
        if let Some(Event::Output(output)) = event.event {
            bytes += output.data.len() as u64;
        }
    }
    let rate = (bytes >> 20) * 1000 / u64::try_from(began.elapsed().as_millis()).unwrap();
    assert_eq!(bytes, 1 << 30);
    println!(
        "1 GiB: {rate} MiB/s, resident at most {} KiB",
        resident >> 10
    );
    assert!(resident < RESIDENT_BYTES_MAX);
}
