//! Creates containers.
//!
//! A container is first registered in memory, then recorded in the store, then created by the
//! engine. So a second request with the same key finds it at every moment, and a server that dies
//! leaves either nothing or a row. A warm container already exists; recording it takes it from the
//! pool.

use std::sync::Arc;
use std::time::Duration;

use hotcell_domain::{
    Admitted, Caller, ContainerId, ContainerSpec, Network, OverQuota, Phase, Quota,
};
use hotcell_ledger::Arguments;
use hotcell_store::{ContainerInsert, ContainerRow, StoreError};

use super::list::{view, view_of_row};
use super::{ContainerView, Spawn};
use crate::container::{Creation, LiveContainer, Origin, Supervisor};
use crate::environment::millis;
use crate::pool::Claim;
use crate::registry::AddError;
use crate::{Action, EgressChoice, Inner, Service, ServiceError, trace};

/// The longest TTL that can be requested.
const TTL_S_MAX: u64 = 10 * 365 * 24 * 60 * 60;

/// How often a request may find that the container of its key has just ended or failed. Each time,
/// another request with that key made an attempt, so this bounds how many may compete.
const ROUNDS_MAX: usize = 64;

/// How long a request waits for a container with the same key to end.
const END_TIMEOUT: Duration = Duration::from_secs(10);

impl Service {
    /// Creates a container, or returns the one that was created with the same key, even if that has
    /// ended since. If that one failed, a new one is created.
    ///
    /// Dropping the future does not undo it: the container is created anyway and appears in the
    /// list. Its [`Abandonment`](crate::Abandonment) does undo it.
    pub async fn spawn(
        &self,
        caller: &Caller,
        request: Spawn,
    ) -> Result<ContainerView, ServiceError> {
        let image = request.image.clone();
        let image = image.unwrap_or_else(|| self.default_image());
        let (mut operation, inner) = self.begin(caller, Action::Spawn, &image);
        operation.note(|arguments| request.note(arguments));
        let caller = caller.clone();
        let spawn = async move {
            inner.accepting()?;
            inner.environment.has_room()?;
            let tasks = Arc::clone(&inner);
            let work = async move { inner.spawn(&caller, request).await };
            let spawned = tasks.environment.tasks.spawn(trace::carried(work)).await;
            let spawned = spawned.ok().flatten();
            spawned.unwrap_or_else(|| Err(ServiceError::stopping()))
        };
        let (view, mut operation) = operation.open(spawn).await?;
        operation.created(&view.id);
        operation.end().written().await?;
        Ok(view)
    }
}

impl Spawn {
    /// Writes the request for the audit log: only the names of variables and labels.
    fn note(&self, arguments: &mut Arguments) {
        arguments.flag("persistent", self.is_persistent);
        if let Some(alias) = &self.alias {
            arguments.text("alias", alias.as_str());
        }
        if let Some(ttl_s) = self.ttl_s {
            arguments.number("ttl_s", ttl_s);
        }
        arguments.flag("network", self.network == Some(Network::Full));
        if let EgressChoice::Asked(profile) = &self.egress {
            arguments.text("egress", profile.as_str());
        }
        if let Some(limits) = &self.limits {
            arguments.text("memory", &limits.memory.to_string());
            arguments.text("cpus", &limits.cpus.to_string());
            arguments.text("pids", &limits.pids.to_string());
            arguments.text("disk", &limits.disk.to_string());
        }
        arguments.names("env", self.env.iter().map(|(name, _)| name));
        arguments.names("labels", self.labels.iter().map(|(name, _)| name));
    }
}

/// A container that was created, or found by the same key or session.
pub(crate) enum Spawned {
    Created(Arc<LiveContainer>),
    Existing(Arc<LiveContainer>),
    Ended(Box<ContainerRow>),
}

/// The result of recording a container.
enum Recorded {
    New,
    /// Another container has its key or its session.
    SameKey(KeyHolder),
}

/// The container that already has the key.
enum KeyHolder {
    Live(Arc<LiveContainer>),
    Row(Box<ContainerRow>),
}

