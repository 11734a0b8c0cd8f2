//! Servers die, connections are cut, disks are full: no byte is lost or duplicated, and nothing
//! runs twice.

use std::time::{Duration, Instant};

use hotcell_domain::{ContainerRef, ExecStatus, Stdin};
use hotcell_service::{Input, Settings, Start};
use hotcell_testkit::fake::{Faults, seeds};
use hotcell_testkit::world::{PATIENCE, World, eventually, name, open_sh, sh};

/// How often connections are cut, each time in another way.
const SEEDS: u64 = 60;

/// Lines of output of the counting command, with characters of every length.
const LINES: usize = 3000;

fn counting() -> String {
    format!(
        "echo run >> runs; i=0; while [ $i -lt {LINES} ]; do echo $i aé€😀; i=$((i+1)); [ $((i%300)) = 0 ] && sleep 0.05; done; echo done >&2"
    )
}

fn counted() -> String {
    let lines: Vec<_> = (0..LINES).map(|line| format!("{line} aé€😀\n")).collect();
    lines.concat()
}

fn runs(world: &World, container: &ContainerRef) -> String {
    std::fs::read_to_string(world.root(container).join("runs")).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn restarts_in_the_middle_of_output_lose_and_double_nothing() {
    let mut world = World::new().await;
    let container = world.spawn().await;
    let id = world.start(&container, sh(&counting())).await;
    for line in [0, 100, 900, 1700] {
        world.until_wrote(&id, &format!("{line} ")).await;
        world = world.restart().await;
    }
    let ended = world.finish(&id).await;
    assert_eq!(ended.view.status, ExecStatus::Succeeded);
    assert_eq!(String::from_utf8(ended.stdout).unwrap(), counted());
    assert_eq!(ended.stderr, b"done\n");
    assert_eq!(runs(&world, &container), "run\n");
    // The next server returns the same output.
    let world = world.restart().await;
    let again = world.finish(&id).await;
    assert_eq!(String::from_utf8(again.stdout).unwrap(), counted());
    assert_eq!(again.view.end, ended.view.end);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_dies_at_any_moment_of_an_exec_runs_it_once() {
    let mut world = World::new().await;
    let container = world.spawn().await;
    for moment in 0..40 {
        let request = || Start {
            command: sh(&format!("echo {moment} | tee -a runs")),
            key: Some(name(&format!("key {moment}"))),
            abandonment: hotcell_service::Abandonment::default(),
        };
        let first = world
            .service
            .exec_start(&world.caller, &container, request());
        let until = Duration::from_micros(moment * 150);
        let began = Instant::now();
        let first = tokio::time::timeout(until, first).await;
        tokio::time::sleep(until.saturating_sub(began.elapsed())).await;
        world = world.restart().await;
        let again = world
            .service
            .exec_start(&world.caller, &container, request());
        let again = again.await.unwrap();
        if let Ok(first) = first {
            assert_eq!(first.unwrap(), again, "what was answered is there");
        }
        let ended = world.finish(&again).await;
        assert_eq!(ended.stdout, format!("{moment}\n").as_bytes());
        assert_eq!(ended.view.status, ExecStatus::Succeeded);
    }
    let lines: Vec<_> = (0..40).map(|moment| format!("{moment}\n")).collect();
    assert_eq!(runs(&world, &container), lines.concat());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exec_that_ends_while_no_server_runs_is_told_by_the_next() {
    let world = World::new().await;
    let container = world.spawn().await;
    let id = world
        .start(
            &container,
            sh("echo a; sleep 0.3; echo b; touch over; exit 7"),
        )
        .await;
    world.until_wrote(&id, "a").await;
    let over = world.root(&container).join("over");
    let meanwhile = async || eventually("it ends by itself", || over.exists()).await;
    let world = world.restart_after(meanwhile).await;
    let ended = world.finish(&id).await;
    assert_eq!(ended.stdout, b"a\nb\n");
    assert_eq!(ended.view.end.unwrap().exit_code, Some(7));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waited_runs_once_after_a_restart_and_in_its_order() {
    let settings = Settings {
        execs_running_max: 1,
        ..Settings::default()
    };
    let world = World::with(settings, Faults::none()).await;
    let container = world.spawn().await;
    let gate = world.start(&container, open_sh("cat")).await;
    world.until(&gate, ExecStatus::Running).await;
    let mut ids = Vec::new();
    for number in 0..5 {
        let request = Start {
            command: sh(&format!("echo {number} >> runs")),
            key: Some(name(&format!("key {number}"))),
            abandonment: hotcell_service::Abandonment::default(),
        };
        let started = world.service.exec_start(&world.caller, &container, request);
        ids.push(started.await.unwrap());
    }
    let world = world.restart().await;
    let request = Start {
        command: sh("echo 0 >> runs"),
        key: Some(name("key 0")),
        abandonment: hotcell_service::Abandonment::default(),
    };
    let again = world.service.exec_start(&world.caller, &container, request);
    assert_eq!(again.await.unwrap(), ids[0]);
    world.until(&gate, ExecStatus::Running).await;
    assert_eq!(runs(&world, &container), "");
    let eof = Input {
        eof: true,
        ..Input::default()
    };
    world
        .service
        .exec_input(&world.caller, &gate, eof)
        .await
        .unwrap();
    for id in &ids {
        assert_eq!(world.finish(id).await.view.status, ExecStatus::Succeeded);
    }
    assert_eq!(runs(&world, &container), "0\n1\n2\n3\n4\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn input_goes_on_after_a_restart() {
    let world = World::new().await;
    let container = world.spawn().await;
    let open = world.start(&container, open_sh("cat")).await;
    let send = async |world: &World, text: &'static str, eof| {
        let input = Input {
            data: text.into(),
            eof,
            ..Input::default()
        };
        world
            .service
            .exec_input(&world.caller, &open, input)
            .await
            .unwrap();
    };
    send(&world, "before, ", false).await;
    // It reads its text slowly, so that the restart happens in the middle.
    let text = "0123456789abcdef".repeat(40_000);
    let mut slow = sh("sleep 0.3; cat");
    slow.set_stdin(Stdin::Text(text.clone())).unwrap();
    let given = world.start(&container, slow).await;
    world.until(&given, ExecStatus::Running).await;
    world.until_wrote(&open, "before").await;
    let world = world.restart().await;
    send(&world, "after", true).await;
    assert_eq!(world.finish(&open).await.stdout, b"before, after");
    assert!(world.finish(&given).await.stdout == text.as_bytes());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exec_whose_container_went_while_no_server_ran_is_lost() {
    let world = World::new().await;
    let container = world.spawn().await;
    let id = world
        .start(&container, sh("printf 'half \\342\\202'; sleep 1000"))
        .await;
    world.until_wrote(&id, "half").await;
    let ContainerRef::Id(container) = container else {
        panic!("tests name containers by id");
    };
    let engine = std::sync::Arc::clone(&world.engine);
    let meanwhile = async || engine.destroy(&container).await.unwrap();
    let world = world.restart_after(meanwhile).await;
    let ended = world.finish(&id).await;
    assert_eq!(ended.view.status, ExecStatus::Lost);
    assert_eq!(ended.stdout, b"half \xe2\x82", "half a character too");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_takes_nothing_pauses_the_command_and_loses_nothing() {
    let world = World::new().await;
    let container = world.spawn().await;
    let (logs, away) = (world.logs(), world.logs().with_extension("away"));
    std::fs::rename(&logs, &away).unwrap();
    let id = world.start(&container, sh(&counting())).await;
    let quiet = world.start(&container, sh("true")).await;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let view = world.poll(&id, 0, Duration::ZERO).await;
        assert_eq!(view.status, ExecStatus::Running);
        if view.stalled.is_some_and(|reason| reason.contains("disk")) {
            break;
        }
        assert!(Instant::now() < deadline, "never held up: {view:?}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    // An exec without output needs no log.
    assert_eq!(
        world.finish(&quiet).await.view.status,
        ExecStatus::Succeeded
    );
    std::fs::rename(&away, &logs).unwrap();
    let ended = world.finish(&id).await;
    assert_eq!(String::from_utf8(ended.stdout).unwrap(), counted());
    assert_eq!(ended.view.stalled, None);
    assert_eq!(runs(&world, &container), "run\n");
}

/// A failure prints its seed; `HOTCELL_SEED=N` runs only that one.
#[tokio::test(flavor = "multi_thread")]
async fn cut_connections_lose_and_double_nothing() {
    let mut seeds = seeds(SEEDS);
    let all_run = seeds == (0..SEEDS);
    let mut running = tokio::task::JoinSet::new();
    let mut survived = 0;
    for seed in seeds.by_ref().take(6) {
        running.spawn(one_seed(seed));
    }
    while let Some(lived) = running.join_next().await {
        survived += u32::from(lived.unwrap());
        if let Some(seed) = seeds.next() {
            running.spawn(one_seed(seed));
        }
    }
    assert!(
        !all_run || survived > 20,
        "only {survived} containers lived"
    );
}

/// Runs commands with faults from a seed; returns whether the container survived.
async fn one_seed(seed: u64) -> bool {
    eprintln!("seed {seed}");
    let world = World::with(Settings::default(), Faults::from_seed(seed)).await;
    let container = world.spawn().await;
    let lines: Vec<_> = (0..20_000).map(|line| format!("{line}\n")).collect();
    let text = lines.concat();
    let mut echo = sh("echo run >> runs; cat");
    let stdin = Stdin::Text(text.clone());
    echo.set_stdin(stdin).expect("it is short enough");
    let request = |command| Start {
        command,
        key: Some(name("key")),
        abandonment: hotcell_service::Abandonment::default(),
    };
    let started = world
        .service
        .exec_start(&world.caller, &container, request(echo))
        .await;
    let id = match started {
        Ok(id) => id,
        // A container that died before it could be asked.
        Err(error) => return died(&error.to_string()),
    };
    let ended = world.finish(&id).await;
    let stdout = String::from_utf8(ended.stdout).expect("it is all digits");
    if ended.view.status == ExecStatus::Lost {
        assert!(text.starts_with(&stdout), "seed {seed}: not a beginning");
        return false;
    }
    assert_eq!(ended.view.status, ExecStatus::Succeeded, "seed {seed}");
    assert!(stdout == text, "seed {seed}: bytes were lost or doubled");
    assert_eq!(runs(&world, &container), "run\n", "seed {seed}");
    true
}

fn died(error: &str) -> bool {
    assert!(error.starts_with("there is no container"), "{error}");
    false
}
