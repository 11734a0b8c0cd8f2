//! What a principal may have at most, and that it is counted right whatever happens.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::ensure;
use hotcell_domain::{
    Bytes, Caller, Command, ContainerRef, ExecId, Limits, OverQuota, Principal, Quota, QuotaKind,
    QuotaOverride, Quotas,
};
use hotcell_service::{Abandonment, PageRequest, Service, ServiceError, Spawn, Start};
use hotcell_testkit::fake::{Faults, each_seed};
use hotcell_testkit::world::{open_sh, sh};

use crate::fixture::{DEADLINE, Fixture, by_id, keyed, me, name, somebody_else, until};

fn start(command: Command) -> Start {
    Start {
        command,
        key: None,
        abandonment: Abandonment::default(),
    }
}

fn excess<T: std::fmt::Debug>(refused: Result<T, ServiceError>) -> OverQuota {
    match refused {
        Err(ServiceError::OverQuota(excess)) => excess,
        other => panic!("not over quota: {other:?}"),
    }
}

async fn spawn(service: &Service, caller: &Caller) -> ContainerRef {
    let spawned = service.spawn(caller, Spawn::default()).await;
    by_id(&spawned.expect("it is created"))
}

async fn exec(
    service: &Service,
    caller: Caller,
    container: &ContainerRef,
    request: Start,
) -> Result<ExecId, ServiceError> {
    service.exec_start(&caller, container, request).await
}

