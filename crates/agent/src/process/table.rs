//! The agent's children, and their end.
//!
//! Only keepers are in the table. One that ends by itself leaves nothing behind; one that
//! was killed leaves its processes to the agent, where they are found as children that
//! are no keepers, and killed.

use std::collections::{BTreeSet, HashMap};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, getpid};
use tokio::signal::unix::Signal;
use tokio::sync::watch;

use super::keeper::{self, Launch};
use super::scan::Scan;
use super::tree;
use crate::{log, sys};

/// Times the orphans of a killed keeper are killed before we give up until the next one.
const SWEEPS_MAX: u32 = 40;

/// How long killed orphans may take to go; doubles.
const SWEEP_WAIT: Duration = Duration::from_millis(2);

/// The longest wait between two sweeps.
const SWEEP_WAIT_MAX: Duration = Duration::from_secs(1);

/// The keepers that live.
#[derive(Clone, Default)]
pub struct Table {
    keepers: Arc<Mutex<HashMap<i32, watch::Sender<bool>>>>,
}

/// Tells when a keeper, and so everything that was beneath it, is gone.
#[derive(Clone)]
pub struct Gone(watch::Receiver<bool>);

impl Gone {
    /// Whether it is gone by now.
    pub fn is_gone(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until it is.
    pub async fn wait(&mut self) {
        // The sender is dropped only after it has said so.
        let _ = self.0.wait_for(|gone| *gone).await;
    }
}

impl Table {
    /// Starts a keeper that tells its records to `told`, and enters it.
    pub fn start(&self, launch: &Launch, told: OwnedFd) -> Result<(Pid, Gone), Errno> {
        // The lock is held over the fork, so the reaper cannot meet a keeper that is not
        // in the table yet.
        let mut keepers = self.lock();
        let keeper = keeper::start(launch, told)?;
        let (ended, gone) = watch::channel(false);
        keepers.insert(keeper.as_raw_nonzero().get(), ended);
        Ok((keeper, Gone(gone)))
    }

    /// Every keeper that lives.
    pub fn keepers(&self) -> Vec<(Pid, Gone)> {
        self.lock()
            .iter()
            .filter_map(|(pid, ended)| Some((Pid::from_raw(*pid)?, Gone(ended.subscribe()))))
            .collect()
    }

    /// Reaps children for ever, and kills what a killed keeper leaves behind.
    ///
    /// The caller makes `sigchld` before the first child, so that none is missed.
    pub async fn reap_for_ever(self, mut sigchld: Signal) {
        loop {
            let killed = self.reap();
            if !killed.is_empty() {
                self.bury(killed).await;
            }
            sigchld.recv().await;
        }
    }

    /// Reaps who has ended by now; gives back the keepers that did not end by themselves.
    fn reap(&self) -> Vec<watch::Sender<bool>> {
        let mut killed = Vec::new();
        while let Ok(Some(ended)) = sys::wait_any(true) {
            match self.lock().remove(&ended.pid) {
                Some(keeper) if ended.status == 0 => _ = keeper.send_replace(true),
                Some(keeper) => killed.push(keeper),
                None => {}
            }
        }
        killed
    }

    /// Kills the orphans of killed keepers, and only then tells that these are gone.
    async fn bury(&self, mut killed: Vec<watch::Sender<bool>>) {
        log::line(format_args!(
            "a keeper was killed: its processes are killed too"
        ));
        let mut wait = SWEEP_WAIT;
        for _ in 0..SWEEPS_MAX {
            // An unreadable /proc finds nothing to kill, and nothing better can be done.
            if tree::kill_once(|scan| self.orphans(scan)).unwrap_or(0) == 0 {
                break;
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(SWEEP_WAIT_MAX);
            killed.extend(self.reap());
        }
        for keeper in killed {
            keeper.send_replace(true);
        }
    }

    /// Every child of ours that is no keeper, and everything beneath those.
    fn orphans(&self, scan: &Scan) -> BTreeSet<i32> {
        let keepers = self.lock();
        let roots: Vec<Pid> = scan
            .children(getpid())
            .filter(|pid| !keepers.contains_key(&pid.as_raw_nonzero().get()))
            .collect();
        let mut orphans = scan.descendants(roots.iter().copied());
        orphans.extend(roots.iter().map(|pid| pid.as_raw_nonzero().get()));
        orphans
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<i32, watch::Sender<bool>>> {
        self.keepers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
