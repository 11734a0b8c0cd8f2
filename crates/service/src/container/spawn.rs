//! Making a container.
//!
//! It is in memory first, then it has a row, then the engine makes it: so a second request
//! under the same key finds it at every moment, and a server that dies leaves either nothing
//! or a row.

use std::sync::Arc;
use std::time::Duration;

use hotcell_domain::{Admitted, Caller, ContainerId, ContainerSpec, Lifetime, Network, Phase};
use hotcell_engine::Progress;
use hotcell_store::{ContainerRow, Spawned, StoreError};

use super::list::{view, view_of_row};
use super::{ContainerView, Spawn};
use crate::cell::{Birth, Cell, Life};
use crate::environment::millis;
use crate::refusal::tell_refusal;
use crate::registry::NotAdded;
use crate::{Inner, Service, ServiceError};

/// The longest life that can be asked for.
const TTL_S_MAX: u64 = 10 * 365 * 24 * 60 * 60;

/// How often a request may find that the container of its key has just ended or failed.
const ROUNDS_MAX: usize = 4;

/// How long a request waits for the end of a container that had its key.
const END_TIMEOUT: Duration = Duration::from_secs(10);

impl Service {
    /// Makes a container, or answers the one that was made under the same key: as it is, if
    /// it was ended since; a new one, if it failed.
    ///
    /// Dropping the future does not undo it: a container that nobody waits for is made,
    /// or not, and is in the list if it was.
    pub async fn spawn(
        &self,
        caller: &Caller,
        request: Spawn,
    ) -> Result<ContainerView, ServiceError> {
        self.inner.accepting()?;
        let (inner, caller) = (Arc::clone(&self.inner), caller.clone());
        let work = async move { inner.spawn(&caller, request).await };
        let spawned = self.inner.environment.tasks.spawn(work).await;
        let spawned = spawned.ok().flatten();
        let spawned = spawned.unwrap_or_else(|| Err(ServiceError::stopping()));
        self.inner
            .environment
            .metrics
            .container_spawned(spawned.is_ok());
        spawned
    }
}

/// A container that was made, or found under the same key.
enum Found {
    New(Arc<Cell>),
    Cell(Arc<Cell>),
    Ended(Box<ContainerRow>),
}

impl Inner {
    async fn spawn(
        self: &Arc<Self>,
        caller: &Caller,
        request: Spawn,
    ) -> Result<ContainerView, ServiceError> {
        let admitted = self.admit(caller, &request)?;
        let progress = request.progress.clone();
        let mut row = self.row(caller, request, admitted.value())?;
        let mut keys_since = self.keys_since();
        for _ in 0..ROUNDS_MAX {
            match self.make(&row, &admitted, &progress, keys_since).await? {
                Found::New(cell) => return Ok(view(&cell, None, Vec::new())),
                Found::Cell(cell) if cell.phase().is_final() => {
                    let ended = tokio::time::timeout(END_TIMEOUT, cell.ended());
                    ended.await.map_err(|_| still_ending())?;
                }
                Found::Cell(cell) => return self.view_of(&cell).await,
                // What failed does not keep its key.
                Found::Ended(before) if before.phase == Phase::Failed => {
                    keys_since = before.created_unix_ms + 1;
                    row.created_unix_ms = row.created_unix_ms.max(keys_since);
                }
                Found::Ended(before) => return Ok(view_of_row(*before)),
            }
        }
        Err(still_ending())
    }

    /// Asks policy. Whether execs may be root is the operator's choice alone.
    fn admit(
        &self,
        caller: &Caller,
        request: &Spawn,
    ) -> Result<Admitted<ContainerSpec>, ServiceError> {
        let settings = &self.environment.settings;
        let image = request.image.clone();
        let spec = ContainerSpec {
            image: image.unwrap_or_else(|| settings.default_image.clone()),
            limits: request.limits.unwrap_or(settings.default_limits),
            network: request.network.unwrap_or(Network::None),
            lifetime: Lifetime::UntilDestroyed,
            env: request.env.clone(),
            allow_root: settings.policy.allow_root,
        };
        let image = spec.image.clone();
        settings.policy.admit(spec).map_err(|refusal| {
            tell_refusal(caller, &image, &refusal);
            ServiceError::Refused(refusal)
        })
    }

