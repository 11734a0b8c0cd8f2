//! Many commands that write without end, and a reader that is slow.

use std::time::{Duration, Instant};

use hotcell_domain::ExecStatus;
use hotcell_service::Settings;
use hotcell_testkit::fake::Faults;
use hotcell_testkit::world::{PATIENCE, World, sh};

/// What the server may need for all of them, beyond what it needs anyway.
const MEMORY_BYTES_MAX: u64 = 96 << 20;

fn memory_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut lines = status.lines();
    let resident = lines.find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = resident.and_then(|line| line.trim().strip_suffix(" kB"));
    let kib: Option<u64> = kib.and_then(|kib| kib.trim().parse().ok());
    kib.expect("the kernel tells it") << 10
}

#[tokio::test(flavor = "multi_thread")]
async fn sixty_four_endless_writers_and_a_slow_reader_need_bounded_memory() {
    // It measures the memory of its process.
    if !hotcell_testkit::is_alone(concat!(
        "exec_stream::",
        "sixty_four_endless_writers_and_a_slow_reader_need_bounded_memory"
    )) {
        return;
    }
    let settings = Settings {
        execs_running_max: 64,
        output_bytes_max: 1 << 20,
        ..Settings::default()
    };
    let world = World::with(settings, Faults::none()).await;
    let container = world.spawn().await;
    let before = memory_bytes();
    let mut ids = Vec::new();
    for _ in 0..64 {
        ids.push(world.start(&container, sh("exec yes hotcell")).await);
    }
    let deadline = Instant::now() + PATIENCE;
    let mut most = 0;
    for id in &ids {
        loop {
            let view = world.poll(id, 0, Duration::from_millis(100)).await;
            most = most.max(memory_bytes());
            assert_eq!(view.status, ExecStatus::Running);
            if view.truncated_bytes > 0 {
                break;
            }
            assert!(Instant::now() < deadline, "{id} does not get on");
        }
    }
    let grown = most.saturating_sub(before);
    eprintln!("64 writers: {} MiB", grown >> 20);
    assert!(grown < MEMORY_BYTES_MAX, "{grown} bytes");
    let mut cancels = tokio::task::JoinSet::new();
    for id in ids {
        let (service, caller) = (world.service.clone(), world.caller.clone());
        cancels.spawn(async move { service.exec_cancel(&caller, &id).await.unwrap() });
    }
    let ends = cancels.join_all().await;
    assert!(ends.iter().all(|status| *status == ExecStatus::Cancelled));
}
