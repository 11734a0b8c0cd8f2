//! The connection to a container's agent: made on first use, remade when it is lost.
//!
//! There is one attempt at a time, and all waiting callers share its outcome, so that a hanging
//! container costs each caller one attempt, not one per earlier caller. An agent that violates the
//! protocol, or is not the same agent as before, is distrusted: it gets no further connection, and
//! the container's supervisor ends it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hotcell_agent_client::{Agent, AgentError};
use hotcell_domain::ContainerId;
use hotcell_engine::{Engine, EngineError};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::ServiceError;
use crate::metrics::AgentMetrics;

/// How long one attempt may take. An agent answers in milliseconds, unless its host is very busy.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Pause between a failed attempt and the next.
const RECONNECT_PAUSE: Duration = Duration::from_millis(50);

/// The one connection to a container's agent. Users report errors through [`Connection::report`].
pub(crate) struct Connection {
    engine: Arc<dyn Engine>,
    id: ContainerId,
    metrics: AgentMetrics,
    state: Mutex<State>,
    /// Held during an attempt.
    connecting: tokio::sync::Mutex<()>,
    distrusted: watch::Sender<Option<&'static str>>,
}

/// A connection, numbered so that a late error is not blamed on its successor.
#[derive(Debug, Clone)]
pub(crate) struct Connected {
    pub(crate) agent: Agent,
    number: u64,
}

#[derive(Default)]
struct State {
    current: Option<Connected>,
    /// Finished attempts; also numbers connections.
    attempts: u64,
    /// Why the last attempt failed.
    failure: Option<ServiceError>,
    /// No attempt begins before this time.
    not_before: Option<Instant>,
    /// The agent of the first connection.
    boot_id: Option<[u8; 16]>,
}

impl Connection {
    /// Nothing is opened yet.
    pub(crate) fn new(engine: Arc<dyn Engine>, id: ContainerId, metrics: AgentMetrics) -> Self {
        Self {
            engine,
            id,
            metrics,
            state: Mutex::default(),
            connecting: tokio::sync::Mutex::default(),
            distrusted: watch::Sender::new(None),
        }
    }

    /// The current connection, or a new one. Takes at most the time of two attempts.
    pub(crate) async fn get(&self) -> Result<Connected, ServiceError> {
        let (current, attempts) = self.current()?;
        if let Some(connected) = current {
            return Ok(connected);
        }
        let _alone = self.connecting.lock().await;
        let (current, attempts_now) = self.current()?;
        if let Some(connected) = current {
            return Ok(connected);
        }
        if attempts_now != attempts {
            // Whoever waited for another caller's attempt gets its outcome.
            let state = self.state();
            return Err(state
                .failure
                .as_ref()
                .map_or_else(|| silent(None), ServiceError::again));
        }
        let not_before = self.state().not_before;
        if let Some(not_before) = not_before {
            tokio::time::sleep_until(not_before).await;
        }
        let began = Instant::now();
        let attempt = tokio::time::timeout(CONNECT_TIMEOUT, self.connect()).await;
        let is_ok = matches!(attempt, Ok(Ok(_)));
        self.metrics.connected(is_ok, began.elapsed());
        self.note(attempt.unwrap_or_else(|_| Err(silent(None))))
    }

    /// Reports the error of a call. A lost connection is remade at the next use; an agent that
    /// violated the protocol is distrusted.
    pub(crate) fn report(&self, connected: &Connected, error: &AgentError) {
        match error {
            AgentError::Lost => {
                let mut state = self.state();
                let current = state.current.as_ref();
                if current.is_some_and(|current| current.number == connected.number) {
                    state.current = None;
                    self.metrics.lost();
                }
            }
            AgentError::Protocol(what) => self.distrust(what),
            AgentError::Refused { .. } | AgentError::Version { .. } | AgentError::TooOld { .. } => {
            }
        }
    }

    /// Whether this is still the connection that [`Connection::get`] would return.
    pub(crate) fn is_current(&self, connected: &Connected) -> bool {
        let state = self.state();
        let current = state.current.as_ref();
        current.is_some_and(|current| current.number == connected.number)
    }

    /// Waits until the container is distrusted; returns the reason.
    pub(crate) async fn distrusted(&self) -> &'static str {
        let mut distrusted = self.distrusted.subscribe();
        let reason = distrusted.wait_for(Option::is_some).await;
        // We own the sender, so it exists.
        reason.ok().and_then(|reason| *reason).unwrap_or_default()
    }

    fn distrust(&self, reason: &'static str) {
        tracing::warn!(container.id = %self.id, reason, "a container is not to be trusted");
        self.distrusted.send_replace(Some(reason));
        self.state().current = None;
    }

    fn current(&self) -> Result<(Option<Connected>, u64), ServiceError> {
        if self.distrusted.borrow().is_some() {
            return Err(ServiceError::Unavailable {
                reason: "the container broke its protocol and is being removed".to_owned(),
                source: None,
            });
        }
        let state = self.state();
        Ok((state.current.clone(), state.attempts))
    }

    async fn connect(&self) -> Result<Agent, ServiceError> {
        let stream = self.engine.open(&self.id).await.map_err(not_opened)?;
        let observer = self.metrics.observer();
        let connected = Agent::connect_observed(stream, Some(observer)).await;
        connected.map_err(|error| {
            if let AgentError::Protocol(what) = error {
                self.distrust(what);
            }
            unreachable(error)
        })
    }

    fn note(&self, attempt: Result<Agent, ServiceError>) -> Result<Connected, ServiceError> {
        let mut state = self.state();
        state.attempts += 1;
        state.not_before = Some(Instant::now() + RECONNECT_PAUSE);
        state.failure = attempt.as_ref().err().map(ServiceError::again);
        let agent = attempt?;
        let boot_id = agent.hello().boot_id;
        if *state.boot_id.get_or_insert(boot_id) != boot_id {
            drop(state);
            self.distrust("another agent answers than before");
            return Err(silent(None));
        }
        let connected = Connected {
            agent,
            number: state.attempts,
        };
        state.current = Some(connected.clone());
        Ok(connected)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn not_opened(error: EngineError) -> ServiceError {
    match error {
        EngineError::NotFound { id } => ServiceError::NotFound {
            what: "container",
            name: id.to_string(),
        },
        error @ EngineError::Unavailable { .. } => error.into(),
        error @ (EngineError::NoImage { .. }
        | EngineError::Image { .. }
        | EngineError::Unsupported { .. }
        | EngineError::Unlimited { .. }
        | EngineError::Exhausted { .. }
        | EngineError::Abandoned
        | EngineError::Engine { .. }) => silent(Some(Box::new(error))),
    }
}

fn unreachable(error: AgentError) -> ServiceError {
    match error {
        AgentError::Version { .. } | AgentError::TooOld { .. } => {
            ServiceError::agent_too_old(&error)
        }
        AgentError::Refused { .. } | AgentError::Lost | AgentError::Protocol(_) => {
            silent(Some(Box::new(error)))
        }
    }
}

fn silent(source: Option<Box<dyn std::error::Error + Send + Sync>>) -> ServiceError {
    ServiceError::Unavailable {
        reason: "the container does not answer".to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests;
