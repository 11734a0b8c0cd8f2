//! The store alone: how fast execs are stored, by one caller and by many, and how long a full
//! database takes to open.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use hotcell_domain::{Command, ContainerId, ExecEnd, ExecId, ExecStatus, Principal, Usage};
use hotcell_store::{ExecRow, Store};

use super::report::Report;
use super::samples::Samples;

const INSERT: &str = "store: insert_exec";
const OPEN: &str = "store: open";

/// Execs that one caller stores, and that the database contains when it is opened.
const EXECS: u64 = 5_000;
/// Concurrent callers, and for how long.
const CALLERS: usize = 16;
const MEASURED: Duration = Duration::from_secs(2);
const OPENS: usize = 5;

const PAIRS_PER_SECOND_MIN: f64 = 500.0;

pub(super) fn run(report: &Report) -> Result<()> {
    let directory = std::env::temp_dir().join(format!("hotcell-store-{}", std::process::id()));
    std::fs::create_dir_all(&directory)?;
    let measured = measure(&directory, report);
    std::fs::remove_dir_all(&directory)?;
    measured
}

fn measure(directory: &std::path::Path, report: &Report) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()?;
    let mut samples = Samples::default();
    let store = Store::open(directory)?;
    runtime.block_on(one_by_one(&store, &mut samples))?;
    let pairs = runtime.block_on(many_at_once(&store))?;
    drop(store);
    for _ in 0..OPENS {
        let start = Instant::now();
        let store = Store::open(directory)?;
        samples.add(OPEN, start.elapsed());
        drop(store);
    }
    samples.print();
    samples.within(report, INSERT, 2.0);
    samples.within(report, OPEN, 100.0);
    report.verdict(
        pairs >= PAIRS_PER_SECOND_MIN,
        &format!(
            "store: {CALLERS} callers note {pairs:.0} execs/s, at least {PAIRS_PER_SECOND_MIN}/s"
        ),
    );
    Ok(())
}

async fn one_by_one(store: &Store, samples: &mut Samples) -> Result<()> {
    for number in 0..EXECS {
        let row = exec(number)?;
        let start = Instant::now();
        store.insert_exec(row, 0).await?;
        samples.add(INSERT, start.elapsed());
    }
    Ok(())
}

/// How many execs per second are stored and ended.
async fn many_at_once(store: &Store) -> Result<f64> {
    let next = Arc::new(AtomicU64::new(EXECS));
    let start = Instant::now();
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..CALLERS {
        let (store, next) = (store.clone(), Arc::clone(&next));
        callers.spawn(async move {
            let mut pairs = 0_u32;
            while start.elapsed() < MEASURED {
                let row = exec(next.fetch_add(1, Ordering::Relaxed))?;
                let id = row.id.clone();
                store.insert_exec(row, 0).await?;
                store.end_exec(id, end(), 1).await?;
                pairs += 1;
            }
            anyhow::Ok(pairs)
        });
    }
    let mut pairs = 0;
    while let Some(caller) = callers.join_next().await {
        pairs += caller??;
    }
    Ok(f64::from(pairs) / start.elapsed().as_secs_f64())
}

fn exec(number: u64) -> Result<ExecRow> {
    let command = ["sh", "-c", "true"].map(str::to_owned).to_vec();
    Ok(ExecRow {
        id: ExecId::from_parts(number, [7; 10]),
        container: ContainerId::from_parts(1, [7; 10]),
        principal: Principal::local(),
        key: None,
        command: Command::new(command)?,
        created_unix_ms: number,
        oom_kills_before: 0,
        ended_unix_ms: None,
        end: None,
    })
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
