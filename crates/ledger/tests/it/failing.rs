//! A disk that takes nothing.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use hotcell_ledger::{Event, EventName, Ledger, LedgerSettings, NotRecorded, OnFailure, Who};

use crate::support::{Fixture, record};

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
fn set_away(fixture: &Fixture, is_away: bool) {
    let away = fixture.path().with_extension("away");
    let (from, to): (&Path, &Path) = if is_away {
        (fixture.path(), &away)
    } else {
        (&away, fixture.path())
    };
    fs::rename(from, to).unwrap();
}

/// Each event begins a segment, so each needs the directory.
fn settings(fixture: &Fixture, on_failure: OnFailure) -> LedgerSettings {
    LedgerSettings {
        segment_bytes: 1,
        on_failure,
        ..fixture.settings()
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
    let fixture = Fixture::new();
    let ledger = fixture.open_with(settings(&fixture, OnFailure::Stop));
    record(&ledger, 0).await;
    assert_eq!(ledger.admit().await, Ok(()));
    set_away(&fixture, true);
    let ticket = push(&ledger, 1);
    until(|| ledger.is_failing()).await;
    assert!(ledger.is_stopped());
    assert_eq!(ledger.admit().await, Err(NotRecorded));
    set_away(&fixture, false);
    // Nothing was lost meanwhile.
    assert_eq!(ledger.recorded(ticket).await, Ok(()));
    until(|| !ledger.is_failing()).await;
    assert_eq!(ledger.admit().await, Ok(()));
    record(&ledger, 2).await;
    drop(ledger);
    assert_eq!(fixture.targets(), ["0", "1", "2"]);
    assert!(fixture.verdict().is_whole());
}

#[tokio::test]
async fn where_operations_go_on_nobody_waits_and_nothing_is_lost() {
    let fixture = Fixture::new();
    let ledger = fixture.open_with(settings(&fixture, OnFailure::Continue));
    record(&ledger, 0).await;
    set_away(&fixture, true);
    let first = push(&ledger, 1);
    until(|| ledger.is_failing()).await;
    assert!(!ledger.is_stopped());
    assert_eq!(ledger.admit().await, Ok(()));
    assert_eq!(ledger.recorded(first).await, Ok(()));
    let second = push(&ledger, 2);
    assert_eq!(ledger.recorded(second).await, Ok(()));
    set_away(&fixture, false);
    until(|| !ledger.is_failing()).await;
    drop(ledger);
    assert_eq!(fixture.targets(), ["0", "1", "2"]);
}

#[tokio::test]
async fn events_that_found_the_queue_full_are_counted_in_the_ledger() {
    let fixture = Fixture::new();
    let ledger = fixture.open_with(settings(&fixture, OnFailure::Continue));
    record(&ledger, 0).await;
    set_away(&fixture, true);
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
    set_away(&fixture, false);
    until(|| !ledger.is_failing()).await;
    drop(ledger);
    let (newest, _) = hotcell_ledger::newest(fixture.path(), 1).unwrap();
    let gap = String::from_utf8_lossy(&newest[0]);
    assert!(
        gap.contains("LEDGER_GAP") && gap.contains("\"events_left_out\":5"),
        "{gap}"
    );
    assert!(fixture.verdict().is_whole());
}

#[tokio::test]
async fn a_segment_that_is_deleted_while_it_is_written_is_missed() {
    let fixture = Fixture::new();
    let ledger = fixture.open();
    record(&ledger, 0).await;
    fs::remove_file(fixture.newest()).unwrap();
    record(&ledger, 1).await;
    drop(ledger);
    assert_eq!(fixture.targets(), ["1"]);
    assert_eq!(fixture.faults(), ["missing 1-1"]);
}

#[test]
fn a_directory_that_is_not_ours_to_write_is_refused_at_start() {
    let fixture = Fixture::new();
    let file = fixture.path().join("file");
    fs::write(&file, "").unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o400)).unwrap();
    let settings = LedgerSettings::new(file);
    assert!(Ledger::open(settings, Box::new(fixture.anchor.clone())).is_err());
}