/// Why a container was not recorded.
enum RecordError {
    /// It was rejected; nothing is stored.
    Refused(ServiceError),
    /// The store failed, and may or may not have the row.
    Failed(ServiceError),
}

impl Inner {
    async fn spawn(
        self: &Arc<Self>,
        caller: &Caller,
        request: Spawn,
    ) -> Result<ContainerView, ServiceError> {
        match self.make(caller, request).await? {
            Spawned::Created(container) => Ok(view(&container, None, Vec::new())),
            Spawned::Existing(container) => self.view_of(&container).await,
            Spawned::Ended(row) => Ok(view_of_row(&row)),
        }
    }

    /// Creates a container, or finds the one with the same key or session.
    pub(crate) async fn make(
        self: &Arc<Self>,
        caller: &Caller,
        request: Spawn,
    ) -> Result<Spawned, ServiceError> {
        let admitted = self.admit(&request)?;
        let leads_back = request.key.is_some() || request.session.is_some();
        let creation = Creation {
            spec: admitted,
            progress: request.progress.clone(),
            abandonment: request.abandonment.clone().unless(leads_back),
        };
        let mut row = self.row(caller, request, creation.spec.value())?;
        let mut keys_since = self.keys_since();
        for _ in 0..ROUNDS_MAX {
            let made = self.create(&row, &creation, keys_since);
            match made.await? {
                Spawned::Existing(container) if container.phase().is_final() => {
                    let ended = tokio::time::timeout(END_TIMEOUT, container.until_removed());
                    ended.await.map_err(|_| still_ending())?;
                }
                // A failed container releases its key.
                Spawned::Ended(before) if before.phase == Phase::Failed => {
                    keys_since = before.created_unix_ms + 1;
                    row.created_unix_ms = row.created_unix_ms.max(keys_since);
                }
                made @ (Spawned::Created(_) | Spawned::Existing(_) | Spawned::Ended(_)) => {
                    return Ok(made);
                }
            }
        }
        Err(still_ending())
    }

    /// Applies the policy. Only the operator decides whether execs may run as root.
    fn admit(&self, request: &Spawn) -> Result<Admitted<ContainerSpec>, ServiceError> {
        let settings = self.environment.settings();
        let image = request.image.clone();
        let default = settings.spec(image.unwrap_or_else(|| settings.default_image.clone()));
        let spec = ContainerSpec {
            limits: request.limits.unwrap_or(default.limits),
            network: request.network.unwrap_or(default.network),
            env: request.env.clone(),
            ..default
        };
        settings.policy.admit(spec).map_err(ServiceError::Refused)
    }

    fn row(
        &self,
        caller: &Caller,
        request: Spawn,
        spec: &ContainerSpec,
    ) -> Result<ContainerRow, ServiceError> {
        let ttl = ttl(&request)?;
        let egress = &self.environment.egress;
        let egress = egress.admit(&request.egress, &caller.principal, spec)?;
        let now_unix_ms = self.environment.clock.unix_ms();
        Ok(ContainerRow {
            id: ContainerId::from_parts(now_unix_ms, self.environment.random.bytes()),
            principal: caller.principal.clone(),
            alias: request.alias,
            spec: spec.clone(),
            image_digest: None,
            engine: self.environment.engine_id.clone(),
            labels: request.labels,
            is_persistent: request.is_persistent,
            key: request.key,
            phase: Phase::Creating,
            created_unix_ms: now_unix_ms,
            last_used_unix_ms: now_unix_ms,
            expires_unix_ms: ttl.map(|ttl| now_unix_ms.saturating_add(millis(ttl))),
            ended_unix_ms: None,
            is_warm: false,
            session: request.session,
            egress,
        })
    }

    fn keys_since(&self) -> u64 {
        let now_unix_ms = self.environment.clock.unix_ms();
        now_unix_ms.saturating_sub(millis(self.environment.settings().key_lifetime))
    }

