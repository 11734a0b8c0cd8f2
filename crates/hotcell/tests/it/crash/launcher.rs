//! The launcher is killed.

use std::time::Duration;

use hotcell_domain::Lifetime;
use hotcell_engine::Engine;

use super::moment::{Moments, agent_pid, connect, kill, nothing_left, parent_of, spec};
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
    for seed in 200..240 {
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
