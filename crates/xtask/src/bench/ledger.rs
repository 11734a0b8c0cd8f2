//! The ledger alone: how long recording an event takes for one caller and for many, and how fast a
//! whole ledger is verified.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use hotcell_domain::Caller;
use hotcell_ledger::{Event, EventName, Ledger, LedgerSettings, MemoryAnchor, Who, verify};

use super::report::Report;
use super::samples::Samples;

const RECORD: &str = "ledger: record";

/// Events that one caller records, and that are verified.
const EVENTS: u64 = 5_000;
const CHECKED: u64 = 200_000;
/// Concurrent callers.
const CALLERS: usize = 16;

const CHECKS_PER_SECOND_MIN: f64 = 200_000.0;

pub(super) fn run(report: &Report) -> Result<()> {
    let directory = std::env::temp_dir().join(format!("hotcell-ledger-{}", std::process::id()));
    let measured = measure(&directory, report);
    std::fs::remove_dir_all(&directory)?;
    measured
}

fn measure(directory: &Path, report: &Report) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()?;
    let settings = LedgerSettings::new(directory.to_owned());
    let ledger = Ledger::open(settings, Box::new(MemoryAnchor::default()))?;
    let mut samples = Samples::default();
    runtime.block_on(one_by_one(&ledger, &mut samples))?;
    let each = runtime.block_on(many_at_once(&ledger))?;
    // Most of the segments that are verified are compressed.
    drop(ledger);
    samples.print();
    samples.within(report, RECORD, 0.15);
    eprintln!("ledger: {CALLERS} callers record an event every {each:?}");
    let start = Instant::now();
    let verdict = verify(directory, None)?;
    ensure!(
        verdict.is_whole(),
        "the ledger is not whole: {:?}",
        verdict.faults
    );
    let count = f64::from(u32::try_from(verdict.events)?);
    let rate = count / start.elapsed().as_secs_f64();
    report.verdict(
        rate >= CHECKS_PER_SECOND_MIN,
        &format!("ledger: verify checks {rate:.0} events/s, at least {CHECKS_PER_SECOND_MIN}/s"),
    );
    Ok(())
}

async fn one_by_one(ledger: &Ledger, samples: &mut Samples) -> Result<()> {
    for _ in 0..EVENTS {
        let start = Instant::now();
        record(ledger).await?;
        samples.add(RECORD, start.elapsed());
    }
    Ok(())
}

/// The time per event when many callers record concurrently.
async fn many_at_once(ledger: &Ledger) -> Result<Duration> {
    let (start, recorded) = (Instant::now(), Arc::new(AtomicU64::new(0)));
    let callers: Vec<_> = (0..CALLERS)
        .map(|_| {
            let (ledger, recorded) = (ledger.clone(), Arc::clone(&recorded));
            tokio::spawn(async move {
                while recorded.fetch_add(1, Ordering::Relaxed) < CHECKED {
                    record(&ledger).await?;
                }
                anyhow::Ok(())
            })
        })
        .collect();
    for caller in callers {
        caller.await??;
    }
    Ok(start.elapsed() / u32::try_from(CHECKED)?)
}

/// An event like that of an `exec_start`.
async fn record(ledger: &Ledger) -> Result<()> {
    let caller = Caller::local();
    let target = "c_01hzy00000000000000000000a";
    let mut event = Event::new(
        EventName::ExecStart,
        1_785_000_000_000,
        Who::Caller(&caller),
        target,
    );
    event.created = Some("e_01hzy00000000000000000000b");
    let argv = ["sh", "-c", "cd src && make -j2 test"].map(str::to_owned);
    event.arguments.argv("cmd", &argv);
    event.arguments.text("cwd", "/workspace");
    event.arguments.names("env", ["LANG", "CI"].into_iter());
    let ticket = ledger.record(&event);
    Ok(ledger.recorded(ticket).await?)
}