async fn until_none_lives(service: &Service, caller: &Caller) {
    until("no exec lives", async || {
        let live = service.execs(caller, None, false).await;
        live.is_ok_and(|live| live.is_empty())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn disk_limits_count_until_their_container_is_gone_and_over_a_restart() {
    let mut fixture = Fixture::new();
    let each = Limits::default().disk.get();
    fixture.settings.quotas.default.disk_bytes = 2 * each;
    let service = fixture.start().await;
    let (one, _other) = (spawn(&service, &me()).await, spawn(&service, &me()).await);
    let third = service.spawn(&me(), Spawn::default()).await;
    let over = excess(third);
    assert_eq!((over.quota, over.limit), (QuotaKind::DiskBytes, 2 * each));
    assert_eq!(over.used, 2 * each);
    // Others have a quota of their own, and a smaller container fits when there is room for it.
    spawn(&service, &somebody_else()).await;
    service.kill(&me(), &one, true).await.expect("it is killed");
    let small = Spawn {
        limits: Some(Limits {
            disk: Bytes::new(each / 2).expect("a size"),
            ..Limits::default()
        }),
        is_persistent: true,
        ..Spawn::default()
    };
    service
        .spawn(&me(), small.clone())
        .await
        .expect("there is room");
    assert_eq!(
        excess(service.spawn(&me(), Spawn::default()).await).used,
        each + each / 2
    );
    let status = service.status(&me()).await.expect("it tells");
    let mine = status
        .principals
        .iter()
        .find(|one| one.principal == me().principal);
    assert_eq!(mine.map(|one| one.disk_bytes), Some(each + each / 2));
    drop(service);
    let service = fixture.start().await;
    service
        .spawn(&me(), small)
        .await
        .expect("there is room for as much");
    assert_eq!(
        excess(service.spawn(&me(), Spawn::default()).await).used,
        2 * each
    );
    service.stop(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn execs_count_in_all_containers_together_until_they_end() {
    let mut fixture = Fixture::new();
    fixture.settings.quotas.default.execs = 2;
    let service = fixture.start().await;
    let (one, other) = (spawn(&service, &me()).await, spawn(&service, &me()).await);
    let request = Start {
        key: Some(name("k")),
        ..start(open_sh("read line"))
    };
    let first = exec(&service, me(), &one, request.clone()).await;
    let first = first.unwrap();
    let second = exec(&service, me(), &other, start(open_sh("read line")));
    second.await.unwrap();
    for container in [&one, &other] {
        let refused = exec(&service, me(), container, start(sh("true")));
        let excess = excess(refused.await);
        let told = (excess.quota, excess.limit, excess.used);
        assert_eq!(told, (QuotaKind::Execs, 2, 2));
    }
    // The same request again is none more, and others have their own.
    let again = exec(&service, me(), &one, request).await;
    assert_eq!(again.unwrap(), first);
    let theirs = spawn(&service, &somebody_else()).await;
    let started = exec(&service, somebody_else(), &theirs, start(sh("true")));
    started.await.unwrap();
    service.exec_cancel(&me(), &first).await.unwrap();
    let third = exec(&service, me(), &one, start(sh("true"))).await;
    third.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_override_holds_for_its_principal_alone_and_after_a_restart() {
    let mut fixture = Fixture::new();
    let chosen = QuotaOverride::parse("execs=1").unwrap();
    fixture.settings.quotas = Quotas {
        default: Quota::default(),
        overrides: [(me().principal, chosen)].into(),
    };
    let service = fixture.start().await;
    let container = service.spawn(&me(), keyed("k")).await.unwrap();
    let container = by_id(&container);
    let waits = || start(open_sh("read line"));
    let running = exec(&service, me(), &container, waits()).await.unwrap();
    excess(exec(&service, me(), &container, waits()).await);
    drop(service);
    let service = fixture.start().await;
    excess(exec(&service, me(), &container, waits()).await);
    service.exec_cancel(&me(), &running).await.unwrap();
    exec(&service, me(), &container, waits()).await.unwrap();
    let theirs = spawn(&service, &somebody_else()).await;
    for _ in 0..2 {
        let started = exec(&service, somebody_else(), &theirs, waits());
        started.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn containers_per_minute_are_counted_over_a_restart() {
    let mut fixture = Fixture::new();
    fixture.settings.quotas.default.spawns_per_minute = 2;
    let service = fixture.start().await;
    let first = service.spawn(&me(), keyed("k")).await.unwrap();
    service.kill(&me(), &by_id(&first), true).await.unwrap();
    spawn(&service, &me()).await;
    let refused = excess(service.spawn(&me(), Spawn::default()).await);
    assert_eq!(refused.quota, QuotaKind::SpawnsPerMinute);
    assert_eq!(refused.retry_after_s, Some(30));
    // What was created before is answered, and others have their own.
    assert_eq!(service.spawn(&me(), keyed("k")).await.unwrap().id, first.id);
    spawn(&service, &somebody_else()).await;
    drop(service);
    let service = fixture.start().await;
    excess(service.spawn(&me(), Spawn::default()).await);
    fixture.advance(Duration::from_secs(30));
    spawn(&service, &me()).await;
    excess(service.spawn(&me(), Spawn::default()).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn output_of_running_execs_counts_after_a_restart_too() {
    let mut fixture = Fixture::new();
    fixture.settings.quotas.default.output_bytes = 100_000;
    let service = fixture.start().await;
    let container = service.spawn(&me(), crate::fixture::persistent()).await;
    let container = by_id(&container.unwrap());
    let writer = "head -c 110000 /dev/zero; read line";
    let writer = exec(&service, me(), &container, start(open_sh(writer)));
    let writer = writer.await.unwrap();
    let is_over = async |service: &Service| {
        let started = exec(service, me(), &container, start(sh("true")));
        matches!(started.await, Err(ServiceError::OverQuota(excess)) if excess.quota == QuotaKind::OutputBytes)
    };
    until("its output is counted", async || is_over(&service).await).await;
    drop(service);
    let service = fixture.start().await;
    until("its output is counted", async || is_over(&service).await).await;
    service.exec_cancel(&me(), &writer).await.unwrap();
    until("there is room again", async || !is_over(&service).await).await;
    until_none_lives(&service, &me()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_an_admin_sees_the_containers_of_all() {
    let fixture = Fixture::new();
    let service = fixture.start().await;
    let (mine, theirs) = (
        spawn(&service, &me()).await,
        spawn(&service, &somebody_else()).await,
    );
    service.kill(&me(), &mine, true).await.unwrap();
    let nobody = Caller {
        is_admin: false,
        ..me()
    };
    let refused = service
        .all_containers_page(&nobody, true, &PageRequest::default())
        .await;
    assert!(
        matches!(refused, Err(ServiceError::Denied { .. })),
        "{refused:?}"
    );
    let shown = async |include_stopped| {
        let (admin, page) = (me(), PageRequest::default());
        let all = service.all_containers_page(&admin, include_stopped, &page);
        let all = all.await.unwrap().rows.into_iter();
        all.map(|view| (ContainerRef::Id(view.id), view.principal))
            .collect::<Vec<_>>()
    };
    let others = (theirs, somebody_else().principal);
    assert_eq!(shown(false).await, std::slice::from_ref(&others));
    assert_eq!(shown(true).await, [(mine, me().principal), others]);
}

const SEEDS: u64 = 24;
const STEPS: usize = 16;
const CONTAINERS: usize = 3;
const EXECS: usize = 5;

/// How often a quota refused something, and what else must have happened.
#[derive(Debug, Default)]
struct Tally {
    refused: BTreeMap<&'static str, u32>,
    execs: u32,
    restarts: u32,
    crashes: u32,
}

#[test]
fn after_any_story_the_counts_are_what_a_recount_gives() {
    let mut tally = Tally::default();
    let all_ran = each_seed(SEEDS, "hotcell-service", |seed| run(seed, &mut tally));
    eprintln!("{tally:?}");
    if all_ran {
        assert!(tally.refused.contains_key("containers") && tally.refused.contains_key("execs"));
        assert!(tally.execs > 0 && tally.restarts > 0 && tally.crashes > 0);
    }
}

fn run(seed: u64, tally: &mut Tally) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let mut fixture = Fixture::with_faults(Faults::from_seed(seed));
    fixture.settings.quotas.default.containers = CONTAINERS;
    fixture.settings.quotas.default.execs = EXECS;
    runtime.block_on(async {
        let story = live(&fixture, seed * 2 + 1, tally);
        tokio::time::timeout(DEADLINE, story).await?
    })
}

async fn live(fixture: &Fixture, mut dice: u64, tally: &mut Tally) -> anyhow::Result<()> {
    let mut below = |bound: u64| {
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        usize::try_from(dice % bound).unwrap_or_default()
    };
    let mut service = fixture.start().await;
    for _ in 0..STEPS {
        let caller = if below(2) == 0 { me() } else { somebody_else() };
        match below(10) {
            0..=2 => {
                let (one, other) = tokio::join!(
                    service.spawn(&caller, crate::fixture::persistent()),
                    service.spawn(&caller, Spawn::default())
                );
                note(tally, one);
                note(tally, other);
            }
            3..=6 => start_three(&service, &caller, below(3), tally).await?,
            7 => kill_or_cancel(&service, &caller, below(4)).await?,
            8 => {
                let held = fixture.held().await;
                if let Some(id) = held.get(below(3)) {
                    let _ = fixture.engine().crash(id).await;
                    tally.crashes += 1;
                }
            }
            _ => {
                drop(service);
                service = fixture.start().await;
                tally.restarts += 1;
            }
        }
        for caller in [me(), somebody_else()] {
            // Containers that were found running count, and may be more than were let in.
            let used = used(&service, &caller.principal).await?;
            ensure!(used.1 <= EXECS, "{used:?}");
        }
    }
    recount(&service).await?;
    for caller in [me(), somebody_else()] {
        empty(&service, &caller).await?;
    }
    recount(&service).await
}

fn note<T>(tally: &mut Tally, done: Result<T, ServiceError>) -> Option<T> {
    if let Err(ServiceError::OverQuota(excess)) = &done {
        *tally.refused.entry(excess.quota.as_str()).or_default() += 1;
    }
    done.ok()
}

/// At once, in one container.
async fn start_three(
    service: &Service,
    caller: &Caller,
    at: usize,
    tally: &mut Tally,
) -> anyhow::Result<()> {
    let listed = service.containers(caller, false).await?;
    let Some(container) = listed.get(at % listed.len().max(1)) else {
        return Ok(());
    };
    let container = by_id(container);
    let begin = |script| service.exec_start(caller, &container, start(open_sh(script)));
    let (one, two, three) = tokio::join!(begin("true"), begin("read line"), begin("echo; read l"));
    for started in [one, two, three] {
        let started: Option<ExecId> = note(tally, started);
        tally.execs += u32::from(started.is_some());
    }
    Ok(())
}

async fn kill_or_cancel(service: &Service, caller: &Caller, at: usize) -> anyhow::Result<()> {
    if let Some(exec) = service.execs(caller, None, false).await?.get(at) {
        let _ = service.exec_cancel(caller, &exec.id).await;
    } else if let Some(view) = service.containers(caller, false).await?.get(at) {
        let _ = service.kill(caller, &by_id(view), true).await;
    }
    Ok(())
}

/// Containers and execs as the server counts them.
async fn used(service: &Service, principal: &Principal) -> anyhow::Result<(usize, usize)> {
    let all = service.status(&me()).await?.principals;
    let own = all.iter().find(|used| used.principal == *principal);
    Ok(own.map_or((0, 0), |used| (used.containers, used.execs)))
}

/// Compares with what is listed, as soon as nothing is on its way.
async fn recount(service: &Service) -> anyhow::Result<()> {
    let deadline = Instant::now() + DEADLINE;
    for caller in [me(), somebody_else()] {
        loop {
            let containers = service.containers(&caller, false).await?.len();
            let execs = service.execs(&caller, None, false).await?.len();
            let used = used(service, &caller.principal).await?;
            if used == (containers, execs) {
                break;
            }
            ensure!(
                Instant::now() < deadline,
                "counted {used:?}, listed {containers} and {execs}"
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    Ok(())
}

async fn empty(service: &Service, caller: &Caller) -> anyhow::Result<()> {
    let deadline = Instant::now() + DEADLINE;
    while used(service, &caller.principal).await? != (0, 0) {
        ensure!(Instant::now() < deadline, "something stays");
        for view in service.containers(caller, false).await? {
            let _ = service.kill(caller, &by_id(&view), true).await;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}
