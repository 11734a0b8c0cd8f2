//! Segments are sealed, compressed and removed, and the chain goes through all of them.

use std::fs::{self, File};
use std::time::{Duration, Instant, SystemTime};

use hotcell_ledger::LedgerSettings;

use crate::support::{Ground, record};

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

fn small(ground: &Ground) -> LedgerSettings {
    LedgerSettings {
        segment_bytes: SEGMENT_BYTES,
        ..ground.settings()
    }
}

fn is_kind(name: &str, extension: &str) -> bool {
    std::path::Path::new(name).extension() == Some(extension.as_ref())
}

fn sealed(ground: &Ground) -> Vec<String> {
    let mut names = ground.segments();
    names.retain(|name| name.ends_with(".jsonl.zst"));
    names
}

async fn rotated(ground: &Ground, settings: LedgerSettings, count: u64) {
    let ledger = ground.open_with(settings);
    for number in 0..count {
        record(&ledger, number).await;
    }
    until(|| {
        ground
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
    let ground = Ground::new();
    rotated(&ground, small(&ground), 50).await;
    assert!(sealed(&ground).len() > 5, "{:?}", ground.segments());
    let verdict = ground.verdict();
    assert!(verdict.is_whole(), "{:?}", verdict.faults);
    assert_eq!((verdict.events, verdict.head.seq), (50, 50));
    let expected: Vec<String> = (0..50).map(|number: u64| number.to_string()).collect();
    assert_eq!(ground.targets(), expected);
    ground.filled(1).await;
    assert_eq!(ground.verdict().head.seq, 51);
    assert!(ground.verdict().is_whole());
}

#[tokio::test]
async fn an_old_segment_is_sealed_though_it_is_short() {
    let ground = Ground::new();
    let settings = LedgerSettings {
        segment_age: Duration::ZERO,
        ..ground.settings()
    };
    rotated(&ground, settings, 3).await;
    assert!(sealed(&ground).len() >= 2);
    assert!(ground.verdict().is_whole());
}

#[tokio::test]
async fn a_missing_or_foreign_sealed_segment_is_found() {
    let ground = Ground::new();
    rotated(&ground, small(&ground), 50).await;
    let names = sealed(&ground);
    let first: u64 = names[2].split('.').next().unwrap().parse().unwrap();
    let next: u64 = names[3].split('.').next().unwrap().parse().unwrap();
    let kept = fs::read(ground.path().join(&names[2])).unwrap();
    fs::remove_file(ground.path().join(&names[2])).unwrap();
    assert_eq!(ground.faults(), [format!("missing {first}-{}", next - 1)]);
    // Another segment under its name.
    fs::copy(ground.path().join(&names[3]), ground.path().join(&names[2])).unwrap();
    assert!(!ground.verdict().is_whole());
    // A changed byte of its content; its first bytes only describe the frame.
    for at in [kept.len() / 3, kept.len() / 2, kept.len() * 2 / 3] {
        let mut changed = kept.clone();
        changed[at] ^= 1;
        fs::write(ground.path().join(&names[2]), &changed).unwrap();
        assert!(!ground.verdict().is_whole(), "byte {at}");
    }
    fs::write(ground.path().join(&names[2]), &kept).unwrap();
    assert!(ground.verdict().is_whole());
    // The oldest was not removed by us.
    fs::remove_file(ground.path().join(&names[0])).unwrap();
    assert_eq!(ground.faults().len(), 1);
}

#[tokio::test]
async fn what_is_too_much_goes_oldest_first_and_is_not_missed() {
    let ground = Ground::new();
    let settings = LedgerSettings {
        bytes_max: Some(3 * SEGMENT_BYTES),
        ..small(&ground)
    };
    let ledger = ground.open_with(settings);
    for number in 0..60 {
        record(&ledger, number).await;
    }
    let is_left = || {
        ground
            .anchored()
            .is_some_and(|anchor| anchor.first_kept > 1)
    };
    until(is_left).await;
    drop(ledger);
    let verdict = ground.verdict();
    assert!(verdict.is_whole(), "{:?}", verdict.faults);
    assert!(verdict.first_seq > Some(1));
    assert_eq!(verdict.head.seq, 60);
}

#[tokio::test]
async fn what_is_too_old_goes() {
    let ground = Ground::new();
    rotated(&ground, small(&ground), 20).await;
    let old = sealed(&ground).remove(0);
    let file = File::options()
        .write(true)
        .open(ground.path().join(&old))
        .unwrap();
    file.set_modified(SystemTime::now() - Duration::from_hours(48))
        .unwrap();
    let settings = LedgerSettings {
        retention: Some(Duration::from_hours(24)),
        ..small(&ground)
    };
    let ledger = ground.open_with(settings);
    for number in 0..10 {
        record(&ledger, number).await;
    }
    until(|| !ground.segments().contains(&old)).await;
    drop(ledger);
    assert!(ground.verdict().is_whole());
    assert!(ground.verdict().first_seq > Some(1));
}

#[tokio::test]
async fn sealing_that_was_cut_off_is_finished_at_the_next_start() {
    let ground = Ground::new();
    let ledger = ground.open_with(small(&ground));
    for number in 0..3 {
        record(&ledger, number).await;
    }
    drop(ledger);
    // A server that died while it compressed, and one that died before it removed the original.
    let name = ground
        .segments()
        .into_iter()
        .find(|name| is_kind(name, "jsonl"))
        .unwrap();
    fs::write(ground.path().join(format!("{name}.zst.new")), b"half").unwrap();
    rotated(&ground, small(&ground), 20).await;
    assert!(ground.verdict().is_whole(), "{:?}", ground.faults());
    assert!(!ground.segments().iter().any(|name| is_kind(name, "new")));
}
