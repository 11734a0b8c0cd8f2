//! The agent's children, and how they end.
//!
//! Only keepers are in the table, and the zygote of a warmed interpreter, which forks keepers but has
//! no children of its own. A keeper that exits by itself leaves no process behind. If a
//! keeper is killed, its processes are reparented to the agent, which finds them as children that
//! are not keepers and kills them.

use std::collections::{BTreeSet, HashMap};
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, WaitId, WaitIdOptions, getpid, waitid};
use tokio::signal::unix::Signal;
use tokio::sync::{Notify, watch};

use super::keeper::{self, Launch};
use super::scan::Scan;
use super::tree;
use crate::{log, sys};

/// How often the orphans of a killed keeper are killed before giving up.
const SWEEPS_MAX: u32 = 40;

/// How long to wait for killed orphans; doubles each time.
const SWEEP_WAIT: Duration = Duration::from_millis(2);

const SWEEP_WAIT_MAX: Duration = Duration::from_secs(1);

/// The running keepers.
#[derive(Clone, Default)]
pub struct Table {
    keepers: Arc<Mutex<HashMap<i32, watch::Sender<bool>>>>,
    /// Notified when a keeper is gone.
    removed: Arc<Notify>,
}

/// Resolves when a keeper has exited and no process of its exec is left.
#[derive(Clone)]
pub struct Gone(watch::Receiver<bool>);

impl Gone {
    pub fn is_gone(&self) -> bool {
        *self.0.borrow()
    }

    pub async fn wait(&mut self) {
        // The sender is dropped only after it has sent.
        let _ = self.0.wait_for(|gone| *gone).await;
    }
}

impl Table {
    /// Starts a keeper that writes its records to `told`, and adds it to the table.
    pub fn start(&self, launch: &Launch, told: OwnedFd) -> Result<(Pid, Gone), Errno> {
        // The lock is held across the fork, so that the reaper never meets a keeper that is not in
        // the table yet.
        let mut keepers = self.lock();
        let keeper = keeper::start(launch, told)?;
        let (ended, gone) = watch::channel(false);
        keepers.insert(keeper.as_raw_nonzero().get(), ended);
        Ok((keeper, Gone(gone)))
    }

    /// Starts a zygote. It is in the table, too, so that it is not mistaken for an orphan.
    pub fn start_zygote(&self, launch: &Launch) -> Result<(Pid, Gone), Errno> {
        let mut keepers = self.lock();
        let zygote = keeper::start_zygote(launch)?;
        let (ended, gone) = watch::channel(false);
        keepers.insert(zygote.as_raw_nonzero().get(), ended);
        Ok((zygote, Gone(gone)))
    }

    /// Adds a keeper that a zygote forked; `None` if there is no such child of ours, or it is in the
    /// table already.
    pub fn adopt(&self, keeper: Pid) -> Option<Gone> {
        let mut keepers = self.lock();
        let is_new = !keepers.contains_key(&keeper.as_raw_nonzero().get());
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        if !is_new || waitid(WaitId::Pid(keeper), options).is_err() {
            return None;
        }
        let (ended, gone) = watch::channel(false);
        keepers.insert(keeper.as_raw_nonzero().get(), ended);
        Some(Gone(gone))
    }

    /// Waits until there is no keeper, and therefore no process but ours.
    pub async fn until_empty(&self) {
        loop {
            let mut removed = pin!(self.removed.notified());
            removed.as_mut().enable();
            if self.lock().is_empty() {
                return;
            }
            removed.await;
        }
    }

    pub fn keepers(&self) -> Vec<(Pid, Gone)> {
        self.lock()
            .iter()
            .filter_map(|(pid, ended)| Some((Pid::from_raw(*pid)?, Gone(ended.subscribe()))))
            .collect()
    }

    /// Reaps children for ever, and kills what a killed keeper leaves behind.
    ///
    /// The caller creates `sigchld` before the first child, so that no exit is missed.
    pub async fn reap_for_ever(self, mut sigchld: Signal) {
        loop {
            let killed = self.reap();
            if !killed.is_empty() {
                self.bury(killed).await;
            }
            sigchld.recv().await;
        }
    }

    /// Reaps exited children; returns the keepers that were killed.
    fn reap(&self) -> Vec<watch::Sender<bool>> {
        let mut killed = Vec::new();
        while let Ok(Some(ended)) = sys::wait_any(true) {
            match self.lock().remove(&ended.pid) {
                Some(keeper) if ended.status == 0 => {
                    keeper.send_replace(true);
                    self.removed.notify_waiters();
                }
                Some(keeper) => killed.push(keeper),
                None => {}
            }
        }
        killed
    }

    /// Kills the orphans of killed keepers, and only then reports these keepers as gone.
    async fn bury(&self, mut killed: Vec<watch::Sender<bool>>) {
        log::line(format_args!(
            "a keeper was killed: what it leaves is killed too"
        ));
        let mut wait = SWEEP_WAIT;
        for _ in 0..SWEEPS_MAX {
            // If /proc is unreadable, nothing is found and nothing better can be done.
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
        self.removed.notify_waiters();
    }

    /// All our children that are not keepers, with their descendants.
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
