//! What a container takes of the disk, and what follows when that is more than it may take.
//!
//! ```text
//! within ──▶ over: what runs is ended with `disk_limit`, writes are refused
//!    ▲         │    what is started then may run, so that it can delete, and is ended if it writes
//!    └─────────┘    far over: nothing is started; files can still be deleted through the server
//! ```
//!
//! Where quotas of a filesystem hold, the kernel refuses to write more, and nothing is ever over.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hotcell_domain::Limits;
use hotcell_engine::DiskUse;
use tokio::time::Instant;

use crate::ServiceError;
use crate::container::LiveContainer;

/// How often a container that may write is looked at.
pub(crate) const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// A look that takes long is followed by a pause that is so many times as long: nobody's files cost
/// more than a quarter of a core.
const PAUSE_PER_LOOK: u32 = 3;

/// How old an answer may be for somebody who has just deleted files.
const FRESH: Duration = Duration::from_millis(200);

/// What may be written while a container is over its limit, by programs that delete.
const BYTES_MORE: u64 = 1 << 20;
const FILES_MORE: u64 = 64;

/// A quarter of the limit beyond it is far over.
const FAR_OVER: u64 = 4;

/// What is known of a container's use of the disk.
#[derive(Debug, Default)]
pub(crate) struct DiskState {
    /// Counts what may have written since: execs that were started, files that were sent.
    writes: AtomicU64,
    seen: Mutex<Seen>,
    /// Held by who looks: one at a time.
    pub(crate) looking: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct Seen {
    used: Option<DiskUse>,
    /// What had been written when this was seen; `None` while something runs that may write.
    settled_at: Option<u64>,
    /// When it was looked at, and what had been written before.
    looked: Option<(Instant, u64)>,
    next_look: Option<Instant>,
    /// Processor time that the container had used before the last look, where its engine tells.
    cpu_time: Option<Duration>,
    /// What it took when something was last ended.
    over: Option<DiskUse>,
}

/// Files are being written to a container: it is looked at until they are.
#[derive(Debug)]
pub(crate) struct Writing {
    disk: Arc<DiskState>,
    limits: Limits,
    has_quota: bool,
}

impl Writing {
    pub(crate) fn new(container: &LiveContainer) -> Self {
        container.disk().may_write();
        Self {
            disk: Arc::clone(container.disk()),
            limits: container.row.spec.limits,
            has_quota: container.has_disk_quota(),
        }
    }

    /// Another piece is sent, unless it is over its limit by now.
    pub(crate) fn go_on(&self) -> Result<(), ServiceError> {
        self.disk.may_write();
        self.disk.check_write(&self.limits)
    }

    /// Names the limit in an error that follows from it.
    pub(crate) fn explain(&self, mut error: ServiceError) -> ServiceError {
        let mut cause = &mut error;
        if let ServiceError::Batch { cause: inner, .. } = cause {
            cause = inner;
        }
        if let ServiceError::Exhausted { reason } = cause
            && self.is_limit(reason)
        {
            let limit = limit_in_words(&self.limits);
            *reason = format!("the container has used up its disk limit of {limit}: {reason}");
        }
        error
    }

    /// Some filesystems say that a quota is used up, others that the disk is full.
    fn is_limit(&self, reason: &str) -> bool {
        reason.contains("the disk quota is used up")
            || (self.has_quota && reason.contains("the disk is full"))
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        self.disk.may_write();
    }
}

/// What follows from a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing.
    Within,
    /// It is over its limit and does not grow.
    Over,
    /// What runs is ended.
    End,
    /// It is within its limit again.
    Recovered,
}

impl DiskState {
    /// Something is about to run or to be written in it, or was deleted: it is looked at again.
    pub(crate) fn may_write(&self) {
        self.writes.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether it has to be looked at now.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        let seen = self.seen();
        let is_settled = seen.settled_at == Some(self.writes.load(Ordering::Acquire));
        !is_settled && seen.next_look.is_none_or(|next| next <= now)
    }

    /// Whether what is known is fresh enough for somebody who has just deleted files.
    pub(crate) fn is_fresh(&self, now: Instant) -> bool {
        let (looked, writes) = (self.seen().looked, self.writes());
        looked.is_some_and(|(at, before)| before == writes && now.duration_since(at) < FRESH)
    }

    /// Whether the last look still holds: nothing was written through the server since, and nothing in
    /// the container has run for a moment, going by its processor time. A warmed interpreter waits
    /// in a container for as long as it lives.
    pub(crate) fn has_rested(&self, cpu_time: Option<Duration>) -> bool {
        let writes = self.writes();
        let mut seen = self.seen();
        let is_same = cpu_time.is_some() && cpu_time == seen.cpu_time;
        let has_rested = is_same && seen.looked.is_some_and(|(_, before)| before == writes);
        seen.cpu_time = cpu_time;
        if has_rested {
            seen.next_look = Some(Instant::now() + LOOK_INTERVAL);
        }
        has_rested
    }

