//! Whatever is done to the files is found, and where.

use std::fs;

use crate::support::Fixture;

/// Changes the lines of the newest segment; its first is the header, so line N is event N.
fn change(fixture: &Fixture, change: impl FnOnce(&mut Vec<String>)) {
    let path = fixture.newest();
    let text = fs::read_to_string(&path).unwrap();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    change(&mut lines);
    let mut text = lines.join("\n");
    text.push('\n');
    fs::write(path, text).unwrap();
}

async fn faults_after(tamper: impl FnOnce(&mut Vec<String>)) -> Vec<String> {
    let fixture = Fixture::new();
    fixture.filled(9).await;
    assert!(fixture.verdict().is_whole());
    change(&fixture, tamper);
    fixture.faults()
}

#[tokio::test]
async fn a_ledger_that_nobody_touched_is_whole() {
    let fixture = Fixture::new();
    fixture.filled(9).await;
    let verdict = fixture.verdict();
    assert!(verdict.is_whole());
    assert_eq!((verdict.events, verdict.first_seq), (9, Some(1)));
    assert_eq!(fixture.anchored().unwrap().last, verdict.head);
}

#[tokio::test]
async fn a_changed_event_is_found() {
    let faults = faults_after(|lines| lines[4] = lines[4].replace("EXEC_START", "EXEC_STARS"));
    assert_eq!(faults.await, ["changed 4-4"]);
    let faults = faults_after(|lines| lines[4] = lines[4].replace('{', "["));
    assert_eq!(faults.await, ["damaged 4-4"]);
    // The first line of the segment is none of the events.
    let faults =
        faults_after(|lines| lines[0] = lines[0].replace("\"after_seq\":0", "\"after_seq\":1"));
    assert_eq!(faults.await, ["damaged 1-1"]);
}

#[tokio::test]
async fn a_missing_event_is_found() {
    let faults = faults_after(|lines| drop(lines.remove(4)));
    assert_eq!(faults.await, ["missing 4-4"]);
    let faults = faults_after(|lines| drop(lines.drain(4..7)));
    assert_eq!(faults.await, ["missing 4-6"]);
    let faults = faults_after(|lines| drop(lines.remove(1)));
    assert_eq!(faults.await, ["missing 1-1"]);
}

#[tokio::test]
async fn swapped_and_repeated_events_are_found() {
    assert_eq!(
        faults_after(|lines| lines.swap(4, 5)).await,
        ["out_of_place 4-4"]
    );
    let faults = faults_after(|lines| lines.insert(6, lines[3].clone()));
    assert_eq!(faults.await, ["out_of_place 3-3"]);
}

#[tokio::test]
async fn an_inserted_event_is_found_even_with_a_right_hash() {
    let forged = Fixture::new();
    forged.filled(4).await;
    let forged = fs::read_to_string(forged.newest()).unwrap();
    let forged = forged.lines().nth(4).unwrap().to_owned();
    // It is the same event, so it fits; then the real one is one too many.
    let faults = faults_after(|lines| lines.insert(4, forged)).await;
    assert_eq!(faults, ["out_of_place 4-4"]);
}

#[tokio::test]
async fn a_removed_end_is_found_by_the_anchor() {
    assert_eq!(
        faults_after(|lines| lines.truncate(7)).await,
        ["truncated 7-9"]
    );
    let fixture = Fixture::new();
    fixture.filled(9).await;
    fs::remove_file(fixture.newest()).unwrap();
    assert_eq!(fixture.faults(), ["truncated 1-9"]);
}

#[tokio::test]
async fn a_chain_that_was_written_anew_is_found_by_the_anchor() {
    let (fixture, other) = (Fixture::new(), Fixture::new());
    fixture.filled(9).await;
    let ledger = other.open();
    for number in 0..9 {
        crate::support::record(&ledger, number + 100).await;
    }
    drop(ledger);
    fs::copy(other.newest(), fixture.newest()).unwrap();
    assert_eq!(fixture.faults(), ["rewritten 9-9"]);
}

#[tokio::test]
async fn what_happened_while_no_server_ran_stays_visible_after_the_next_start() {
    let fixture = Fixture::new();
    fixture.filled(9).await;
    change(&fixture, |lines| lines.truncate(7));
    let ledger = fixture.open();
    assert!(ledger.resumed().is_broken);
    crate::support::record(&ledger, 50).await;
    drop(ledger);
    // The anchor knows of event 10 now, and 7 to 9 are still missing.
    assert_eq!(fixture.anchored().unwrap().last.seq, 10);
    assert_eq!(fixture.faults(), ["missing 7-9"]);

    let fixture = Fixture::new();
    fixture.filled(9).await;
    change(&fixture, |lines| {
        lines[4] = lines[4].replace("EXEC_START", "EXEC_STARS");
    });
    let ledger = fixture.open();
    assert!(ledger.resumed().is_broken);
    crate::support::record(&ledger, 50).await;
    drop(ledger);
    assert_eq!(fixture.faults()[0], "changed 4-4");
}
