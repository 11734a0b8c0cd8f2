//! The launcher is killed.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use hotcell_domain::Lifetime;
use hotcell_engine::Engine;

use serde_json::json;

use super::moment::{Moments, agent_pid, connect, kill, nothing_left, parent_of, spec};
use crate::chaos::strike;
use crate::support::home::Home;
use crate::support::{assert_nothing_left, chain, engine, new_id, scratch};

/// Longer than a launch takes on a quiet machine.
const LONGEST: Duration = Duration::from_millis(8);

#[tokio::test]
async fn containers_outlive_their_launcher_and_the_next_one_makes_more() {
    let home = scratch();
    let engine = engine(home.path());
    let (first, second) = (new_id(), new_id());
    let spec = spec(Lifetime::UntilDestroyed);
    hotcell_engine::fetch_and_create(&engine, &first, &spec)
        .await
        .unwrap();
    let agent = connect(&engine, &first).await;
    let launcher = parent_of(agent_pid(&first));
    kill(launcher);
    agent.stat(b"", false).await.unwrap();
    hotcell_engine::fetch_and_create(&engine, &second, &spec)
        .await
        .unwrap();
    assert_ne!(parent_of(agent_pid(&second)), launcher);
    for id in [&first, &second] {
        connect(&engine, id).await.stat(b"", false).await.unwrap();
        engine.destroy(id).await.unwrap();
        assert_nothing_left(id, home.path());
    }
}

#[tokio::test]
async fn a_launcher_that_dies_in_the_middle_of_a_launch_is_replaced_and_leaves_nothing() {
    let home = scratch();
    let engine = engine(home.path());
    let spec = spec(Lifetime::UntilDestroyed);
    for seed in 200..216 {
        let mut moments = Moments::of(seed);
        let (before, id) = (new_id(), new_id());
        hotcell_engine::fetch_and_create(&engine, &before, &spec)
            .await
            .unwrap();
        let launcher = parent_of(agent_pid(&before));
        let killed = async {
            moments.wait(LONGEST).await;
            kill(launcher);
        };
        let (made, ()) = tokio::join!(
            hotcell_engine::fetch_and_create(&engine, &id, &spec),
            killed
        );
        // Whatever the dead one had begun, the next one has finished.
        made.unwrap_or_else(|error| panic!("seed {seed}: {}", chain(&error)));
        connect(&engine, &id).await.stat(b"", false).await.unwrap();
        engine.destroy(&id).await.unwrap();
        nothing_left(&id, home.path(), seed).await;
        connect(&engine, &before)
            .await
            .stat(b"", false)
            .await
            .unwrap();
        engine.destroy(&before).await.unwrap();
    }
}

#[test]
fn a_spawn_whose_launchers_keep_dying_is_answered_and_leaves_nothing() {
    let home = Home::new();
    let server = home.serve_with(&["--drain-grace-s", "0", "--warm", "0"]);
    let (mut client, pid) = (server.client(), server.pid());
    let (is_over, killed) = (AtomicBool::new(false), AtomicU32::new(0));
    let mut seen = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::SeqCst) {
                if strike::launcher(pid).is_some() {
                    killed.fetch_add(1, Ordering::SeqCst);
                }
            }
        });
        // Until enough have died for one of them to have died during a launch.
        while killed.load(Ordering::SeqCst) < 40 {
            let answer = client.call("spawn", json!({}))["structuredContent"].clone();
            let is_refused = answer["code"] == "unavailable";
            assert!(is_refused || answer["status"] == "running", "{answer}");
            seen.extend(home.containers());
            if !is_refused {
                let id = &answer["container_id"];
                client.ok("kill", json!({ "container_id": id, "force": true }));
            }
        }
        is_over.store(true, Ordering::SeqCst);
    });
    let id = client.ok("spawn", json!({}))["container_id"].clone();
    client.ok("kill", json!({ "container_id": id, "force": true }));
    assert!(server.terminate().success());
    home.assert_empty(&seen);
}
