//! A disk that takes nothing.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use hotcell_ledger::{Event, EventName, Ledger, LedgerSettings, NotRecorded, OnFailure, Who};

use crate::support::{Ground, record};

/// Only ends what hangs.
const PATIENCE: Duration = Duration::from_mins(1);

async fn until(mut is_true: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_true() {
        assert!(Instant::now() < deadline, "it never came");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Takes the directory away, or puts it back: that stops root too.
fn set_away(ground: &Ground, is_away: bool) {
    let away = ground.path().with_extension("away");
    let (from, to): (&Path, &Path) = if is_away {
        (ground.path(), &away)
    } else {
        (&away, ground.path())
    };
    fs::rename(from, to).unwrap();
}

/// Each event begins a segment, so each needs the directory.
fn settings(ground: &Ground, on_failure: OnFailure) -> LedgerSettings {
    LedgerSettings {
        segment_bytes: 1,
        on_failure,
        ..ground.settings()
    }
}

fn push(ledger: &Ledger, number: u64) -> hotcell_ledger::Ticket {
    let target = number.to_string();
    ledger.record(&Event::new(
        EventName::FsWrite,
        number,
        Who::Server,
        &target,
    ))
}

#[tokio::test]
async fn while_nothing_can_be_written_operations_are_refused_and_then_they_go_on() {
    let ground = Ground::new();
    let ledger = ground.open_with(settings(&ground, OnFailure::Stop));
    record(&ledger, 0).await;
    assert_eq!(ledger.admit().await, Ok(()));
    set_away(&ground, true);
    let ticket = push(&ledger, 1);
    until(|| ledger.is_failing()).await;
    assert!(ledger.is_stopped());
    assert_eq!(ledger.admit().await, Err(NotRecorded));
    set_away(&ground, false);
    // Nothing was lost meanwhile.
    assert_eq!(ledger.recorded(ticket).await, Ok(()));
    until(|| !ledger.is_failing()).await;
    assert_eq!(ledger.admit().await, Ok(()));
    record(&ledger, 2).await;
    drop(ledger);
    assert_eq!(ground.targets(), ["0", "1", "2"]);
    assert!(ground.verdict().is_whole());
}

#[tokio::test]
async fn where_operations_go_on_nobody_waits_and_nothing_is_lost() {
    let ground = Ground::new();
    let ledger = ground.open_with(settings(&ground, OnFailure::Continue));
    record(&ledger, 0).await;
    set_away(&ground, true);
    let first = push(&ledger, 1);
    until(|| ledger.is_failing()).await;
    assert!(!ledger.is_stopped());
    assert_eq!(ledger.admit().await, Ok(()));
    assert_eq!(ledger.recorded(first).await, Ok(()));
    let second = push(&ledger, 2);
    assert_eq!(ledger.recorded(second).await, Ok(()));
    set_away(&ground, false);
    until(|| !ledger.is_failing()).await;
    drop(ledger);
    assert_eq!(ground.targets(), ["0", "1", "2"]);
}

#[tokio::test]
async fn events_that_found_the_queue_full_are_counted_in_the_ledger() {
    let ground = Ground::new();
    let ledger = ground.open_with(settings(&ground, OnFailure::Continue));
    record(&ledger, 0).await;
    set_away(&ground, true);
    let _ = push(&ledger, 1);
    until(|| ledger.is_failing()).await;
    let mut pushed = 2;
    while ledger.queue_length() < 16 << 10 {
        let _ = push(&ledger, pushed);
        pushed += 1;
        assert!(pushed < 100_000);
    }
    for _ in 0..5 {
        let _ = push(&ledger, pushed);
    }
    set_away(&ground, false);
    until(|| !ledger.is_failing()).await;
    drop(ledger);
    let (newest, _) = hotcell_ledger::newest(ground.path(), 1).unwrap();
    let gap = String::from_utf8_lossy(&newest[0]);
    assert!(
        gap.contains("LEDGER_GAP") && gap.contains("\"events_left_out\":5"),
        "{gap}"
    );
    assert!(ground.verdict().is_whole());
}

#[tokio::test]
async fn a_segment_that_is_deleted_while_it_is_written_is_missed() {
    let ground = Ground::new();
    let ledger = ground.open();
    record(&ledger, 0).await;
    fs::remove_file(ground.newest()).unwrap();
    record(&ledger, 1).await;
    drop(ledger);
    assert_eq!(ground.targets(), ["1"]);
    assert_eq!(ground.faults(), ["missing 1-1"]);
}

#[test]
fn a_directory_that_is_not_ours_to_write_is_refused_at_start() {
    let ground = Ground::new();
    let file = ground.path().join("file");
    fs::write(&file, "").unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o400)).unwrap();
    let settings = LedgerSettings::new(file);
    assert!(Ledger::open(settings, Box::new(ground.anchor.clone())).is_err());
}