    fn row(
        &self,
        caller: &Caller,
        request: Spawn,
        spec: &ContainerSpec,
    ) -> Result<ContainerRow, ServiceError> {
        let ttl = ttl(&request)?;
        let now_unix_ms = self.environment.clock.unix_ms();
        Ok(ContainerRow {
            id: ContainerId::from_parts(now_unix_ms, self.environment.random.bytes()),
            principal: caller.principal.clone(),
            alias: request.alias,
            spec: spec.clone(),
            image_digest: None,
            engine: self.environment.engine.name().to_owned(),
            labels: request.labels,
            is_persistent: request.is_persistent,
            key: request.key,
            phase: Phase::Creating,
            created_unix_ms: now_unix_ms,
            last_used_unix_ms: now_unix_ms,
            expires_unix_ms: ttl.map(|ttl| now_unix_ms.saturating_add(millis(ttl))),
            ended_unix_ms: None,
        })
    }

    fn keys_since(&self) -> u64 {
        let now_unix_ms = self.environment.clock.unix_ms();
        now_unix_ms.saturating_sub(millis(self.environment.settings.key_lifetime))
    }

    /// Makes the container of a row, or finds the one that has its key, and waits until that
    /// is made.
    async fn make(
        self: &Arc<Self>,
        row: &ContainerRow,
        spec: &Admitted<ContainerSpec>,
        progress: &Progress,
        keys_since_unix_ms: u64,
    ) -> Result<Found, ServiceError> {
        let (cell, requests) = Cell::new(&self.environment, row.clone());
        let containers_max = self.environment.settings.containers_max;
        match self.registry.add(&cell, keys_since_unix_ms, containers_max) {
            Ok(()) => {}
            Err(NotAdded::Before(before)) => {
                before.made().await?;
                return Ok(Found::Cell(before));
            }
            Err(NotAdded::Full) => return Err(too_many(containers_max)),
        }
        let noted = self
            .environment
            .store
            .insert_container(row.clone(), keys_since_unix_ms);
        match noted.await {
            Ok(Spawned::New) => {}
            Ok(Spawned::Before(before)) => {
                self.abandon(&cell, None);
                return self.find_before(before).await;
            }
            Err(error) => {
                let failure = not_noted(error, row);
                self.abandon(&cell, Some(failure.again()));
                return Err(failure);
            }
        }
        self.registry.name(&cell);
        let birth = Birth::Made(Box::new(spec.clone()), progress.clone());
        Life::start(self, &cell, requests, birth);
        cell.made().await?;
        Ok(Found::New(cell))
    }

    fn abandon(&self, cell: &Cell, failure: Option<ServiceError>) {
        self.registry.remove(cell);
        cell.abandon(failure);
    }

    async fn find_before(&self, before: Box<ContainerRow>) -> Result<Found, ServiceError> {
        match self.registry.get(&before.id) {
            Some(cell) => {
                cell.made().await?;
                Ok(Found::Cell(cell))
            }
            None => Ok(Found::Ended(before)),
        }
    }
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

fn too_many(containers_max: usize) -> ServiceError {
    ServiceError::Exhausted {
        reason: format!("you have {containers_max} containers, which is as many as you may have"),
    }
}

fn not_noted(error: StoreError, row: &ContainerRow) -> ServiceError {
    match (error, &row.alias) {
        (StoreError::AliasTaken, Some(alias)) => ServiceError::AlreadyExists {
            what: "alias",
            name: alias.to_string(),
        },
        (error, _) => error.into(),
    }
}
