//! Measures the disk usage of containers that no filesystem quota limits.
//!
//! Only containers in which something may write are measured, and the host walks the files of only
//! a few at once, so that neither thousands of idle containers nor one with many files cost much.
//! If the agent measures, its container pays for it.

use std::sync::Arc;
use std::time::Duration;

use hotcell_agent_client::DiskUse as AgentDiskUse;
use hotcell_domain::Phase;
use hotcell_engine::{DiskUse, Enforcement};
use tokio::sync::MutexGuard;
use tokio::time::Instant;

use crate::container::LiveContainer;
use crate::disk::{LOOK_INTERVAL, Verdict, Writing};
use crate::{Inner, ServiceError};

/// Containers whose files the host walks concurrently.
pub(crate) const WALKS_MAX: usize = 2;

/// How long one measurement may take.
const LOOK_TIMEOUT: Duration = Duration::from_mins(1);

/// Files that an agent counts beyond its container's limit, so that growth above the limit is seen.
const FILES_BEYOND: u64 = 10_000;

impl Inner {
    /// Measures containers that may be writing, every second.
    pub(crate) fn start_disk_watch(self: &Arc<Self>) {
        self.every(LOOK_INTERVAL / 2, |inner| async move {
            inner.look_at_disks();
        });
    }

    fn look_at_disks(self: &Arc<Self>) {
        let now = Instant::now();
        for container in self.registry.all() {
            if !container.is_watched() || !container.disk().is_due(now) {
                continue;
            }
            let inner = Arc::clone(self);
            // In a task of its own, so that a slow one does not delay the others.
            self.environment.tasks.spawn(async move {
                if let Ok(one) = container.disk().looking.try_lock() {
                    inner.look_at_disk(&container, one).await;
                }
            });
        }
    }

    /// Measures a container, whose lock the caller holds, and enforces the limit.
    async fn look_at_disk(&self, container: &LiveContainer, _one: MutexGuard<'_, ()>) {
        let (disk, limits) = (container.disk(), &container.row.spec.limits);
        let (began, writes) = (Instant::now(), disk.writes());
        if disk.has_rested(self.cpu_time(container).await) {
            return;
        }
        // An exec that has its slot may not have a process yet: whoever looks for processes only
        // would find none, and not look again before the exec ends.
        let has_running = container.execs().counts().0 > 0;
        let measured = tokio::time::timeout(LOOK_TIMEOUT, self.measure_disk(container)).await;
        let late = || {
            Err(ServiceError::Deadline {
                reason: "measuring its files took too long".to_owned(),
            })
        };
        let used = match measured.unwrap_or_else(|_| late()) {
            Ok(used) => DiskUse {
                is_busy: used.is_busy || has_running,
                ..used
            },
            Err(error) => {
                tracing::debug!(container.id = %container.id(), %error, "a container's disk space is not known");
                return disk.did_not_see();
            }
        };
        match disk.saw(used, limits, writes, began.elapsed()) {
            Verdict::Within | Verdict::Over => {}
            Verdict::Recovered => {
                tracing::info!(container.id = %container.id(), used_bytes = used.bytes, "a container is within its disk limit again");
            }
            Verdict::End => {
                tracing::warn!(
                    container.id = %container.id(),
                    used_bytes = used.bytes, used_files = used.files,
                    limit_bytes = limits.disk.get(), limit_files = limits.files(),
                    "a container is over its disk limit; its execs are ended"
                );
                self.end_what_runs(container).await;
            }
        }
    }

    async fn cpu_time(&self, container: &LiveContainer) -> Option<Duration> {
        let inspected = self.environment.engine.inspect(container.id()).await;
        inspected.ok().and_then(|container| container.cpu_time)
    }

    /// Lets the engine measure if it can, else the agent.
    async fn measure_disk(&self, container: &LiveContainer) -> Result<DiskUse, ServiceError> {
        let engine = &self.environment.engine;
        let walking = self.disk_walks.acquire().await;
        if let Some(used) = engine.disk_use(container.id()).await? {
            return Ok(used);
        }
        drop(walking);
        let files_max = container.row.spec.limits.files() + FILES_BEYOND;
        let connection = container.connection();
        let connected = connection.get().await?;
        let measured = connected.agent.disk_use(files_max).await;
        let AgentDiskUse {
            bytes,
            files,
            is_beyond_measure,
            is_busy,
        } = measured.map_err(|error| {
            connection.report(&connected, &error);
            ServiceError::Unavailable {
                reason: "the container does not tell how much disk space it uses".to_owned(),
                source: Some(error.into()),
            }
        })?;
        Ok(DiskUse {
            bytes,
            files,
            is_beyond_measure,
            is_busy,
        })
    }

    /// Ends execs with `disk_limit`, and background processes of ended execs.
    async fn end_what_runs(&self, container: &LiveContainer) {
        container.execs().end_over_disk();
        let connection = container.connection();
        let Ok(connected) = connection.get().await else {
            return;
        };
        if let Err(error) = connected.agent.end_execs().await {
            connection.report(&connected, &error);
            tracing::warn!(container.id = %container.id(), %error, "not everything in a container was ended");
        }
    }

    /// Refuses file writes to a container that is over its disk limit. It is measured again first,
    /// because the caller may have just deleted files.
    pub(crate) async fn has_disk(
        &self,
        container: &LiveContainer,
    ) -> Result<Writing, ServiceError> {
        let disk = container.disk();
        if disk.is_over() {
            self.look_again(container).await;
        }
        disk.check_write(&container.row.spec.limits)?;
        Ok(Writing::new(container))
    }

    /// Like [`Inner::has_disk`], for new execs.
    pub(crate) async fn may_start(&self, container: &LiveContainer) -> Result<(), ServiceError> {
        let (disk, limits) = (container.disk(), &container.row.spec.limits);
        if disk.check_start(limits).is_err() {
            self.look_again(container).await;
        }
        disk.check_start(limits)
    }

    /// Measures a container again that was over its limit.
    async fn look_again(&self, container: &LiveContainer) {
        let one = container.disk().looking.lock().await;
        if !container.disk().is_fresh(Instant::now()) {
            self.look_at_disk(container, one).await;
        }
    }
}

impl LiveContainer {
    /// Whether its disk usage must be measured. If the enforcement is unknown, it is.
    fn is_watched(&self) -> bool {
        self.phase() == Phase::Running && !self.has_disk_quota()
    }

    /// Whether the kernel refuses writes beyond the limit.
    pub(crate) fn has_disk_quota(&self) -> bool {
        let enforcement = self.enforced().map(|enforced| enforced.disk);
        enforcement == Some(Enforcement::ProjectQuota)
    }
}
