//! What egress takes of an agent's memory, which its container pays for.
#![allow(clippy::unwrap_used, reason = "all of it is for tests")]

use std::time::Duration;

use tokio::task::JoinSet;

use crate::harness::Agent;
use crate::trust;
use crate::tunnels::{fill_with, listening, tunnel};
use hotcell_agent_client::bounds::{CHUNK_BYTES_MAX, TUNNELS_MAX};

/// What as many tunnels as there can be take when nobody reads what comes through them.
const STOPPED_BYTES_MAX: u64 = 16 << 20;

/// What a profile leaves behind in an agent.
const TRUST_BYTES_MAX: u64 = 200 << 10;

/// How long nothing is accepted of a stream that has stopped.
const QUIET: Duration = Duration::from_secs(2);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tunnels_whose_readers_stop_take_little_memory() {
    for chunk_bytes in [CHUNK_BYTES_MAX / 4, CHUNK_BYTES_MAX] {
        let (agent, _server, mut tunnels, address) = listening().await;
        let before = agent.anonymous_bytes();
        let mut filling = JoinSet::new();
        for _ in 0..TUNNELS_MAX {
            let (inside, mut outside) = tunnel(&mut tunnels, address).await;
            filling.spawn(async move {
                let written = fill_with(&mut outside, chunk_bytes, QUIET).await;
                (inside, outside, written)
            });
        }
        let stopped = filling.join_all().await;
        assert!(stopped.iter().all(|(_, _, written)| *written > 64 << 10));
        let more = agent.anonymous_bytes().saturating_sub(before);
        assert!(
            more <= STOPPED_BYTES_MAX,
            "{} KiB in chunks of {chunk_bytes}",
            more >> 10
        );
    }
}

#[tokio::test]
async fn certificates_that_were_written_do_not_stay_in_memory() {
    let agent = Agent::start().await;
    agent.sh("true").await;
    let before = agent.anonymous_bytes();
    let directory = trust::directory();
    let authority = trust::authority(directory.path());
    let reply = trust::trust(&agent, &authority, directory.path())
        .await
        .unwrap();
    let bundle = trust::read(&reply.bundle);
    assert!(bundle.len() > authority.len(), "it was merged with nothing");
    let more = agent.anonymous_bytes().saturating_sub(before);
    assert!(more <= TRUST_BYTES_MAX, "{} KiB", more >> 10);
}
