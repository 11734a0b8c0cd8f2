//! What an operator can see of a ledger.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hotcell_ledger::{LedgerSettings, Timing};

use crate::support::{Fixture, record};

/// Only for tests that hang.
const DEADLINE: Duration = Duration::from_mins(1);

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::yield_now();
    }
}

#[tokio::test]
async fn events_bytes_times_seals_and_the_lag_of_the_anchor_are_counted() {
    let fixture = Fixture::new();
    let ledger = fixture.open_with(LedgerSettings {
        segment_bytes: 4 << 10,
        ..fixture.settings()
    });
    let (written, synced) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (writes, syncs) = (Arc::clone(&written), Arc::clone(&synced));
    ledger.observe(move |timing| {
        let counter = match timing {
            Timing::Written(_) => &writes,
            Timing::Synced(_) => &syncs,
        };
        counter.fetch_add(1, Ordering::SeqCst);
    });
    assert_eq!(ledger.figures().events, 0);
    for number in 0..50 {
        record(&ledger, number).await;
    }
    let figures = ledger.figures();
    assert_eq!(
        (figures.events, figures.queued, figures.left_out),
        (50, 0, 0)
    );
    assert_eq!(written.load(Ordering::SeqCst), 50);
    assert!(figures.bytes > 50 * 100, "{figures:?}");
    assert!(!figures.is_failing);
    assert!(
        figures.failures.iter().all(|(_, count)| *count == 0),
        "{figures:?}"
    );
    wait_until("full segments are sealed", || {
        ledger.figures().sealed_segments > 0
    });
    wait_until("the anchor catches up", || ledger.figures().unanchored == 0);
    assert!(synced.load(Ordering::SeqCst) > 0);
    assert_eq!(fixture.anchored().map(|anchor| anchor.last.seq), Some(50));
    drop(ledger);
    // The next server counts from zero, and is not behind.
    let figures = fixture.open().figures();
    assert_eq!((figures.events, figures.unanchored), (0, 0));
}
