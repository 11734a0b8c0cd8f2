//! Garbage collection.

use std::collections::HashSet;
use std::sync::Arc;

use hotcell_domain::{Caller, ContainerId, Phase, Principal};
use hotcell_engine::{Garbage, SweepMode};
use hotcell_ledger::{Arguments, EventName};
use hotcell_store::Retention;

use crate::container::{EndMode, LiveContainer};
use crate::environment::{Environment, millis};
use crate::status::WHOLE;
use crate::{Action, Inner, Service, ServiceError};

/// The number of objects that a collection removed, or would remove.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Collected {
    /// Containers whose TTL had ended.
    pub expired_containers: u64,
    /// Transient containers that were idle for too long.
    pub idle_containers: u64,
    /// Ended execs with their logs.
    pub execs: u64,
    /// Rows of ended containers.
    pub container_records: u64,
    /// Images from which no container was created for long.
    pub images: u64,
    /// Leftovers of dead processes in the engine.
    pub leftovers: u64,
    /// Objects that could not be removed.
    pub errors: u64,
}

/// The counts, and the containers that were ended.
#[derive(Default)]
struct Collection {
    collected: Collected,
    ended: Vec<ContainerId>,
}

impl Service {
    /// Collects garbage; with `dry_run` only counts it.
    pub async fn collect_garbage(
        &self,
        caller: &Caller,
        dry_run: bool,
    ) -> Result<Collected, ServiceError> {
        let (operation, inner) = self.begin(caller, Action::GarbageCollect, &WHOLE);
        let (collection, mut operation) = operation.open(inner.collect_garbage(dry_run)).await?;
        operation.note(|arguments| {
            arguments.flag("dry_run", dry_run);
            collection.note(arguments);
        });
        operation.end().written().await?;
        Ok(collection.collected)
    }
}

impl Inner {
    /// Collects garbage periodically, and records it if there was any.
    pub(crate) async fn collect_garbage_on_time(self: &Arc<Self>) {
        match self.collect_garbage(false).await {
            Ok(collection) if collection.collected.has_changed() => {
                let note = |arguments: &mut Arguments| collection.note(arguments);
                self.environment.record_own(EventName::SystemGc, note).await;
            }
            Ok(_) => {}
            Err(error) => tracing::error!(%error, "garbage was not collected"),
        }
    }

    async fn collect_garbage(self: &Arc<Self>, dry_run: bool) -> Result<Collection, ServiceError> {
        let expired = self.running(is_expired);
        let idle = self.running(|container, now_unix_ms| self.is_idle(container, now_unix_ms));
        let ended = expired.iter().chain(&idle);
        let ended = ended.map(|container| container.id().clone()).collect();
        let mut collected = Collected {
            expired_containers: expired.len() as u64,
            idle_containers: idle.len() as u64,
            ..Collected::default()
        };
        if dry_run {
            let prunable = self.environment.store.prunable(self.forget_before());
            (collected.execs, collected.container_records) = prunable.await?;
            self.sweep(&mut collected, true).await;
            return Ok(Collection { collected, ended });
        }
        let failed = [
            self.end_all(expired, EndMode::Graceful).await,
            self.end_all(idle, EndMode::Graceful).await,
        ];
        collected.expired_containers -= failed[0];
        collected.idle_containers -= failed[1];
        collected.errors += failed[0] + failed[1];
        self.forget(&mut collected).await;
        self.sweep(&mut collected, false).await;
        self.environment.metrics.collected(&collected);
        Ok(Collection { collected, ended })
    }

    /// Deletes the rows of what ended long ago: execs first, because their rows refer to
    /// containers.
    async fn forget(&self, collected: &mut Collected) {
        let before_unix_ms = self.forget_before();
        let store = &self.environment.store;
        match store.prune_execs(before_unix_ms).await {
            Ok(count) => collected.execs = count,
            Err(error) => note_error(collected, &error),
        }
        match store.prune_containers(before_unix_ms).await {
            Ok(count) => collected.container_records = count,
            Err(error) => note_error(collected, &error),
        }
        match store.principals_with_excess(self.environment.keep()).await {
            Ok(principals) => {
                // Logs of running execs count towards the quota, so their principals are included.
                let mut principals: HashSet<_> = principals.into_iter().collect();
                principals.extend(self.environment.execs.principals());
                let settings = self.environment.settings();
                principals.extend(settings.quotas.overrides.keys().cloned());
                for principal in principals {
                    let (execs, containers) = self.environment.prune_excess(&principal).await;
                    collected.execs += execs;
                    collected.container_records += containers;
                }
            }
            Err(error) => note_error(collected, &error),
        }
    }

