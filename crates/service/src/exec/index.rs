//! The index of live execs by id, with the totals of each principal.
//!
//! The totals change together with the index, under its lock: an exec that a quota admits is
//! counted at once, and one that leaves the index no longer is, however it ended.

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
    /// Approximate size of its log on disk.
    log_bytes: u64,
}

/// The totals of one principal's live execs.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ExecUse {
    pub(crate) execs: usize,
    /// Approximate size of their logs on disk.
    pub(crate) log_bytes: u64,
}

impl LiveExecs {
    /// Adds an exec, unless its principal's quota is used up.
    pub(super) fn insert(&self, exec: &Arc<LiveExec>, quota: &Quota) -> Result<(), OverQuota> {
        let mut index = self.lock();
        let used = index.used_by(&exec.principal);
        Quota::check_count(QuotaKind::Execs, used.execs, quota.execs)?;
        Quota::check(QuotaKind::OutputBytes, used.log_bytes, quota.output_bytes)?;
        index.insert(exec);
        Ok(())
    }

    /// Adds an exec that an earlier server admitted, whatever the quota says now.
    pub(super) fn insert_found(&self, exec: &Arc<LiveExec>) {
        self.lock().insert(exec);
    }

    pub(super) fn remove(&self, id: &ExecId) {
        self.lock().remove(id);
    }

    /// Counts output that was added to the log of an exec, which grows to at most `log_bytes_max`.
    pub(super) fn count_output(&self, id: &ExecId, bytes: u64, log_bytes_max: u64) {
        self.lock().count_output(id, bytes, log_bytes_max);
    }

    pub(super) fn get(&self, id: &ExecId) -> Option<Arc<LiveExec>> {
        let index = self.lock();
        index.by_id.get(id).map(|entry| Arc::clone(&entry.exec))
    }

    /// The totals of a principal's live execs.
    pub(crate) fn used_by(&self, principal: &Principal) -> ExecUse {
        self.lock().used_by(principal)
    }

    /// The principals that have live execs.
    pub(crate) fn principals(&self) -> HashSet<Principal> {
        self.lock().used.keys().cloned().collect()
    }

    /// The execs that satisfy the predicate, oldest first.
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
        // The configured maximum may have been lowered since.
        let more = grown.saturating_sub(entry.log_bytes);
        entry.log_bytes += more;
        if let Some(used) = self.used.get_mut(&entry.exec.principal) {
            used.log_bytes += more;
        }
    }
}

#[cfg(test)]
mod tests;
