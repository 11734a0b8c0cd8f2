//! A little workload on the fake engine while things go wrong by seed: engine faults,
//! crashes of containers, and servers that die.
//!
//! Whatever goes wrong: what the service lists, what the store wants and what the engine
//! holds are the same in the end, aliases are unique, and a stop leaves persistent
//! containers alone. A failure prints the seed; `HOTCELL_SEED=N` runs that one alone.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use hotcell_domain::{ContainerId, ContainerRef, ContainerSpec, ImageRef, Phase, Policy};
use hotcell_service::{Service, ServiceError, Spawn};
use hotcell_testkit::fake::{Faults, each_seed};

use crate::fixture::{Fixture, by_alias, keyed, me, name, named, persistent};

const SEEDS: u64 = 48;

/// The timeout of one seed, which only a hang reaches.
const SEED_TIMEOUT: Duration = Duration::from_mins(5);

/// Steps per seed.
const STEPS: usize = 14;

/// How long settling everything may take: faults are bounded, and a container that ended is
/// restarted after a while.
const SETTLE_TIMEOUT: Duration = Duration::from_mins(2);

/// Counts how often each event happened.
#[derive(Debug, Default)]
struct Tally {
    spawned: u32,
    spawns_failed: u32,
    killed: u32,
    kills_failed: u32,
    restarts: u32,
    collected: u64,
    reconciled: u64,
}

/// Random choices from a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        // An xorshift generator: good enough to choose steps.
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

#[test]
fn faults_leave_store_engine_and_service_of_one_mind() {
    let mut tally = Tally::default();
    let all_ran = each_seed(SEEDS, "hotcell-service", |seed| run(seed, &mut tally));
    eprintln!("{tally:?}");
    if all_ran {
        assert_each_happened(&tally);
    }
}

/// Fails if an event never happened: then the test would prove nothing.
fn assert_each_happened(tally: &Tally) {
    assert!(tally.spawned > 0 && tally.spawns_failed > 0);
    assert!(tally.killed > 0);
    assert!(tally.restarts > 0);
    assert!(tally.collected > 0 && tally.reconciled > 0);
}

fn run(seed: u64, tally: &mut Tally) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let fixture = Fixture::with_faults(Faults::from_seed(seed));
    runtime.block_on(async {
        let story = live(&fixture, Dice(seed * 2 + 1), tally);
        tokio::time::timeout(SEED_TIMEOUT, story).await?
    })
}

async fn live(fixture: &Fixture, mut dice: Dice, tally: &mut Tally) -> anyhow::Result<()> {
    let mut service = fixture.start().await;
    for _ in 0..STEPS {
        match dice.below(11) {
            0..=3 => spawn_two(&service, &mut dice, tally).await?,
            4 | 5 => kill_one(&service, &mut dice, tally).await?,
            6 => crash_one(fixture, &mut dice).await,
            7 => {
                fixture.advance(Duration::from_secs(dice.below(90)));
                tally.collected += collect(&service).await?;
            }
            8 => leave_stranger(fixture, &mut dice).await?,
            9 => {
                let found = service.reconcile(&me()).await?;
                tally.reconciled += found.adopted + found.cleaned + found.orphaned + found.errors;
            }
            _ => {
                drop(service);
                service = fixture.start().await;
                tally.restarts += 1;
            }
        }
    }
    settle(fixture, &service).await?;
    check_stop(fixture, service).await
}

async fn collect(service: &Service) -> anyhow::Result<u64> {
    let collected = service.collect_garbage(&me(), false).await?;
    Ok(collected.expired_containers + collected.idle_containers + collected.errors)
}

/// Leaves a container of another server, lost or half created.
async fn leave_stranger(fixture: &Fixture, dice: &mut Dice) -> anyhow::Result<()> {
    let id = ContainerId::from_parts(dice.below(1 << 20), [1; 10]);
    if dice.below(2) == 0 {
        std::fs::create_dir_all(fixture.directory(&id))?;
    } else {
        let spec = Policy::default().admit(ContainerSpec::new(ImageRef::Host))?;
        hotcell_engine::fetch_and_create(&fixture.engine(), &id, &spec).await?;
    }
    Ok(())
}

