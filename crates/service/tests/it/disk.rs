//! What the server leaves on its disk is bounded, and a disk that is nearly full is not filled.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command as Program;
use std::time::{Duration, Instant};

use hotcell_domain::{ContainerRef, ExecId, ExecStatus, ImageRef, Quota};
use hotcell_service::{
    FileOperation, FilePath, Poll, PoolSpec, Precondition, Service, Settings, Spawn, Start,
    WriteOptions,
};
use hotcell_testkit::fake::Faults;
use hotcell_testkit::world::{PATIENCE, World, eventually, open_sh, said, sh};

/// Longer than any test: what is forgotten is not forgotten by the timer.
const NEVER: Duration = Duration::from_hours(24);

fn log_bytes(world: &World) -> u64 {
    let files = std::fs::read_dir(world.logs())
        .into_iter()
        .flatten()
        .flatten();
    files
        .flat_map(|file| file.metadata())
        .map(|it| it.len())
        .sum()
}

async fn is_known(world: &World, id: &ExecId) -> bool {
    let poll = Poll {
        after_seq: 0,
        wait: Duration::ZERO,
        bytes_max: 100,
        until_end: false,
    };
    world
        .service
        .exec_poll(&world.caller, id, poll)
        .await
        .is_ok()
}

async fn until_forgotten(world: &World, id: &ExecId) {
    let deadline = Instant::now() + PATIENCE;
    while is_known(world, id).await {
        assert!(Instant::now() < deadline, "{id} stays");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_too_many_ended_execs_the_oldest_is_forgotten_when_another_ends() {
    let settings = Settings {
        ended_execs_max: 3,
        gc_interval: NEVER,
        ..Settings::default()
    };
    let world = World::with(settings, Faults::none()).await;
    let container = world.spawn().await;
    let running = world.start(&container, open_sh("read line")).await;
    let mut ids = Vec::new();
    for _ in 0..5 {
        let id = world.start(&container, sh("echo hello")).await;
        world.finish(&id).await;
        ids.push(id);
    }
    for id in &ids[..2] {
        until_forgotten(&world, id).await;
    }
    for id in &ids[2..] {
        assert!(is_known(&world, id).await);
    }
    assert!(is_known(&world, &running).await);
    eventually("three logs", || {
        std::fs::read_dir(world.logs()).is_ok_and(|files| files.count() == 3)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_too_much_output_the_oldest_goes_when_another_exec_ends() {
    let settings = Settings {
        quotas: Quota {
            output_bytes: 300 << 10,
            ..Quota::default()
        }
        .into(),
        gc_interval: NEVER,
        ..Settings::default()
    };
    let world = World::with(settings, Faults::none()).await;
    let container = world.spawn().await;
    let mut ids = Vec::new();
    for _ in 0..4 {
        let id = world
            .start(&container, sh("head -c 100000 /dev/zero"))
            .await;
        world.finish(&id).await;
        ids.push(id);
    }
    until_forgotten(&world, &ids[0]).await;
    assert!(is_known(&world, &ids[3]).await);
    eventually("at most 300 KiB", || log_bytes(&world) <= 300 << 10).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_of_a_running_exec_takes_of_what_a_principal_may_keep() {
    let settings = Settings {
        quotas: Quota {
            output_bytes: 300 << 10,
            ..Quota::default()
        }
        .into(),
        gc_interval: NEVER,
        ..Settings::default()
    };
    let world = World::with(settings, Faults::none()).await;
    let container = world.spawn().await;
    let ended = world
        .start(&container, sh("head -c 100000 /dev/zero"))
        .await;
    world.finish(&ended).await;
    let small = world.start(&container, sh("echo first")).await;
    world.finish(&small).await;
    assert!(is_known(&world, &ended).await, "there is room for both");
    let script = "head -c 290000 /dev/zero; echo written; read line";
    let running = world.start(&container, open_sh(script)).await;
    world.until_wrote(&running, "written").await;
    let last = world.start(&container, sh("echo last")).await;
    world.finish(&last).await;
    until_forgotten(&world, &ended).await;
    assert!(is_known(&world, &running).await && is_known(&world, &last).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn below_the_reserve_no_warm_container_is_made() {
    let world = async |reserve_bytes| {
        let settings = Settings {
            reserve_bytes: Some(reserve_bytes),
            warm: vec![PoolSpec {
                image: ImageRef::Host,
                wanted: 1,
                limits: None,
            }],
            ..Settings::default()
        };
        World::with(settings, Faults::none()).await
    };
    let ready = async |world: &World| {
        let status = world.service.status(&world.caller).await;
        status.expect("it tells").warm[0].ready
    };
    let full = world(u64::MAX).await;
    let roomy = world(0).await;
    let deadline = Instant::now() + PATIENCE;
    while ready(&roomy).await == 0 {
        assert!(Instant::now() < deadline, "with room it is made");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert_eq!(ready(&full).await, 0);
    assert!(full.engine.list().await.expect("it lists").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn output_that_is_written_byte_by_byte_takes_no_more_of_the_disk_than_its_bound() {
    const BOUND: u64 = 64 << 10;
    let settings = Settings {
        output_bytes_max: BOUND,
        ..Settings::default()
    };
    let world = World::with(settings, Faults::none()).await;
    let container = world.spawn().await;
    let script = "i=0; while [ $i -lt 30000 ]; do printf x; i=$((i+1)); done";
    let id = world.start(&container, sh(script)).await;
    world.until(&id, ExecStatus::Succeeded).await;
    let on_disk = log_bytes(&world);
    // The newest segment and, in each file, the record that did not fit.
    assert!(on_disk <= BOUND + BOUND / 16 + 10 * 4096, "{on_disk}");
    let (mut kept, mut after_seq) = (0, 0);
    loop {
        let view = world.poll(&id, after_seq, Duration::ZERO).await;
        kept += view
            .messages
            .iter()
            .map(|one| one.data.len() as u64)
            .sum::<u64>();
        after_seq = view.next_seq;
        if view.is_complete {
            assert_eq!(kept + view.truncated_bytes, 30_000);
            return;
        }
    }
}

const DISK: &str = "HOTCELL_SERVICE_SMALL_DISK";

const SCRIPT: &str =
    r#"mount -t tmpfs -o size=96m none "$HOTCELL_SERVICE_SMALL_DISK" && exec "$@""#;

const NAME: &str = "disk::below_the_reserve_new_work_is_refused_until_there_is_room_again";

/// It runs itself once more in a mount namespace of its own, with a small disk that goes with
/// the process.
#[test]
fn below_the_reserve_new_work_is_refused_until_there_is_room_again() {
    if let Some(disk) = std::env::var_os(DISK) {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.enable_all().build().expect("a runtime");
        return runtime.block_on(on_a_small_disk(Path::new(&disk)));
    }
    let disk = tempfile::tempdir().expect("a directory");
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|it| it.uid() == 0);
    let namespaces: &[&str] = if is_root {
        &["--mount"]
    } else {
        &["--mount", "--map-root-user"]
    };
    let output = Program::new("unshare")
        .args(namespaces)
        .args(["sh", "-c", SCRIPT, "sh"])
        .arg(std::env::current_exe().expect("a path"))
        .args(["--exact", NAME])
        .env(DISK, disk.path())
        .env("TMPDIR", disk.path())
        .output()
        .expect("unshare runs");
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

async fn try_spawn(world: &World) -> Result<ContainerRef, String> {
    let request = Spawn {
        is_persistent: true,
        ..Spawn::default()
    };
    match world.service.spawn(&world.caller, request).await {
        Ok(view) => Ok(ContainerRef::Id(view.id)),
        Err(error) => Err(said::<()>(Err(error))),
    }
}

/// Spawns until that is refused, or no longer: what the disk said is believed for a second.
async fn until_spawn(world: &World, is_wanted: bool) -> Result<ContainerRef, String> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let spawned = try_spawn(world).await;
        if spawned.is_ok() == is_wanted {
            return spawned;
        }
        assert!(Instant::now() < deadline, "{spawned:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn on_a_small_disk(disk: &Path) {
    let settings = Settings {
        reserve_bytes: Some(40 << 20),
        ..Settings::default()
    };
    let world = World::with(settings, Faults::none()).await;
    let container = world.spawn().await;
    let running = world
        .start(&container, open_sh("echo a; read line; echo b"))
        .await;
    world.until_wrote(&running, "a").await;
    let file = FilePath::parse(b"kept").expect("a path");
    write(&world.service, &world, &container, &file)
        .await
        .expect("there is room");

    let filler = disk.join("filler");
    std::fs::write(&filler, vec![1; 64 << 20]).expect("it fits");
    let refused = until_spawn(&world, false).await.expect_err("refused");
    assert!(
        refused.starts_with("exhausted: the server's disk is nearly full"),
        "{refused}"
    );
    assert!(refused.contains("--reserve-bytes"), "{refused}");
    let request = Start {
        command: sh("true"),
        key: None,
        abandonment: hotcell_service::Abandonment::default(),
    };
    let started = world.service.exec_start(&world.caller, &container, request);
    assert!(said(started.await).starts_with("exhausted: "));
    let written = write(&world.service, &world, &container, &file).await;
    assert!(said(written).starts_with("exhausted: "));

    let batch = async |operation: FileOperation| {
        let operations = vec![operation];
        let service = &world.service;
        service
            .file_batch(&world.caller, &container, operations, true)
            .await
    };
    let put = FileOperation::Write {
        path: b"batched".to_vec(),
        data: "x".into(),
        options: WriteOptions::default(),
    };
    let read = FileOperation::Read {
        path: b"kept".to_vec(),
    };
    assert!(said(batch(put).await).starts_with("exhausted: "));
    batch(read).await.expect("reading takes no room");

    // What runs goes on, and what tells, ends or removes something does too.
    let input = hotcell_service::Input {
        data: "go\n".into(),
        ..hotcell_service::Input::default()
    };
    let sent = world.service.exec_input(&world.caller, &running, input);
    sent.await.expect("it takes it");
    assert_eq!(world.finish(&running).await.stdout, b"a\nb\n");
    let deleted =
        world
            .service
            .file_delete(&world.caller, &container, &file, false, Precondition::Any);
    deleted.await.expect("it is removed");
    let killed = world.service.kill(&world.caller, &container, true);
    killed.await.expect("it is killed");

    std::fs::remove_file(&filler).expect("it is there");
    let container = until_spawn(&world, true).await.expect("there is room");
    assert_eq!(world.run(&container, "echo again").await.stdout, b"again\n");
}

async fn write(
    service: &Service,
    world: &World,
    container: &ContainerRef,
    file: &FilePath,
) -> Result<hotcell_service::FileInfo, hotcell_service::ServiceError> {
    let options = WriteOptions::default();
    service
        .file_write(&world.caller, container, file, "x".into(), options)
        .await
}
