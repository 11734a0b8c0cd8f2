//! Signals all processes below a keeper.
//!
//! A process found by a scan may exit and its pid be reused before the signal is sent. That takes a
//! full cycle through the pid space within milliseconds, and it could only hit another process of
//! the same container.

use std::collections::BTreeSet;
use std::io;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::scan::Scan;
use super::table::Gone;

/// Scans in which new processes may appear while the known ones are stopped.
const STOP_PASSES_MAX: usize = 32;

/// How often a tree is killed before giving up.
const KILL_ATTEMPTS_MAX: u32 = 40;

/// How long to wait after the first attempt; doubles each time.
const KILL_WAIT: Duration = Duration::from_millis(5);

const KILL_WAIT_MAX: Duration = Duration::from_secs(1);

/// Why a tree could not be killed.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    #[error("could not look for processes")]
    Scan(#[from] io::Error),
    #[error("processes did not end after they were killed")]
    Survived,
}

/// Sends a signal to every process below the keeper, and SIGCONT, so that stopped ones receive it.
pub fn signal(keeper: Pid, signal: Signal) -> io::Result<()> {
    let found = Scan::take()?.descendants(std::iter::once(keeper));
    send(&found, signal);
    if signal == Signal::TERM {
        send(&found, Signal::CONT);
    }
    Ok(())
}

/// Ends all processes below the keeper and the keeper itself: SIGTERM, `grace`, SIGKILL; without
/// grace, SIGKILL at once. Returns when the last process has exited.
///
/// Can be dropped at any point, and run twice at the same time.
pub async fn end(keeper: Pid, mut gone: Gone, grace: Duration) -> Result<(), TreeError> {
    if gone.is_gone() {
        return Ok(());
    }
    if !grace.is_zero() {
        signal(keeper, Signal::TERM)?;
        if tokio::time::timeout(grace, gone.wait()).await.is_ok() {
            return Ok(());
        }
    }
    kill(keeper, gone).await
}

/// Kills all processes below the keeper; returns when the keeper has exited too.
pub async fn kill(keeper: Pid, mut gone: Gone) -> Result<(), TreeError> {
    let mut wait = KILL_WAIT;
    for _ in 0..KILL_ATTEMPTS_MAX {
        if gone.is_gone() {
            return Ok(());
        }
        kill_once(|scan| scan.descendants(std::iter::once(keeper)))?;
        // The only signal we send to a keeper: a stopped keeper does not reap.
        let _ = kill_process(keeper, Signal::CONT);
        if tokio::time::timeout(wait, gone.wait()).await.is_ok() {
            return Ok(());
        }
        // A tracer in another exec may keep zombies of this one.
        send(&Scan::take()?.foreign_tracers(keeper), Signal::KILL);
        wait = (wait * 2).min(KILL_WAIT_MAX);
    }
    Err(TreeError::Survived)
}

/// Stops all `targets` until a scan finds no new one, then kills them; returns their number.
///
/// A stopped process cannot fork and still counts against the pids limit, so a fork bomb hits the
/// limit instead of outrunning us. Each pass stops the known ones again, because a process that we
/// have not found yet may have continued them.
pub fn kill_once(targets: impl Fn(&Scan) -> BTreeSet<i32>) -> io::Result<usize> {
    let mut known = BTreeSet::new();
    for _ in 0..STOP_PASSES_MAX {
        let found = targets(&Scan::take()?);
        send(&found, Signal::STOP);
        let before = known.len();
        known.extend(found);
        if known.len() == before {
            break;
        }
    }
    send(&known, Signal::KILL);
    Ok(known.len())
}

fn send(pids: &BTreeSet<i32>, signal: Signal) {
    for pid in pids {
        if let Some(pid) = Pid::from_raw(*pid) {
            // It may have exited, or belong to a user that we cannot signal.
            let _ = kill_process(pid, signal);
        }
    }
}
