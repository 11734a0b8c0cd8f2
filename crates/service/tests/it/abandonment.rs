//! Containers and execs whose caller went away without an answer.

use std::time::{Duration, Instant};

use hotcell_domain::{ContainerId, ExecStatus};
use hotcell_service::{Abandonment, ContainerView, Spawn, Start};
use hotcell_testkit::world::{PATIENCE, World, name, sh};

/// Spawns, then answers or goes away.
async fn spawn(world: &World, key: Option<&str>, is_answered: bool) -> ContainerView {
    let (abandonment, waiting) = Abandonment::new();
    let request = Spawn {
        key: key.map(name),
        abandonment,
        ..Spawn::default()
    };
    let spawned = world.service.spawn(&world.caller, request).await;
    if is_answered {
        waiting.answered();
    }
    spawned.expect("it is created")
}

async fn listed(world: &World) -> Vec<ContainerView> {
    let listed = world.service.containers(&world.caller, false).await;
    listed.expect("it lists")
}

async fn until_gone(world: &World, id: &ContainerId) {
    let deadline = Instant::now() + PATIENCE;
    while listed(world).await.iter().any(|one| one.id == *id) {
        assert!(Instant::now() < deadline, "{id} stays");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_abandoned_container_is_removed_unless_a_key_leads_back_to_it() {
    let world = World::new().await;
    let answered = spawn(&world, None, true).await;
    let keyed = spawn(&world, Some("key"), false).await;
    let abandoned = spawn(&world, None, false).await;
    until_gone(&world, &abandoned.id).await;
    let left: Vec<_> = listed(&world).await.into_iter().map(|one| one.id).collect();
    assert_eq!(left, [answered.id, keyed.id.clone()]);
    assert_eq!(spawn(&world, Some("key"), true).await.id, keyed.id);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_whose_caller_goes_away_while_it_is_made_is_not_made() {
    let world = World::new().await;
    let (abandonment, waiting) = Abandonment::new();
    drop(waiting);
    let request = Spawn {
        abandonment,
        ..Spawn::default()
    };
    let spawned = world.service.spawn(&world.caller, request).await;
    if let Ok(view) = spawned {
        until_gone(&world, &view.id).await;
    }
    assert_eq!(listed(&world).await, []);
    let held = world.engine.list().await.expect("it lists");
    assert!(held.is_empty(), "{held:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_abandoned_exec_is_cancelled_unless_a_key_leads_back_to_it() {
    let world = World::new().await;
    let container = world.spawn().await;
    let start = async |key: Option<&str>, is_answered: bool| {
        let (abandonment, waiting) = Abandonment::new();
        let request = Start {
            command: sh("sleep 1000"),
            key: key.map(name),
            abandonment,
        };
        let started = world
            .service
            .exec_start(&world.caller, &container, request)
            .await;
        if is_answered {
            waiting.answered();
        }
        started.expect("it starts")
    };
    let answered = start(None, true).await;
    let keyed = start(Some("key"), false).await;
    let abandoned = start(None, false).await;
    world.until(&abandoned, ExecStatus::Cancelled).await;
    world.until(&answered, ExecStatus::Running).await;
    world.until(&keyed, ExecStatus::Running).await;
}
