//! Making a container, for somebody or for the pool.

use std::time::Duration;

use hotcell_domain::{Admitted, ContainerId, ContainerSpec};
use hotcell_engine::{Container, EngineError, Progress};
use hotcell_store::StoreError;

use crate::ServiceError;
use crate::connection::Connection;
use crate::environment::Environment;

/// How long an engine may take to pull an image.
const FETCH_TIMEOUT: Duration = Duration::from_mins(30);

/// How long an engine may take to make a container of an image that is there.
const CREATE_TIMEOUT: Duration = Duration::from_mins(10);

/// How long an engine may take to start a container again.
const RESTART_TIMEOUT: Duration = Duration::from_mins(5);

/// Attempts to reach the agent of a container that was just started.
const CONNECTS_MAX: u32 = 3;

/// Why a container was not made. Not yet an answer for a caller: there may be none.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotMade {
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Other(#[from] ServiceError),
    /// Somebody needed the room of a warm container.
    #[error("the container was given up for another")]
    GivenUp,
}

/// Makes a container and connects to it. On `Err` something may be left.
pub(crate) async fn make(
    environment: &Environment,
    id: &ContainerId,
    spec: &Admitted<ContainerSpec>,
    progress: &Progress,
    connection: &Connection,
) -> Result<Container, NotMade> {
    fetch_telling(environment, spec, progress).await?;
    let create = environment.engine.create(id, spec);
    let made = tokio::time::timeout(CREATE_TIMEOUT, create).await;
    let made = made.map_err(|_| late("make the container"))??;
    reach(connection).await?;
    Ok(made)
}

/// Makes sure that the image of a container to be is here, and tells nobody how far that is.
pub(crate) async fn fetch(
    environment: &Environment,
    spec: &Admitted<ContainerSpec>,
) -> Result<(), NotMade> {
    fetch_telling(environment, spec, &Progress::default()).await
}

async fn fetch_telling(
    environment: &Environment,
    spec: &Admitted<ContainerSpec>,
    progress: &Progress,
) -> Result<(), NotMade> {
    let fetch = environment.engine.fetch_image(spec, progress);
    let fetched = tokio::time::timeout(FETCH_TIMEOUT, fetch).await;
    Ok(fetched.map_err(|_| late("pull the image"))??)
}

/// Starts the agent of a container again and connects to it.
pub(super) async fn restart(
    environment: &Environment,
    id: &ContainerId,
    connection: &Connection,
) -> Result<Container, NotMade> {
    let restart = environment.engine.restart(id);
    let started = tokio::time::timeout(RESTART_TIMEOUT, restart).await;
    let started = started.map_err(|_| late("start the container again"))??;
    reach(connection).await?;
    Ok(started)
}

async fn reach(connection: &Connection) -> Result<(), ServiceError> {
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

impl From<NotMade> for ServiceError {
    fn from(failure: NotMade) -> Self {
        match failure {
            NotMade::Engine(error) => error.into(),
            NotMade::Store(error) => error.into(),
            NotMade::Other(error) => error,
            NotMade::GivenUp => Self::Unavailable {
                reason: failure.to_string(),
                source: None,
            },
        }
    }
}
