//! Creates a container, for a caller or for the pool.

use std::time::Duration;

use hotcell_domain::ContainerId;
use hotcell_engine::{Abandonment, Container, EngineError, Pull, ReadyImage};
use hotcell_store::StoreError;

use super::Creation;
use crate::ServiceError;
use crate::connection::Connection;
use crate::environment::Environment;

/// How long an engine may take to pull an image.
const FETCH_TIMEOUT: Duration = Duration::from_mins(30);

/// How long an engine may take to create a container from a ready image.
const CREATE_TIMEOUT: Duration = Duration::from_mins(10);

/// How long an engine may take to restart a container.
const RESTART_TIMEOUT: Duration = Duration::from_mins(5);

/// Attempts to reach the agent of a container that was just started.
const CONNECTS_MAX: u32 = 3;

/// Why a container was not created. It is not a `ServiceError` yet: the pool has no caller to
/// answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CreateError {
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Other(#[from] ServiceError),
    /// The warm container was given up to make room for a caller's.
    #[error("the container was given up for another")]
    GivenUp,
}

/// Creates a container and connects to its agent. If the request is abandoned, it stops at the next
/// step. On `Err` the engine may have leftovers to destroy.
pub(crate) async fn create(
    environment: &Environment,
    id: &ContainerId,
    creation: &Creation,
    connection: &Connection,
) -> Result<Container, CreateError> {
    let image = fetch_image(environment, creation).await?;
    let abandonment = &creation.abandonment;
    let creating = environment
        .engine
        .create(id, &creation.spec, image, abandonment);
    let created = tokio::time::timeout(CREATE_TIMEOUT, creating).await;
    let created = created.map_err(|_| late("make the container"))??;
    tokio::select! {
        biased;
        connected = connect(connection) => connected?,
        () = abandonment.abandoned() => return Err(EngineError::Abandoned.into()),
    }
    Ok(created)
}

async fn fetch_image(
    environment: &Environment,
    creation: &Creation,
) -> Result<ReadyImage, CreateError> {
    let pull = Pull::IfMissing(&creation.progress);
    let (spec, abandonment) = (&creation.spec, &creation.abandonment);
    let fetch = environment.engine.fetch_image(spec, pull, abandonment);
    let fetched = tokio::time::timeout(FETCH_TIMEOUT, fetch).await;
    Ok(fetched.map_err(|_| late("pull the image"))??)
}

/// Restarts the agent of a container and connects to it.
pub(super) async fn restart(
    environment: &Environment,
    id: &ContainerId,
    connection: &Connection,
    abandonment: &Abandonment,
) -> Result<Container, CreateError> {
    let restart = environment.engine.restart(id, abandonment);
    let started = tokio::time::timeout(RESTART_TIMEOUT, restart).await;
    let started = started.map_err(|_| late("start the container again"))??;
    connect(connection).await?;
    Ok(started)
}

async fn connect(connection: &Connection) -> Result<(), ServiceError> {
    for _ in 1..CONNECTS_MAX {
        if connection.get().await.is_ok() {
            return Ok(());
        }
    }
    connection.get().await.map(drop)
}

fn late(what: &str) -> ServiceError {
    ServiceError::Deadline {
        reason: format!("the engine did not {what} in time"),
    }
}

impl From<CreateError> for ServiceError {
    fn from(failure: CreateError) -> Self {
        match failure {
            CreateError::Engine(error) => error.into(),
            CreateError::Store(error) => error.into(),
            CreateError::Other(error) => error,
            CreateError::GivenUp => Self::Unavailable {
                reason: failure.to_string(),
                source: None,
            },
        }
    }
}