    /// Creates the container of a row, or finds the one with the same key and waits until that is
    /// created.
    async fn create(
        self: &Arc<Self>,
        row: &ContainerRow,
        creation: &Creation,
        keys_since_unix_ms: u64,
    ) -> Result<Spawned, ServiceError> {
        let claim = self.claim(row, keys_since_unix_ms).await;
        let (container, requests) = match &claim {
            Some(claim) => LiveContainer::with_connection(
                &self.environment,
                claim.row(row),
                claim.connection(),
            ),
            None => LiveContainer::new(&self.environment, row.clone()),
        };
        let recorded = self.record(&container, keys_since_unix_ms).await;
        let claim = settle_claim(claim, &recorded);
        match recorded {
            Ok(Recorded::New) => {}
            Ok(Recorded::SameKey(before)) => return self.find_key_holder(before).await,
            Err(RecordError::Refused(failure) | RecordError::Failed(failure)) => {
                return Err(failure);
            }
        }
        self.registry.name(&container);
        let origin = self.origin(claim, creation);
        let is_warm = matches!(origin, Origin::Warm(..));
        Supervisor::start(self, &container, requests, origin);
        container.until_created().await?;
        if !is_warm {
            self.pool.note_success(creation.spec.value());
        }
        Ok(Spawned::Created(container))
    }

    /// Claims a warm container, unless there is one with the same key or session.
    async fn claim(&self, row: &ContainerRow, keys_since_unix_ms: u64) -> Option<Claim> {
        let session = row.session.as_ref();
        let session = session.and_then(|name| self.registry.session(&row.principal, name));
        if session.is_some() || self.registry.has_key_of(row, keys_since_unix_ms) {
            return None;
        }
        self.pool.claim(&row.spec).await
    }

    fn origin(&self, claim: Option<Claim>, creation: &Creation) -> Origin {
        if let Some(claim) = claim {
            return Origin::Warm(Box::new(claim.hand_over()), creation.abandonment.clone());
        }
        self.pool.count_miss(creation.spec.value());
        Origin::New(Box::new(creation.clone()))
    }

    /// Registers a container in memory, then in the store. It ends up in both or in neither.
    async fn record(
        &self,
        container: &Arc<LiveContainer>,
        keys_since_unix_ms: u64,
    ) -> Result<Recorded, RecordError> {
        let quota = self.environment.quota_of(&container.row.principal);
        match self.registry.add(container, keys_since_unix_ms, &quota) {
            Ok(()) => {}
            Err(AddError::SameKey(container) | AddError::SameSession(container)) => {
                return Ok(Recorded::SameKey(KeyHolder::Live(container)));
            }
            Err(AddError::OverQuota(excess)) => {
                return self.same_key(container, keys_since_unix_ms, excess).await;
            }
        }
        if let Err(excess) = self.count_spawn(container, &quota) {
            self.discard(container, Some(ServiceError::OverQuota(excess.clone())));
            return self.same_key(container, keys_since_unix_ms, excess).await;
        }
        if let Err(refusal) = self.reserve(container).await {
            self.discard(container, Some(refusal.again()));
            return Err(RecordError::Refused(refusal));
        }
        let recorded = self.insert(container, keys_since_unix_ms).await;
        match recorded {
            Ok(ContainerInsert::New) => Ok(Recorded::New),
            Ok(ContainerInsert::Existing(before)) => {
                self.discard(container, None);
                Ok(Recorded::SameKey(KeyHolder::Row(before)))
            }
            Err(error) => {
                let failure = RecordError::new(error, &container.row);
                self.discard(container, Some(failure.error().again()));
                Err(failure)
            }
        }
    }

    async fn insert(
        &self,
        container: &LiveContainer,
        keys_since_unix_ms: u64,
    ) -> Result<ContainerInsert, StoreError> {
        let (store, row) = (&self.environment.store, container.row.clone());
        if !row.is_warm {
            return store.insert_container(row, keys_since_unix_ms).await;
        }
        let running = ContainerRow {
            phase: Phase::Running,
            ..row
        };
        store.claim_warm(running, keys_since_unix_ms).await
    }

    fn count_spawn(&self, container: &LiveContainer, quota: &Quota) -> Result<(), OverQuota> {
        let now_unix_ms = self.environment.clock.unix_ms();
        let (rates, per_minute) = (&self.environment.spawn_rates, quota.spawns_per_minute);
        rates.take(&container.row.principal, per_minute, now_unix_ms)
    }