    /// What has been written so far, for [`DiskState::saw`].
    pub(crate) fn writes(&self) -> u64 {
        self.writes.load(Ordering::Acquire)
    }

    /// Notes what was seen. `writes` is from before the look, which took so long.
    pub(crate) fn saw(
        &self,
        used: DiskUse,
        limits: &Limits,
        writes: u64,
        took: Duration,
    ) -> Verdict {
        let mut seen = self.seen();
        let now = Instant::now();
        seen.used = Some(used);
        seen.settled_at = (!used.is_busy).then_some(writes);
        seen.looked = Some((now, writes));
        seen.next_look = Some(now + LOOK_INTERVAL.max(took * PAUSE_PER_LOOK));
        let verdict = judge(used, limits, seen.over);
        match verdict {
            Verdict::End => seen.over = Some(used),
            Verdict::Recovered => seen.over = None,
            Verdict::Within | Verdict::Over => {}
        }
        verdict
    }

    /// A look failed: it is tried again after a pause.
    pub(crate) fn did_not_see(&self) {
        let mut seen = self.seen();
        seen.next_look = Some(Instant::now() + LOOK_INTERVAL);
        seen.cpu_time = None;
    }

    /// What it takes, if that is known.
    pub(crate) fn used(&self) -> Option<DiskUse> {
        self.seen().used
    }

    pub(crate) fn is_over(&self) -> bool {
        self.seen().over.is_some()
    }

    /// Refuses to write files while it is over its limit.
    pub(crate) fn check_write(&self, limits: &Limits) -> Result<(), ServiceError> {
        let seen = self.seen();
        match seen.used.filter(|_| seen.over.is_some()) {
            None => Ok(()),
            Some(used) => Err(exhausted(used, limits, "nothing more is written")),
        }
    }

    /// Refuses to start anything while it is far over its limit.
    pub(crate) fn check_start(&self, limits: &Limits) -> Result<(), ServiceError> {
        let used = self.seen().used;
        match used.filter(|used| is_far_over(*used, limits)) {
            None => Ok(()),
            Some(used) => Err(exhausted(used, limits, "nothing is started in it")),
        }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn judge(used: DiskUse, limits: &Limits, before: Option<DiskUse>) -> Verdict {
    match (is_over(used, limits), before) {
        (false, None) => Verdict::Within,
        (false, Some(_)) => Verdict::Recovered,
        (true, Some(before)) if !has_grown(used, before) => Verdict::Over,
        (true, _) => Verdict::End,
    }
}

fn is_over(used: DiskUse, limits: &Limits) -> bool {
    used.is_beyond_measure || used.bytes > limits.disk.get() || used.files > limits.files()
}

fn is_far_over(used: DiskUse, limits: &Limits) -> bool {
    let far = |limit: u64| limit.saturating_add(limit / FAR_OVER);
    used.is_beyond_measure
        || used.bytes > far(limits.disk.get())
        || used.files > far(limits.files())
}

/// What was beyond measure before may have grown.
fn has_grown(used: DiskUse, before: DiskUse) -> bool {
    used.bytes > before.bytes.saturating_add(BYTES_MORE)
        || used.files > before.files.saturating_add(FILES_MORE)
        || (used.is_beyond_measure && !before.is_beyond_measure)
}

fn exhausted(used: DiskUse, limits: &Limits, consequence: &str) -> ServiceError {
    ServiceError::Exhausted {
        reason: format!(
            "the container is over its disk limit of {}: {consequence} until files are deleted ({})",
            limit_in_words(limits),
            use_in_words(used)
        ),
    }
}

/// Both parts of the limit.
pub(crate) fn limit_in_words(limits: &Limits) -> String {
    format!("{} and {} files", limits.disk, limits.files())
}

fn use_in_words(used: DiskUse) -> String {
    let at_least = if used.is_beyond_measure {
        "at least "
    } else {
        ""
    };
    let mib = used.bytes.div_ceil(1 << 20);
    format!("it uses {at_least}{mib} MiB and {} files", used.files)
}

/// What an exec is told that was ended.
pub(crate) fn why_ended(limits: &Limits) -> String {
    format!(
        "the container went over its disk limit of {}; delete files with fs_delete or `rm`, then run it again",
        limit_in_words(limits)
    )
}

#[cfg(test)]
mod tests;