/// Spawns two containers concurrently, perhaps with the same alias or key.
async fn spawn_two(service: &Service, dice: &mut Dice, tally: &mut Tally) -> anyhow::Result<()> {
    let (one, other) = (request(dice), request(dice));
    let me = me();
    let (one, other) = tokio::join!(service.spawn(&me, one), service.spawn(&me, other));
    for spawned in [one, other] {
        match spawned {
            Ok(_) => tally.spawned += 1,
            Err(ServiceError::AlreadyExists { what: "alias", .. }) => {}
            Err(ServiceError::Internal { .. } | ServiceError::Unavailable { .. }) => {
                tally.spawns_failed += 1;
            }
            Err(error) => return Err(error).context("a spawn failed in another way"),
        }
    }
    Ok(())
}

fn request(dice: &mut Dice) -> Spawn {
    match dice.below(5) {
        0 => named(["a", "b"][usize::from(dice.below(2) == 0)]),
        1 => keyed(["k", "l"][usize::from(dice.below(2) == 0)]),
        2 => persistent(),
        3 => Spawn {
            ttl_s: Some(60),
            ..Spawn::default()
        },
        _ => Spawn {
            key: Some(name("m")),
            ..named("c")
        },
    }
}

async fn kill_one(service: &Service, dice: &mut Dice, tally: &mut Tally) -> anyhow::Result<()> {
    let listed = service.containers(&me(), false).await?;
    let target = match dice.below(listed.len() as u64 + 1) {
        0 => by_alias("a"),
        number => {
            let view = &listed[usize::try_from(number - 1)?];
            ContainerRef::Id(view.id.clone())
        }
    };
    let force = dice.below(2) == 0;
    match service.kill(&me(), &target, force).await {
        Ok(()) => tally.killed += 1,
        Err(ServiceError::NotFound { .. }) => {}
        Err(ServiceError::Internal { .. }) => tally.kills_failed += 1,
        Err(error) => return Err(error).context("a kill failed in another way"),
    }
    Ok(())
}

async fn crash_one(fixture: &Fixture, dice: &mut Dice) {
    let held = fixture.held().await;
    if !held.is_empty() {
        let number = dice.below(held.len() as u64);
        let id = &held[usize::try_from(number).unwrap_or_default()];
        // It may have ended meanwhile.
        let _ = fixture.engine().crash(id).await;
    }
}

/// Reconciles and kills containers that could not be removed, until store and engine agree.
async fn settle(fixture: &Fixture, service: &Service) -> anyhow::Result<()> {
    let deadline = Instant::now() + SETTLE_TIMEOUT;
    loop {
        service.reconcile(&me()).await?;
        for view in service.containers(&me(), false).await? {
            if view.phase == Phase::Stopping {
                let target = ContainerRef::Id(view.id);
                let _ = service.kill(&me(), &target, true).await;
            }
        }
        let listed = service.containers(&me(), false).await?;
        // A container that ended too often stays halted.
        let is_settled = |phase| matches!(phase, Phase::Running | Phase::Halted);
        let are_settled = listed.iter().all(|view| is_settled(view.phase));
        let mut listed: Vec<_> = listed
            .into_iter()
            .map(|view| (view.id, view.phase))
            .collect();
        listed.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        let held = fixture.held().await;
        if are_settled && listed.iter().map(|(id, _)| id).eq(&held) {
            return check_aliases(service).await;
        }
        ensure!(
            Instant::now() < deadline,
            "they did not come to agree: the service lists {listed:?}, the engine holds {held:?}"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn check_aliases(service: &Service) -> anyhow::Result<()> {
    let mut seen = BTreeSet::new();
    for view in service.containers(&me(), false).await? {
        if let Some(alias) = view.alias {
            ensure!(seen.insert(alias.clone()), "two containers are {alias}");
            let found = service
                .container(&me(), &ContainerRef::Alias(alias))
                .await?;
            ensure!(found.id == view.id, "an alias leads elsewhere");
        }
    }
    Ok(())
}

/// After a stop only persistent containers are left, in the store and in the engine.
async fn check_stop(fixture: &Fixture, service: Service) -> anyhow::Result<()> {
    service.stop(Duration::ZERO).await;
    drop(service);
    let living = fixture.store().await.active_containers().await?;
    let is_odd = |row: &&hotcell_store::ContainerRow| !row.is_persistent;
    let odd: Vec<_> = living.iter().filter(is_odd).collect();
    ensure!(odd.is_empty(), "not removed by the stop: {odd:?}");
    let wanted: BTreeSet<_> = living.into_iter().map(|row| row.id).collect();
    let held: BTreeSet<_> = fixture.held().await.into_iter().collect();
    ensure!(
        wanted == held,
        "the store wants {wanted:?}, the engine holds {held:?}"
    );
    Ok(())
}
