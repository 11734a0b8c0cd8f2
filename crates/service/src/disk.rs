//! The disk usage of a container, and what happens when it exceeds the disk limit.
//!
//! ```text
//! within ──▶ over: running execs are ended with `disk_limit`, writes are refused
//!    ▲         │    new execs may run, so that they can delete files; they are ended if they write
//!    └─────────┘    far over: nothing is started; files can still be deleted through the server
//! ```
//!
//! With filesystem quotas, the kernel refuses further writes, so the limit is never exceeded.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hotcell_domain::Limits;
use hotcell_engine::DiskUse;
use tokio::time::Instant;

use crate::ServiceError;
use crate::container::LiveContainer;

/// How often a container that may be writing is measured.
pub(crate) const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// After a slow measurement, the pause is this many times as long: no container's files cost more
/// than a quarter of a core.
const PAUSE_PER_LOOK: u32 = 3;

/// How old a measurement may be for a caller that has just deleted files.
const FRESH: Duration = Duration::from_millis(200);

/// How much an exec may write while its container is over the limit: deleting needs a little.
const BYTES_MORE: u64 = 1 << 20;
const FILES_MORE: u64 = 64;

/// Usage beyond the limit by this fraction of it (a quarter) is far over.
const FAR_OVER: u64 = 4;

/// What is known about a container's disk usage.
#[derive(Debug, Default)]
pub(crate) struct DiskState {
    /// Counts events that may have written files since: started execs, uploads, deletions.
    writes: AtomicU64,
    seen: Mutex<Seen>,
    /// Held during a measurement: one at a time.
    pub(crate) looking: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct Seen {
    used: Option<DiskUse>,
    /// The value of `writes` at the last measurement; `None` while processes run that may write.
    settled_at: Option<u64>,
    /// When it was last measured, and `writes` at that time.
    looked: Option<(Instant, u64)>,
    next_look: Option<Instant>,
    /// The container's CPU time before the last measurement, if its engine reports it.
    cpu_time: Option<Duration>,
    /// The usage when execs were last ended.
    over: Option<DiskUse>,
}

/// An upload of files to a container, which is measured as long as this exists.
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

    /// Allows the next chunk, unless the container is over its limit by now.
    pub(crate) fn go_on(&self) -> Result<(), ServiceError> {
        self.disk.may_write();
        self.disk.check_write(&self.limits)
    }

    /// Names the limit in an error that it caused.
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

    /// Some filesystems report a used-up quota as such, others as a full disk.
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

/// The consequence of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Within the limit: none.
    Within,
    /// Over the limit, but not growing.
    Over,
    /// Running execs must be ended.
    End,
    /// Within the limit again.
    Recovered,
}

impl DiskState {
    /// Records that files may be written or deleted, so that the container is measured again.
    pub(crate) fn may_write(&self) {
        self.writes.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether it must be measured now.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        let seen = self.seen();
        let is_settled = seen.settled_at == Some(self.writes.load(Ordering::Acquire));
        !is_settled && seen.next_look.is_none_or(|next| next <= now)
    }

    /// Whether the last measurement is recent enough for a caller that has just deleted files.
    pub(crate) fn is_fresh(&self, now: Instant) -> bool {
        let (looked, writes) = (self.seen().looked, self.writes());
        looked.is_some_and(|(at, before)| before == writes && now.duration_since(at) < FRESH)
    }

    /// Whether the last measurement is still valid: nothing was written through the server since,
    /// and, judging by its CPU time, nothing has run in the container. Processes alone say nothing:
    /// a warm interpreter waits in its container for ever.
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

    /// The current count of writes, for [`DiskState::saw`].
    pub(crate) fn writes(&self) -> u64 {
        self.writes.load(Ordering::Acquire)
    }

    /// Records a measurement. `writes` is the count from before it, `took` its duration.
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

    /// Records a failed measurement, which is repeated after a pause.
    pub(crate) fn did_not_see(&self) {
        let mut seen = self.seen();
        seen.next_look = Some(Instant::now() + LOOK_INTERVAL);
        seen.cpu_time = None;
    }

    /// The last measured usage.
    pub(crate) fn used(&self) -> Option<DiskUse> {
        self.seen().used
    }

    pub(crate) fn is_over(&self) -> bool {
        self.seen().over.is_some()
    }

    /// Refuses file writes while the container is over its limit.
    pub(crate) fn check_write(&self, limits: &Limits) -> Result<(), ServiceError> {
        let seen = self.seen();
        match seen.used.filter(|_| seen.over.is_some()) {
            None => Ok(()),
            Some(used) => Err(exhausted(used, limits, "nothing more is written")),
        }
    }

    /// Refuses new execs while the container is far over its limit.
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

/// Whether usage has grown by more than deleting needs. Becoming too much to measure counts, too.
fn has_grown(used: DiskUse, before: DiskUse) -> bool {
    used.bytes > before.bytes.saturating_add(BYTES_MORE)
        || used.files > before.files.saturating_add(FILES_MORE)
        || (used.is_beyond_measure && !before.is_beyond_measure)
}

fn exhausted(used: DiskUse, limits: &Limits, consequence: &str) -> ServiceError {
    ServiceError::Exhausted {
        reason: format!(
            "the container is over its disk limit of {}: {consequence} until files are deleted ({}); fs_delete deletes them, kill ends the container",
            limit_in_words(limits),
            use_in_words(used)
        ),
    }
}

/// Describes both parts of the limit.
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

/// The reason in the result of an exec that was ended.
pub(crate) fn why_ended(limits: &Limits) -> String {
    format!(
        "the container went over its disk limit of {}; delete files with fs_delete or `rm`, then run it again",
        limit_in_words(limits)
    )
}

#[cfg(test)]
mod tests;
