//! How the whole is.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::PoisonError;
use std::time::Duration;

use hotcell_domain::{
    Caller, ImageAliases, ImageName, ImageRef, Maxima, Principal, Profile, Quota, Share, Totals,
};
use hotcell_engine::{Container, Enforced, Enforcement, FileIds};
use hotcell_ledger::{Event, EventName, Ledger, Who};
use hotcell_otlp::Exporter;

use crate::metrics::Now;
use crate::{Action, Inner, PoolView, Reconciled, Service, ServiceError};

/// How long an engine may take to show that it is there, or to tell what is worth a look
/// but not a wait.
pub(crate) const ENGINE_TIMEOUT: Duration = Duration::from_secs(2);

/// The target of what is about no container, exec or image in particular.
pub(crate) const WHOLE: &str = "server";

/// How the whole is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// The engine's name.
    pub engine: String,
    /// Whether the engine answered just now.
    pub engine_is_up: bool,
    /// Since when this server runs.
    pub started_unix_ms: u64,
    /// Containers that have not ended, of all principals.
    pub containers: u64,
    /// What is kept ready.
    pub warm: Vec<PoolView>,
    /// Execs that run.
    pub execs_running: u64,
    /// Execs that wait.
    pub execs_queued: u64,
    /// What each principal has of its quota; only those who have something.
    pub principals: Vec<PrincipalUse>,
    /// Which languages snippets can have, by image, as far as that is known.
    pub languages: Vec<(String, Vec<&'static str>)>,
    /// What stands behind each limit of a new container.
    pub limits: Vec<LimitView>,
    /// How many workspaces the engine has by the user ids of their files on disk: `plain`, `shifted`
    /// or `owner`. Warm ones count too; empty if the engine does not tell.
    pub workspaces: BTreeMap<&'static str, u64>,
    /// What all containers hold together, warm ones too.
    pub held: Share,
    /// What they may hold; `None`: no bound.
    pub totals: Option<Totals>,
    /// What the last reconciliation found, and when.
    pub reconciled: Option<(u64, Reconciled)>,
    /// Whether it takes requests: false while it starts and while it stops.
    pub is_ready: bool,
}

/// What a principal has of its quota.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrincipalUse {
    /// Who.
    pub principal: Principal,
    /// Containers that have not ended.
    pub containers: usize,
    /// The disk limits of these containers together.
    pub disk_bytes: u64,
    /// Execs that run or wait.
    pub execs: usize,
    /// What the logs of these execs take of the disk.
    pub output_bytes: u64,
    /// What it may have.
    pub quota: Quota,
}

/// What stands behind a limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitView {
    /// `memory`, `cpu`, `pids`, `disk`.
    pub limit: &'static str,
    /// What enforces it: `cgroup` or `project_quota` for the container as a whole, `rlimit` for
    /// each process of it, `watched` if what goes over is noticed and ended; `None` if nothing
    /// does.
    pub by: Option<&'static str>,
}

impl Service {
    /// How the whole is.
    pub async fn status(&self, caller: &Caller) -> Result<Status, ServiceError> {
        let (operation, inner) = self.begin(caller, Action::SystemStatus, &WHOLE);
        operation.run(async { Ok(inner.status().await) }).await
    }

    /// The profile of a container whose caller names nothing.
    pub fn default_profile(&self) -> Profile {
        let settings = self.inner.without_operation().environment.settings();
        Profile::of(&settings.spec(settings.default_image.clone()))
    }

    /// The most that a container may ask for; `None`: no bound.
    pub fn maxima(&self) -> Option<Maxima> {
        self.inner
            .without_operation()
            .environment
            .settings()
            .policy
            .maxima
    }

    /// The image of a container that names none.
    pub fn default_image(&self) -> ImageRef {
        self.inner
            .without_operation()
            .environment
            .settings()
            .default_image
            .clone()
    }

    /// The operator's names of images.
    pub fn image_aliases(&self) -> ImageAliases {
        let environment = &self.inner.without_operation().environment;
        environment.settings().aliases.clone()
    }

    /// The image that a name stands for.
    pub fn resolve_image(&self, name: &ImageName) -> ImageRef {
        let environment = &self.inner.without_operation().environment;
        environment.settings().aliases.resolve(name)
    }

    /// Whether it takes requests.
    pub fn is_ready(&self) -> bool {
        self.inner.without_operation().is_ready()
    }

    /// Returns once the database has answered. A process whose disk or database thread is stuck
    /// never does.
    pub async fn responds(&self) -> Result<(), ServiceError> {
        let store = &self.inner.without_operation().environment.store;
        Ok(store.responds().await?)
    }

    /// The metrics, as Prometheus reads them: `application/openmetrics-text; version=1.0.0;
    /// charset=utf-8`.
    pub fn metrics_text(&self, caller: &Caller) -> String {
        let (operation, inner) = self.begin(caller, Action::Metrics, &WHOLE);
        let text = inner.environment.metrics.text(&inner.now());
        // It is not worth waiting for: nothing was changed.
        drop(operation.end());
        text
    }

