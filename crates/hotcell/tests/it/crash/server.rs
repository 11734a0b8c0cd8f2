//! The server is killed.

use std::time::Duration;

use hotcell_agent_client::EventKind;
use hotcell_engine::Engine;

use super::driver::Driver;
use super::moment::{Moments, connect, nothing_left, take_over};
use crate::support::{deadline, engine, scratch};

/// Longer than it takes to make or unmake a container on a quiet machine.
const LONGEST: Duration = Duration::from_millis(25);

#[tokio::test]
async fn a_server_that_dies_while_it_makes_containers_leaves_nothing_behind() {
    for seed in 0..10 {
        let (home, mut moments) = (scratch(), Moments::of(seed));
        let mut driver = Driver::start("create", home.path());
        for _ in 0..=moments.below(4) {
            driver.wait_for("making");
        }
        moments.wait(LONGEST).await;
        let ids = driver.kill().await;
        take_over(home.path(), &ids, seed).await;
    }
}

#[tokio::test]
async fn a_server_that_dies_while_it_destroys_containers_leaves_nothing_behind() {
    for seed in 100..106 {
        let (home, mut moments) = (scratch(), Moments::of(seed));
        let mut driver = Driver::start("destroy", home.path());
        for _ in 0..=moments.below(4) {
            driver.wait_for("unmaking");
        }
        moments.wait(LONGEST).await;
        let ids = driver.kill().await;
        take_over(home.path(), &ids, seed).await;
    }
}

#[tokio::test]
async fn an_exec_outlives_the_server_and_tells_the_next_one_everything() {
    let home = scratch();
    let mut driver = Driver::start("exec", home.path());
    let id = driver.wait_for("event-20");
    let ids = driver.kill().await;
    let engine = engine(home.path());
    let agent = connect(&engine, &id).await;
    let held = agent.list_execs().await.unwrap();
    assert_eq!(held.len(), 1);
    assert!(held[0].running && held[0].exec_id == "counting");
    // Whatever the dead one had not acknowledged is still there, without a gap.
    let mut follow = agent.resume("counting", held[0].acked_seq).await.unwrap();
    let mut text = Vec::new();
    let read = async {
        while text.len() < 1 << 20 {
            let event = follow.next().await.unwrap().unwrap();
            if let EventKind::Output(_, data) = &event.kind {
                text.extend_from_slice(data);
            }
            follow.ack(event.seq);
        }
    };
    tokio::time::timeout(deadline(), read)
        .await
        .expect("it goes on");
    assert_counts(&text);
    drop(agent);
    engine.destroy(&id).await.unwrap();
    nothing_left(&ids[0], home.path(), 0).await;
}

/// Lines that count without a gap; the first and the last may be cut.
fn assert_counts(text: &[u8]) {
    let text = std::str::from_utf8(text).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let numbers = lines[1..lines.len() - 1].iter();
    let numbers: Vec<u64> = numbers.map(|line| line.parse().unwrap()).collect();
    assert!(numbers.len() > 1000);
    assert!(numbers.windows(2).all(|pair| pair[0] + 1 == pair[1]));
}
