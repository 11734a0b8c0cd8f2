//! The status of the server.

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

/// How long an engine may take for a health check, or for optional information.
pub(crate) const ENGINE_TIMEOUT: Duration = Duration::from_secs(2);

/// The target of operations that are about no particular container, exec or image.
pub(crate) const WHOLE: &str = "server";

/// The status of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// The engine's name.
    pub engine: String,
    /// Whether the engine answered just now.
    pub engine_is_up: bool,
    /// When this server started.
    pub started_unix_ms: u64,
    /// Live containers of all principals.
    pub containers: u64,
    /// The sets of the warm pool.
    pub warm: Vec<PoolView>,
    /// Running execs.
    pub execs_running: u64,
    /// Queued execs.
    pub execs_queued: u64,
    /// The quota usage of each principal that uses anything.
    pub principals: Vec<PrincipalUse>,
    /// The languages that snippets can use, by image, as far as known.
    pub languages: Vec<(String, Vec<&'static str>)>,
    /// What enforces each limit of a new container.
    pub limits: Vec<LimitView>,
    /// The number of workspaces by the user ids of their files on disk: `plain`, `shifted` or
    /// `owner`. Includes warm containers; empty if the engine does not report it.
    pub workspaces: BTreeMap<&'static str, u64>,
    /// The sum of the limits of all containers, including warm ones.
    pub held: Share,
    /// The limit on that sum; `None`: no limit.
    pub totals: Option<Totals>,
    /// When the last reconciliation was, and its result.
    pub reconciled: Option<(u64, Reconciled)>,
    /// Whether requests are accepted: false while the server starts and while it stops.
    pub is_ready: bool,
}

/// The quota usage of one principal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrincipalUse {
    /// The owner.
    pub principal: Principal,
    /// Live containers.
    pub containers: usize,
    /// The sum of their disk limits.
    pub disk_bytes: u64,
    /// Running and queued execs.
    pub execs: usize,
    /// The size of their logs on disk.
    pub output_bytes: u64,
    /// The principal's quota.
    pub quota: Quota,
}

/// What enforces a limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitView {
    /// `memory`, `cpu`, `pids`, `disk`.
    pub limit: &'static str,
    /// What enforces it: `cgroup` or `project_quota` for the whole container, `rlimit` for each
    /// process, `watched` if excess is noticed and ended; `None` if nothing does.
    pub by: Option<&'static str>,
}

impl Service {
    /// The status of the server.
    pub async fn status(&self, caller: &Caller) -> Result<Status, ServiceError> {
        let (operation, inner) = self.begin(caller, Action::SystemStatus, &WHOLE);
        operation.run(async { Ok(inner.status().await) }).await
    }

    /// The profile of a container with default settings.
    pub fn default_profile(&self) -> Profile {
        let settings = self.inner.without_operation().environment.settings();
        Profile::of(&settings.spec(settings.default_image.clone()))
    }

    /// The highest limits that a caller may request; `None`: no limit.
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

    /// The short names of images.
    pub fn image_aliases(&self) -> ImageAliases {
        let environment = &self.inner.without_operation().environment;
        environment.settings().aliases.clone()
    }

    /// Resolves an image name, which may be an alias.
    pub fn resolve_image(&self, name: &ImageName) -> ImageRef {
        let environment = &self.inner.without_operation().environment;
        environment.settings().aliases.resolve(name)
    }

    /// Whether requests are accepted.
    pub fn is_ready(&self) -> bool {
        self.inner.without_operation().is_ready()
    }

    /// Returns once the database has answered. A process whose disk or database thread is stuck
    /// never does.
    pub async fn responds(&self) -> Result<(), ServiceError> {
        let store = &self.inner.without_operation().environment.store;
        Ok(store.responds().await?)
    }

    /// The metrics in the format that Prometheus reads: `application/openmetrics-text;
    /// version=1.0.0; charset=utf-8`.
    pub fn metrics_text(&self, caller: &Caller) -> String {
        let (operation, inner) = self.begin(caller, Action::Metrics, &WHOLE);
        let text = inner.environment.metrics.text(&inner.now());
        // A read-only operation does not wait for its audit event.
        drop(operation.end());
        text
    }

    /// Whether operations that must be recorded are refused, because the audit log cannot be
    /// written.
    pub fn is_unrecordable(&self) -> bool {
        let inner = self.inner.without_operation();
        let settings = inner.environment.settings();
        settings.ledger.as_ref().is_some_and(Ledger::is_stopped)
    }

    /// Records failed logins: the requested path (`None` if there were several), the address, the
    /// check that failed, and the number of attempts. None of these contains a credential. Does not
    /// wait.
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

    /// Records that a caller was denied an action before the service was called.
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

    /// The quota usage of each principal, sorted by name.
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

    /// The current values of the gauges.
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

    /// What enforces limits here: as reported for the newest container, or as expected.
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

/// Converts what enforces limits for callers.
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