    /// Whether operations that leave an event are refused, because the audit log cannot be
    /// written.
    pub fn is_unrecordable(&self) -> bool {
        let inner = self.inner.without_operation();
        let settings = inner.environment.settings();
        settings.ledger.as_ref().is_some_and(Ledger::is_stopped)
    }

    /// Records that somebody could not prove who they are: what they asked for (`None` if many
    /// things), where from, which check failed, and how often. None of it holds a credential. It
    /// does not wait.
    pub fn auth_failed(&self, path: Option<&str>, address: &str, reason: &str, count: u64) {
        let inner = self.inner.without_operation();
        let settings = inner.environment.settings();
        let Some(ledger) = &settings.ledger else {
            return;
        };
        let now = inner.environment.clock.unix_ms();
        let target = path.unwrap_or(WHOLE);
        let mut event = Event::new(EventName::AuthFailed, now, Who::Nobody, target);
        event.arguments.text("address", address);
        event.arguments.text("reason", reason);
        event.arguments.number("count", count);
        event.outcome = hotcell_ledger::Outcome::Denied;
        event.code = Some("unauthenticated");
        drop(ledger.record(&event));
    }

    /// Records that a caller was denied something before the service was asked for it.
    pub async fn deny(&self, caller: &Caller, action: Action) {
        let (mut operation, _) = self.begin(caller, action, &WHOLE);
        operation.fail(&ServiceError::Denied {
            reason: "it is the operator's".to_owned(),
        });
        operation.recorded().await;
    }
}

impl Inner {
    async fn status(&self) -> Status {
        let listed = self.environment.engine.list();
        let listed = tokio::time::timeout(ENGINE_TIMEOUT, listed).await;
        let listed = listed.ok().and_then(Result::ok);
        let now = self.now();
        let reconciled = self.reconciled.lock();
        Status {
            engine: self.environment.engine_id.name.clone(),
            engine_is_up: listed.is_some(),
            started_unix_ms: self.started_unix_ms,
            containers: now.phases.len() as u64,
            warm: now.warm,
            execs_running: now.execs_running as u64,
            execs_queued: now.execs_queued as u64,
            principals: self.principals_in_use(),
            languages: self.languages.all(),
            limits: limit_views(self.enforced()),
            workspaces: workspaces(&listed.unwrap_or_default()),
            held: self.environment.budget.held(),
            totals: self.environment.budget.totals(),
            reconciled: reconciled.unwrap_or_else(PoisonError::into_inner).clone(),
            is_ready: self.is_ready(),
        }
    }

    /// By name.
    fn principals_in_use(&self) -> Vec<PrincipalUse> {
        let environment = &self.environment;
        let containers = self.registry.counts();
        let mut all: BTreeSet<Principal> = environment.execs.principals().into_iter().collect();
        all.extend(containers.keys().cloned());
        let owned = |principal: &Principal| containers.get(principal).copied().unwrap_or_default();
        let in_use = |principal: Principal| {
            let execs = environment.execs.used_by(&principal);
            PrincipalUse {
                containers: owned(&principal).containers,
                disk_bytes: owned(&principal).disk_bytes,
                execs: execs.execs,
                output_bytes: execs.log_bytes,
                quota: environment.quota_of(&principal),
                principal,
            }
        };
        all.into_iter().map(in_use).collect()
    }

    /// What there is right now.
    fn now(&self) -> Now {
        let settings = self.environment.settings();
        let spans = settings.traces.as_ref().map(Exporter::counts);
        let mut now = Now {
            warm: self.pool.views(),
            store_queue: self.environment.store.queue_depth(),
            audit: settings.ledger.as_ref().map(Ledger::figures),
            spans: spans.unwrap_or_default(),
            ..Now::default()
        };
        for container in self.registry.all() {
            let (running, queued) = container.execs().counts();
            now.phases.push(container.phase());
            now.execs_running += running;
            now.execs_queued += queued;
        }
        now.phases.retain(|phase| !phase.is_final());
        now
    }

    /// What stands behind limits here: as the newest container has it, or as was foreseen.
    fn enforced(&self) -> Enforced {
        let containers = self.registry.all();
        let newest = containers
            .iter()
            .rev()
            .find_map(|container| container.enforced());
        newest.unwrap_or(self.enforced)
    }
}

fn workspaces(containers: &[Container]) -> BTreeMap<&'static str, u64> {
    let mut counts = BTreeMap::new();
    for ids in containers.iter().filter_map(|one| one.file_ids) {
        *counts.entry(FileIds::as_str(ids)).or_default() += 1;
    }
    counts
}

/// How callers see what stands behind limits.
pub(crate) fn limit_views(enforced: Enforced) -> Vec<LimitView> {
    let view = |(limit, enforcement)| LimitView {
        limit,
        by: match enforcement {
            Enforcement::Cgroup => Some("cgroup"),
            Enforcement::Rlimit => Some("rlimit"),
            Enforcement::ProjectQuota => Some("project_quota"),
            Enforcement::Watched => Some("watched"),
            Enforcement::None => None,
        },
    };
    let limits = [
        ("memory", enforced.memory),
        ("cpu", enforced.cpus),
        ("pids", enforced.pids),
        ("disk", enforced.disk),
    ];
    limits.into_iter().map(view).collect()
}