    /// Removes leftovers in the engine, or only counts them.
    async fn sweep(&self, collected: &mut Collected, dry_run: bool) {
        let engine = &self.environment.engine;
        let mode = if dry_run {
            SweepMode::Count
        } else {
            SweepMode::Remove
        };
        let unused_for = self.environment.settings().image_idle_max;
        for garbage in [Garbage::Containers, Garbage::Images { unused_for }] {
            match engine.sweep(garbage, mode).await {
                Ok(swept) => {
                    collected.images += swept.images as u64;
                    collected.leftovers += swept.leftovers as u64;
                }
                Err(error) => note_error(collected, &error),
            }
        }
    }

    fn forget_before(&self) -> u64 {
        let retention = self.environment.settings().ended_retention;
        self.environment
            .clock
            .unix_ms()
            .saturating_sub(millis(retention))
    }

    fn running(&self, is_garbage: impl Fn(&LiveContainer, u64) -> bool) -> Vec<Arc<LiveContainer>> {
        let now_unix_ms = self.environment.clock.unix_ms();
        let mut containers = self.registry.all();
        containers.retain(|container| {
            container.phase() == Phase::Running && is_garbage(container, now_unix_ms)
        });
        containers
    }

    fn is_idle(&self, container: &LiveContainer, now_unix_ms: u64) -> bool {
        let settings = self.environment.settings();
        let idle_ms_max = millis(match container.row.session {
            Some(_) => settings.code.session_idle_max,
            None => settings.transient_idle_max,
        });
        !container.row.is_persistent
            && !is_expired(container, now_unix_ms)
            && container.execs().counts() == (0, 0)
            && container.last_used_unix_ms().saturating_add(idle_ms_max) <= now_unix_ms
    }
}

impl Environment {
    /// How many ended execs and containers a principal keeps. The logs of its running execs reduce
    /// the space for ended ones.
    fn retention_of(&self, principal: &Principal) -> Retention {
        let live_bytes = self.execs.used_by(principal).log_bytes;
        let output_bytes = self.quota_of(principal).output_bytes;
        Retention {
            log_bytes_max: output_bytes.saturating_sub(live_bytes),
            ..self.keep()
        }
    }

    /// The default retention, before quotas and running execs are considered.
    fn keep(&self) -> Retention {
        let settings = self.settings();
        Retention {
            execs_max: settings.ended_execs_max,
            log_bytes_max: settings.quotas.default.output_bytes,
            containers_max: settings.ended_containers_max,
        }
    }

    /// Removes the oldest ended execs and containers of a principal that has too many; returns how
    /// many. Failures are retried by the next garbage collection.
    pub(crate) async fn prune_excess(&self, principal: &Principal) -> (u64, u64) {
        let forgotten = self
            .store
            .prune_excess(principal.clone(), self.retention_of(principal));
        forgotten.await.unwrap_or_else(|error| {
            tracing::warn!(%principal, %error, "could not forget old execs and containers");
            (0, 0)
        })
    }
}

impl Collected {
    fn has_changed(&self) -> bool {
        let nothing = Self {
            errors: self.errors,
            ..Self::default()
        };
        *self != nothing
    }
}

impl Collection {
    /// Writes the counts and the ended containers for the audit log.
    fn note(&self, arguments: &mut Arguments) {
        let Collected {
            expired_containers,
            idle_containers,
            execs,
            container_records,
            images,
            leftovers,
            errors,
        } = self.collected;
        for (name, count) in [
            ("expired_containers", expired_containers),
            ("idle_containers", idle_containers),
            ("execs", execs),
            ("container_records", container_records),
            ("images", images),
            ("leftovers", leftovers),
            ("errors", errors),
        ] {
            if count > 0 {
                arguments.number(name, count);
            }
        }
        arguments.names("containers", self.ended.iter().map(ContainerId::as_str));
    }
}

fn note_error(collected: &mut Collected, error: &dyn std::fmt::Display) {
    tracing::error!(%error, "garbage could not be collected");
    collected.errors += 1;
}

fn is_expired(container: &LiveContainer, now_unix_ms: u64) -> bool {
    container
        .row
        .expires_unix_ms
        .is_some_and(|expires| expires <= now_unix_ms)
}
