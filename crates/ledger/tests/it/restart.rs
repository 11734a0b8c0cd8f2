//! Ends and starts.

use std::fs::{self, File};
use std::io::Write as _;

use hotcell_ledger::newest;

use crate::support::{Fixture, record};

#[tokio::test]
async fn a_start_continues_the_chain() {
    let fixture = Fixture::new();
    for _ in 0..3 {
        fixture.filled(2).await;
    }
    assert!(fixture.verdict().is_whole());
    assert_eq!(fixture.targets(), ["0", "1", "0", "1", "0", "1"]);
    assert_eq!(fixture.segments().len(), 1);
}

#[tokio::test]
async fn an_unfinished_last_line_is_no_fault_and_is_cut_off_at_the_next_start() {
    let fixture = Fixture::new();
    fixture.filled(3).await;
    let torn = b"{\"hash\":\"0123";
    let mut file = File::options().append(true).open(fixture.newest()).unwrap();
    file.write_all(torn).unwrap();
    let verdict = fixture.verdict();
    assert!(verdict.is_whole());
    assert_eq!(verdict.torn_bytes, torn.len());
    let ledger = fixture.open();
    assert_eq!(ledger.resumed().torn_bytes, torn.len() as u64);
    record(&ledger, 7).await;
    drop(ledger);
    let verdict = fixture.verdict();
    assert!(verdict.is_whole());
    assert_eq!((verdict.torn_bytes, verdict.head.seq), (0, 4));
}

#[tokio::test]
async fn a_segment_without_its_first_line_was_not_begun() {
    let fixture = Fixture::new();
    fixture.filled(3).await;
    for start in ["", "{\"ledger\":1,"] {
        fs::write(fixture.path().join(format!("{:020}.jsonl", 4)), start).unwrap();
        let ledger = fixture.open();
        assert!(!ledger.resumed().is_broken);
        drop(ledger);
        assert_eq!(fixture.segments().len(), 1);
    }
    fixture.filled(1).await;
    assert!(fixture.verdict().is_whole());
    assert_eq!(fixture.verdict().head.seq, 4);
}

#[tokio::test]
async fn the_sequence_orders_events_when_the_clock_does_not() {
    let fixture = Fixture::new();
    let ledger = fixture.open();
    for number in [9, 5, 7, 1] {
        record(&ledger, number).await;
    }
    drop(ledger);
    assert!(fixture.verdict().is_whole());
    assert_eq!(fixture.targets(), ["9", "5", "7", "1"]);
}

#[tokio::test]
async fn a_tail_shows_the_newest_and_then_what_comes() {
    let fixture = Fixture::new();
    fixture.filled(5).await;
    let target = |line: &[u8]| {
        let event: serde_json::Value = serde_json::from_slice(line).unwrap();
        event["target"].as_str().unwrap().to_owned()
    };
    let (lines, mut tail) = newest(fixture.path(), 2).unwrap();
    let lines: Vec<_> = lines.iter().map(|line| target(line)).collect();
    assert_eq!(lines, ["3", "4"]);
    let settings = hotcell_ledger::LedgerSettings {
        segment_bytes: 1,
        ..fixture.settings()
    };
    let ledger = fixture.open_with(settings);
    let mut came = Vec::new();
    for number in 10..14 {
        record(&ledger, number).await;
        if number != 12 {
            tail.more(|line| came.push(target(line))).unwrap();
        }
    }
    assert_eq!(came, ["10", "11", "12", "13"]);
    assert_eq!(newest(fixture.path(), 100).unwrap().0.len(), 9);
}
