//! How fast the store is.
//!
//! cargo test --release -p hotcell-store --test speed -- --ignored --nocapture --test-threads 1

#![expect(
    clippy::cast_precision_loss,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a measurement"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hotcell_domain::{Command, ContainerId, ExecEnd, ExecId, ExecStatus, Principal, Stream, Usage};
use hotcell_store::{ExecRow, Store};

const MEASURED: Duration = Duration::from_secs(2);
const CALLERS: usize = 16;

fn exec(number: u64) -> ExecRow {
    ExecRow {
        id: ExecId::from_parts(number, [7; 10]),
        container: ContainerId::from_parts(1, [7; 10]),
        principal: Principal::local(),
        key: None,
        command: Command::new(vec!["sh".to_owned(), "-c".to_owned(), "true".to_owned()]).unwrap(),
        created_unix_ms: number,
        oom_kills_before: 0,
        ended_unix_ms: None,
        end: None,
    }
}

fn end() -> ExecEnd {
    ExecEnd {
        status: ExecStatus::Succeeded,
        exit_code: Some(0),
        signal: None,
        reason: None,
        not_started: None,
        usage: Some(Usage::default()),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement; run it alone on a quiet machine"]
async fn thousands_of_execs_are_noted_in_a_second() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    let numbers = Arc::new(AtomicU64::new(0));
    let begin = Instant::now();
    let callers: Vec<_> = (0..CALLERS)
        .map(|_| {
            let (store, numbers) = (store.clone(), Arc::clone(&numbers));
            tokio::spawn(async move {
                while begin.elapsed() < MEASURED {
                    let row = exec(numbers.fetch_add(1, Ordering::Relaxed));
                    let id = row.id.clone();
                    store.insert_exec(row, 0).await.unwrap();
                    store.end_exec(id, end(), 1).await.unwrap();
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await.unwrap();
    }
    let pairs = numbers.load(Ordering::Relaxed) as f64 / begin.elapsed().as_secs_f64();
    println!("insert_exec + end_exec, {CALLERS} callers: {pairs:.0} pairs/s");
    assert!(pairs > 500.0);
}

#[tokio::test]
#[ignore = "a measurement; run it alone on a quiet machine"]
async fn one_exec_is_noted_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    let mut times = Vec::new();
    for number in 0..5000 {
        let row = exec(number);
        let begin = Instant::now();
        store.insert_exec(row, 0).await.unwrap();
        times.push(begin.elapsed());
    }
    times.sort();
    let [p50, p99] = [50, 99].map(|percent| times[times.len() * percent / 100]);
    println!("insert_exec alone: p50 {p50:?} p99 {p99:?}");
    assert!(p50 < Duration::from_millis(2));
}

#[test]
#[ignore = "a measurement; run it alone on a quiet machine"]
fn a_full_database_opens_quickly() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    for rows in [0, 10_000, 100_000] {
        let store = Store::open(directory.path()).unwrap();
        runtime.block_on(async {
            for number in 0..rows {
                store.insert_exec(exec(rows + number), 0).await.unwrap();
            }
        });
        drop(store);
        let bytes = directory
            .path()
            .join("hotcell.db")
            .metadata()
            .unwrap()
            .len();
        let begin = Instant::now();
        let store = Store::open(directory.path()).unwrap();
        println!("open {} KiB: {:?}", bytes >> 10, begin.elapsed());
        assert!(begin.elapsed() < Duration::from_secs(1));
        drop(store);
    }
}

#[test]
#[ignore = "a measurement; run it alone on a quiet machine"]
fn logs_are_written_and_read_faster_than_pipes() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    let id = exec(1).id;
    for (record_bytes, records) in [(32 << 10, 2000_usize), (100, 200_000)] {
        let total = (record_bytes * records) as f64 / 1e6;
        let mut log = store.log_writer(&id, 1 << 30).unwrap();
        let data = vec![b'x'; record_bytes];
        let (seq, from) = (log.agent_seq(), log.last_seq());
        let begin = Instant::now();
        for number in 1..=records as u64 {
            log.append(seq + number, Stream::Stdout, 1, &data).unwrap();
        }
        let written = begin.elapsed().as_secs_f64();
        println!(
            "append {record_bytes} bytes: {:.0} MB/s, {:.2} µs each",
            total / written,
            written * 1e6 / records as f64
        );
        read_in_pages(&store, &id, from, total, record_bytes);
    }
}

fn read_in_pages(store: &Store, id: &ExecId, from: u64, total: f64, record_bytes: usize) {
    for bytes_max in [64 << 10, 1 << 20, 4 << 20] {
        let begin = Instant::now();
        let mut seq = from;
        loop {
            let page = store.read_log(id, seq, bytes_max).unwrap();
            seq = page.next_seq;
            if !page.has_more {
                break;
            }
        }
        let rate = total / begin.elapsed().as_secs_f64();
        println!(
            "read {record_bytes} bytes in pages of {} KiB: {rate:.0} MB/s",
            bytes_max >> 10
        );
    }
}
