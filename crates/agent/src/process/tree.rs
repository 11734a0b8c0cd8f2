//! Signals to everything beneath a keeper.
//!
//! A pid that a scan found may end and its number be taken by another process before the
//! signal is sent. That takes a whole turn of the pid space within milliseconds, and what
//! it could hit is another process of the same container.

use std::collections::BTreeSet;
use std::io;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::scan::Scan;
use super::table::Gone;

/// Passes in which new processes may appear while those that are known are stopped.
const STOP_PASSES_MAX: usize = 32;

/// Times a tree is killed before we give up on it.
const KILL_ATTEMPTS_MAX: u32 = 40;

/// How long the first attempt may take to show; each next one may take twice as long.
const KILL_WAIT: Duration = Duration::from_millis(5);

/// The longest wait between two attempts.
const KILL_WAIT_MAX: Duration = Duration::from_secs(1);

/// Why a tree could not be ended.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    /// `/proc` cannot be read.
    #[error("could not look for processes")]
    Scan(#[from] io::Error),
    /// Killed again and again, and still there.
    #[error("processes did not end after they were killed")]
    Survived,
}

/// Sends a signal to every process beneath the keeper, and wakes those that are stopped
/// so that they see it.
pub fn signal(keeper: Pid, signal: Signal) -> io::Result<()> {
    let found = Scan::take()?.descendants(std::iter::once(keeper));
    send(&found, signal);
    if signal == Signal::TERM {
        send(&found, Signal::CONT);
    }
    Ok(())
}

/// Ends everything beneath the keeper and the keeper with it: TERM, `grace`, KILL; with
/// no grace KILL at once. Comes back when the last process is gone.
///
/// Safe to drop at any point and to run twice at once.
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

/// Kills everything beneath the keeper; comes back when the keeper is gone too.
pub async fn kill(keeper: Pid, mut gone: Gone) -> Result<(), TreeError> {
    let mut wait = KILL_WAIT;
    for _ in 0..KILL_ATTEMPTS_MAX {
        if gone.is_gone() {
            return Ok(());
        }
        kill_once(|scan| scan.descendants(std::iter::once(keeper)))?;
        // The one signal a keeper ever gets from us: a stopped one does not reap.
        let _ = kill_process(keeper, Signal::CONT);
        if tokio::time::timeout(wait, gone.wait()).await.is_ok() {
            return Ok(());
        }
        // The dead of this exec may be held by a tracer in another one.
        send(&Scan::take()?.foreign_tracers(keeper), Signal::KILL);
        wait = (wait * 2).min(KILL_WAIT_MAX);
    }
    Err(TreeError::Survived)
}

/// Stops all `targets` of a scan until a pass finds no new one, then kills them; tells how
/// many there were.
///
/// What is stopped cannot fork and still holds its place under the limit of processes,
/// so a fork bomb runs out of places instead of out of our reach. Known ones are stopped
/// again in each pass, because one we have not found yet may have woken them.
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
            // It may be gone, or belong to a user we cannot signal.
            let _ = kill_process(pid, signal);
        }
    }
}
