//! Segments are sealed, compressed and removed, and the chain goes through all of them.

use std::fs::{self, File};
use std::time::{Duration, Instant, SystemTime};

use hotcell_ledger::LedgerSettings;

use crate::support::{Fixture, record};

/// Only ends what hangs.
const PATIENCE: Duration = Duration::from_mins(1);

/// Three events and the header, about.
const SEGMENT_BYTES: u64 = 700;

async fn until(mut is_true: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_true() {
        assert!(Instant::now() < deadline, "it never came");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn small(fixture: &Fixture) -> LedgerSettings {
    LedgerSettings {
        segment_bytes: SEGMENT_BYTES,
        ..fixture.settings()
    }
}

fn is_kind(name: &str, extension: &str) -> bool {
    std::path::Path::new(name).extension() == Some(extension.as_ref())
}

fn sealed(fixture: &Fixture) -> Vec<String> {
    let mut names = fixture.segments();
    names.retain(|name| name.ends_with(".jsonl.zst"));
    names
}

async fn rotated(fixture: &Fixture, settings: LedgerSettings, count: u64) {
    let ledger = fixture.open_with(settings);
    for number in 0..count {
        record(&ledger, number).await;
    }
    until(|| {
        fixture
            .segments()
            .iter()
            .filter(|name| is_kind(name, "jsonl"))
            .count()
            <= 1
    })
    .await;
}

#[tokio::test]
async fn full_segments_are_compressed_and_the_chain_goes_through_them() {
    let fixture = Fixture::new();
    rotated(&fixture, small(&fixture), 50).await;
    assert!(sealed(&fixture).len() > 5, "{:?}", fixture.segments());
    let verdict = fixture.verdict();
    assert!(verdict.is_whole(), "{:?}", verdict.faults);
    assert_eq!((verdict.events, verdict.head.seq), (50, 50));
    let expected: Vec<String> = (0..50).map(|number: u64| number.to_string()).collect();
    assert_eq!(fixture.targets(), expected);
    fixture.filled(1).await;
    assert_eq!(fixture.verdict().head.seq, 51);
    assert!(fixture.verdict().is_whole());
}

#[tokio::test]
async fn an_old_segment_is_sealed_though_it_is_short() {
    let fixture = Fixture::new();
    let settings = LedgerSettings {
        segment_age: Duration::ZERO,
        ..fixture.settings()
    };
    rotated(&fixture, settings, 3).await;
    assert!(sealed(&fixture).len() >= 2);
    assert!(fixture.verdict().is_whole());
}

#[tokio::test]
async fn a_missing_or_foreign_sealed_segment_is_found() {
    let fixture = Fixture::new();
    rotated(&fixture, small(&fixture), 50).await;
    let names = sealed(&fixture);
    let first: u64 = names[2].split('.').next().unwrap().parse().unwrap();
    let next: u64 = names[3].split('.').next().unwrap().parse().unwrap();
    let kept = fs::read(fixture.path().join(&names[2])).unwrap();
    fs::remove_file(fixture.path().join(&names[2])).unwrap();
    assert_eq!(fixture.faults(), [format!("missing {first}-{}", next - 1)]);
    // Another segment under its name.
    fs::copy(
        fixture.path().join(&names[3]),
        fixture.path().join(&names[2]),
    )
    .unwrap();
    assert!(!fixture.verdict().is_whole());
    // A changed byte of its content; its first bytes only describe the frame.
    for at in [kept.len() / 3, kept.len() / 2, kept.len() * 2 / 3] {
        let mut changed = kept.clone();
        changed[at] ^= 1;
        fs::write(fixture.path().join(&names[2]), &changed).unwrap();
        assert!(!fixture.verdict().is_whole(), "byte {at}");
    }
    fs::write(fixture.path().join(&names[2]), &kept).unwrap();
    assert!(fixture.verdict().is_whole());
    // The oldest was not removed by us.
    fs::remove_file(fixture.path().join(&names[0])).unwrap();
    assert_eq!(fixture.faults().len(), 1);
}

#[tokio::test]
async fn what_is_too_much_goes_oldest_first_and_is_not_missed() {
    let fixture = Fixture::new();
    let settings = LedgerSettings {
        bytes_max: Some(3 * SEGMENT_BYTES),
        ..small(&fixture)
    };
    let ledger = fixture.open_with(settings);
    for number in 0..60 {
        record(&ledger, number).await;
    }
    let is_left = || {
        fixture
            .anchored()
            .is_some_and(|anchor| anchor.first_kept > 1)
    };
    until(is_left).await;
    drop(ledger);
    let verdict = fixture.verdict();
    assert!(verdict.is_whole(), "{:?}", verdict.faults);
    assert!(verdict.first_seq > Some(1));
    assert_eq!(verdict.head.seq, 60);
}

#[tokio::test]
async fn what_is_too_old_goes() {
    let fixture = Fixture::new();
    rotated(&fixture, small(&fixture), 20).await;
    let old = sealed(&fixture).remove(0);
    let file = File::options()
        .write(true)
        .open(fixture.path().join(&old))
        .unwrap();
    file.set_modified(SystemTime::now() - Duration::from_hours(48))
        .unwrap();
    let settings = LedgerSettings {
        retention: Some(Duration::from_hours(24)),
        ..small(&fixture)
    };
    let ledger = fixture.open_with(settings);
    for number in 0..10 {
        record(&ledger, number).await;
    }
    until(|| !fixture.segments().contains(&old)).await;
    drop(ledger);
    assert!(fixture.verdict().is_whole());
    assert!(fixture.verdict().first_seq > Some(1));
}

#[tokio::test]
async fn sealing_that_was_cut_off_is_finished_at_the_next_start() {
    let fixture = Fixture::new();
    let ledger = fixture.open_with(small(&fixture));
    for number in 0..3 {
        record(&ledger, number).await;
    }
    drop(ledger);
    // A server that died while it compressed, and one that died before it removed the original.
    let name = fixture
        .segments()
        .into_iter()
        .find(|name| is_kind(name, "jsonl"))
        .unwrap();
    fs::write(fixture.path().join(format!("{name}.zst.new")), b"half").unwrap();
    rotated(&fixture, small(&fixture), 20).await;
    assert!(fixture.verdict().is_whole(), "{:?}", fixture.faults());
    assert!(!fixture.segments().iter().any(|name| is_kind(name, "new")));
}
