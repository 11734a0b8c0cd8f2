//! Where live execs are found by their handle, and what those of each principal are in sum.
//!
//! The sums change together with the index, under its lock: whoever is let in by a quota is
//! counted, and whoever leaves the index is not, however it ended.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hotcell_domain::{ExecId, OverQuota, Principal, Quota, QuotaKind};

use super::live::LiveExec;

/// Every live exec of the service.
#[derive(Default)]
pub(crate) struct LiveExecs(Mutex<Index>);

#[derive(Default)]
struct Index {
    by_id: HashMap<ExecId, Entry>,
    used: HashMap<Principal, ExecUse>,
}

struct Entry {
    exec: Arc<LiveExec>,
    /// What its log takes of the disk, about.
    log_bytes: u64,
}

/// What the live execs of one principal are in sum.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ExecUse {
    pub(crate) execs: usize,
    /// What their logs take of the disk, about.
    pub(crate) log_bytes: u64,
}

impl LiveExecs {
    /// Adds an exec, unless its principal has as much as it may have.
    pub(super) fn insert(&self, exec: &Arc<LiveExec>, quota: &Quota) -> Result<(), OverQuota> {
        let mut index = self.lock();
        let used = index.used_by(&exec.principal);
        Quota::check_count(QuotaKind::Execs, used.execs, quota.execs)?;
        Quota::check(QuotaKind::OutputBytes, used.log_bytes, quota.output_bytes)?;
        index.insert(exec);
        Ok(())
    }

    /// Adds an exec that an earlier server let in.
    pub(super) fn insert_found(&self, exec: &Arc<LiveExec>) {
        self.lock().insert(exec);
    }

    pub(super) fn remove(&self, id: &ExecId) {
        self.lock().remove(id);
    }

    /// Counts what was added to the log of an exec, which takes at most `log_bytes_max`.
    pub(super) fn count_output(&self, id: &ExecId, bytes: u64, log_bytes_max: u64) {
        self.lock().count_output(id, bytes, log_bytes_max);
    }

    pub(super) fn get(&self, id: &ExecId) -> Option<Arc<LiveExec>> {
        let index = self.lock();
        index.by_id.get(id).map(|entry| Arc::clone(&entry.exec))
    }

    /// What the live execs of a principal are in sum.
    pub(crate) fn used_by(&self, principal: &Principal) -> ExecUse {
        self.lock().used_by(principal)
    }

    /// Whose execs are live.
    pub(crate) fn principals(&self) -> HashSet<Principal> {
        self.lock().used.keys().cloned().collect()
    }

    /// Those that are wanted, oldest first.
    pub(super) fn filter(&self, is_wanted: impl Fn(&LiveExec) -> bool) -> Vec<Arc<LiveExec>> {
        let mut found: Vec<_> = {
            let index = self.lock();
            let all = index.by_id.values().map(|entry| &entry.exec);
            all.filter(|exec| is_wanted(exec)).cloned().collect()
        };
        found.sort_unstable_by(|a, b| (a.created_unix_ms, &a.id).cmp(&(b.created_unix_ms, &b.id)));
        found
    }

    fn lock(&self) -> MutexGuard<'_, Index> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Index {
    fn used_by(&self, principal: &Principal) -> ExecUse {
        self.used.get(principal).copied().unwrap_or_default()
    }

    fn insert(&mut self, exec: &Arc<LiveExec>) {
        let entry = Entry {
            exec: Arc::clone(exec),
            log_bytes: 0,
        };
        self.remove(&exec.id);
        self.by_id.insert(exec.id.clone(), entry);
        self.used.entry(exec.principal.clone()).or_default().execs += 1;
    }

    fn remove(&mut self, id: &ExecId) {
        let Some(entry) = self.by_id.remove(id) else {
            return;
        };
        let principal = &entry.exec.principal;
        let Some(used) = self.used.get_mut(principal) else {
            return;
        };
        used.execs -= 1;
        used.log_bytes -= entry.log_bytes;
        if used.execs == 0 {
            debug_assert_eq!(used.log_bytes, 0, "no exec has written that");
            self.used.remove(principal);
        }
    }

    fn count_output(&mut self, id: &ExecId, bytes: u64, log_bytes_max: u64) {
        let Some(entry) = self.by_id.get_mut(id) else {
            return;
        };
        let grown = entry.log_bytes.saturating_add(bytes).min(log_bytes_max);
        // The bound may have been lowered since.
        let more = grown.saturating_sub(entry.log_bytes);
        entry.log_bytes += more;
        if let Some(used) = self.used.get_mut(&entry.exec.principal) {
            used.log_bytes += more;
        }
    }
}

#[cfg(test)]
mod tests;