    /// Looks for an ended container with the same key. Returning that is allowed even if the quota
    /// is used up: no new container is created.
    async fn same_key(
        &self,
        wanted: &LiveContainer,
        keys_since_unix_ms: u64,
        excess: OverQuota,
    ) -> Result<Recorded, RecordError> {
        let refusal = RecordError::Refused(ServiceError::OverQuota(excess));
        if wanted.row.key.is_none() {
            return Err(refusal);
        }
        let store = &self.environment.store;
        let found = store.container_with_key_of(wanted.row.clone(), keys_since_unix_ms);
        match found.await {
            Ok(Some(row)) => Ok(Recorded::SameKey(KeyHolder::Row(Box::new(row)))),
            Ok(None) => Err(refusal),
            Err(error) => Err(RecordError::Refused(error.into())),
        }
    }

    /// Makes sure that the budget has room for a container, removing warm ones if needed. A
    /// container that was warm already holds its share.
    async fn reserve(&self, container: &LiveContainer) -> Result<(), ServiceError> {
        if container.row.is_warm {
            return Ok(());
        }
        let reserved = self
            .pool
            .make_room(container.id(), &container.row.spec.limits)
            .await;
        reserved.map_err(ServiceError::Refused)
    }

    fn discard(&self, container: &LiveContainer, failure: Option<ServiceError>) {
        if !container.row.is_warm {
            self.environment.budget.release(container.id());
        }
        self.registry.remove(container);
        container.discard(failure);
    }

    /// The container that holds the key, once it is created.
    async fn find_key_holder(&self, before: KeyHolder) -> Result<Spawned, ServiceError> {
        let container = match before {
            KeyHolder::Live(container) => container,
            KeyHolder::Row(row) => match self.registry.get(&row.id) {
                Some(container) => container,
                None => return Ok(Spawned::Ended(row)),
            },
        };
        container.until_created().await?;
        Ok(Spawned::Existing(container))
    }
}

/// Keeps a claim that led to a row; otherwise gives the container back or discards it.
fn settle_claim(claim: Option<Claim>, recorded: &Result<Recorded, RecordError>) -> Option<Claim> {
    let claim = claim?;
    match recorded {
        Ok(Recorded::New) => return Some(claim),
        Ok(Recorded::SameKey(_)) | Err(RecordError::Refused(_)) => claim.give_back(),
        Err(RecordError::Failed(_)) => claim.discard(),
    }
    None
}

fn ttl(request: &Spawn) -> Result<Option<Duration>, ServiceError> {
    let invalid = |reason: String| Err(ServiceError::Invalid { reason });
    match request.ttl_s {
        None => Ok(None),
        Some(_) if request.is_persistent => {
            invalid("a persistent container has no ttl_s: it lives until it is killed".to_owned())
        }
        Some(ttl_s) if !(1..=TTL_S_MAX).contains(&ttl_s) => {
            invalid(format!("ttl_s must be from 1 to {TTL_S_MAX}"))
        }
        Some(ttl_s) => Ok(Some(Duration::from_secs(ttl_s))),
    }
}

fn still_ending() -> ServiceError {
    ServiceError::Unavailable {
        reason: "the container that had this key failed and is still being removed".to_owned(),
        source: None,
    }
}

impl RecordError {
    fn new(error: StoreError, row: &ContainerRow) -> Self {
        match (error, &row.alias) {
            (StoreError::AliasTaken, Some(alias)) => Self::Refused(ServiceError::AlreadyExists {
                what: "alias",
                name: alias.to_string(),
            }),
            (error @ (StoreError::AliasTaken | StoreError::Full), _) => Self::Refused(error.into()),
            (error @ (StoreError::Unavailable | StoreError::Failed { .. }), _) => {
                Self::Failed(error.into())
            }
        }
    }

    fn error(&self) -> &ServiceError {
        match self {
            Self::Refused(error) | Self::Failed(error) => error,
        }
    }
}
