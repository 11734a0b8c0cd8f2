//! One server and its life.
//!
//! ```text
//!          first use              handshake and listing
//!   idle ───────────▶ starting ───────────────────────▶ running ──▶ idle (unused for a while)
//!                        │                                 │
//!                        └──────────▶ back-off ◀───────────┘ crash
//! ```
//!
//! A start belongs to nobody: a caller that leaves does not end it, and whoever comes meanwhile waits
//! for the same one.

mod backoff;
mod minder;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::value::RawValue;

use self::backoff::Backoff;
use crate::bounds::BACKOFF_WAITED_MAX;
use crate::catalogue::Catalogue;
use crate::connection::{Connection, Request, RequestError};
use crate::definition::Definitions;
use crate::error::UpstreamError;
use crate::handshake::{self, Hello, Protocol};
use crate::health::{Event, Health, Observer};
use crate::link::Link;
use crate::listing;
use crate::name::ServerName;
use crate::rpc::{Failure, Peer};
use crate::settings::{Entry, process_environment};

/// A server.
pub(crate) struct Server {
    pub(crate) entry: Entry,
    pub(crate) alias: Arc<str>,
    catalogue: Arc<Catalogue>,
    observer: Arc<dyn Observer>,
    /// Held while it starts.
    start: tokio::sync::Mutex<()>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    running: Option<Running>,
    is_starting: bool,
    is_stopped: bool,
    backoff: Backoff,
    last_used: Option<Instant>,
}

#[derive(Clone)]
struct Running {
    connection: Arc<Connection>,
    hello: Arc<Hello>,
    since: Instant,
}

impl Server {
    pub(crate) fn new(
        entry: Entry,
        alias: Arc<str>,
        catalogue: Arc<Catalogue>,
        observer: Arc<dyn Observer>,
    ) -> Arc<Self> {
        let (start, state) = (tokio::sync::Mutex::default(), Mutex::default());
        Arc::new(Self {
            entry,
            alias,
            catalogue,
            observer,
            start,
            state,
        })
    }

    pub(crate) fn name(&self) -> &ServerName {
        &self.entry.name
    }

    pub(crate) fn health(&self) -> Health {
        let state = self.lock();
        if state.is_starting {
            return Health::Starting;
        }
        if state
            .running
            .as_ref()
            .is_some_and(|running| !running.connection.peer.is_closed())
        {
            return Health::Running;
        }
        state.backoff.health().unwrap_or(Health::Idle)
    }

    /// The revision of MCP that is spoken, while it runs.
    pub(crate) fn protocol(&self) -> Option<&'static str> {
        let state = self.lock();
        let running = state.running.as_ref()?;
        running.connection.protocol.get().map(Protocol::version)
    }

    /// Asks the server, which is started if it does not run.
    pub(crate) async fn request(
        self: &Arc<Self>,
        request: Request<'_>,
    ) -> Result<Box<RawValue>, UpstreamError> {
        let running = self.running().await?;
        let answer = self.ask(&running, request.clone()).await;
        let Err(RequestError::Failed(Failure::SessionLost)) = answer else {
            return answer.map_err(|error| running.connection.described(error));
        };
        // A session that the server has forgotten costs a second attempt: it did not work on the request.
        self.forget(&running);
        let running = self.running().await?;
        let answer = self.ask(&running, request).await;
        answer.map_err(|error| running.connection.described(error))
    }

    async fn ask(
        &self,
        running: &Running,
        request: Request<'_>,
    ) -> Result<Box<RawValue>, RequestError> {
        let answer = running.connection.request(request).await;
        if let Err(RequestError::Failed(Failure::Unreachable)) = &answer {
            // The next call begins anew, after a pause.
            running.connection.peer.close("it cannot be reached");
        }
        self.lock().last_used = Some(Instant::now());
        answer
    }

    /// Lets go of a connection that is of no use any more; that is no crash.
    fn forget(&self, running: &Running) {
        let mut state = self.lock();
        if state
            .running
            .as_ref()
            .is_some_and(|current| Arc::ptr_eq(&current.connection, &running.connection))
        {
            state.running = None;
        }
        drop(state);
        running.connection.peer.close("its session ended");
    }

    /// What is known of it; it is started and listed if that is nothing.
    pub(crate) async fn definitions(self: &Arc<Self>) -> Result<Arc<Definitions>, UpstreamError> {
        if let Some(known) = self.catalogue.known(self.name()) {
            return Ok(known);
        }
        self.running().await?;
        let none = || self.failed_to_start("it was not listed".to_owned());
        self.catalogue.known(self.name()).ok_or_else(none)
    }

    /// Lists it anew.
    pub(crate) async fn refresh(self: &Arc<Self>) -> Result<Arc<Definitions>, UpstreamError> {
        let running = self.running().await?;
        self.list(&running.connection, &running.hello).await
    }

    pub(crate) async fn connection(self: &Arc<Self>) -> Result<Arc<Connection>, UpstreamError> {
        Ok(self.running().await?.connection)
    }

    async fn running(self: &Arc<Self>) -> Result<Running, UpstreamError> {
        if let Some(running) = self.if_running() {
            return Ok(running);
        }
        // A task of its own, so that a caller that leaves does not take the start with it.
        let server = Arc::clone(self);
        let started = tokio::spawn(async move { server.start().await }).await;
        started.unwrap_or_else(|_| Err(self.failed_to_start("we are stopping".to_owned())))
    }

    fn if_running(&self) -> Option<Running> {
        let mut state = self.lock();
        state.last_used = Some(Instant::now());
        state
            .running
            .clone()
            .filter(|running| !running.connection.peer.is_closed())
    }

    async fn start(self: &Arc<Self>) -> Result<Running, UpstreamError> {
        let _only = self.start.lock().await;
        if let Some(running) = self.if_running() {
            return Ok(running);
        }
        self.wait_for_backoff().await?;
        {
            let mut state = self.lock();
            if state.is_stopped {
                return Err(self.failed_to_start("it was removed, or we are stopping".to_owned()));
            }
            state.is_starting = true;
        }
        let attempt = self.attempt().await;
        let mut state = self.lock();
        state.is_starting = false;
        match attempt {
            Ok(running) => {
                state.running = Some(running.clone());
                drop(state);
                self.tell(&Event::Started);
                minder::mind(self, &running);
                Ok(running)
            }
            Err(reason) => {
                state.backoff.failed(&reason);
                drop(state);
                tracing::warn!(upstream = %self.name(), reason, "could not start an MCP server");
                self.tell(&Event::Failed {
                    reason: reason.clone(),
                });
                Err(self.failed_to_start(reason))
            }
        }
    }

    async fn wait_for_backoff(&self) -> Result<(), UpstreamError> {
        let remaining = self.lock().backoff.remaining();
        if remaining > BACKOFF_WAITED_MAX {
            let state = self.lock();
            return Err(state.backoff.error(self.name().clone()));
        }
        tokio::time::sleep(remaining).await;
        Ok(())
    }

    /// Starts, greets and lists it, in the time that it has.
    async fn attempt(&self) -> Result<Running, String> {
        let timeout = self.entry.timeouts.start;
        // The whole has a deadline; a single answer is not to be the one that is told.
        let patience = timeout * 2;
        let peer = Peer::new(self.name().clone());
        let (link, redactor) = Link::open(&self.entry.launch, &process_environment, &peer)?;
        let connection = Connection::new(link, peer, redactor);
        let greeted = async {
            let hello = handshake::greet(&connection, self.entry.launch.kind(), patience).await?;
            self.list(&connection, &hello).await?;
            Ok::<_, UpstreamError>(hello)
        };
        let hello = match tokio::time::timeout(timeout, greeted).await {
            Ok(hello) => hello.map_err(|error| error.reason()),
            Err(_) => Err(format!(
                "it was not ready within {} seconds",
                timeout.as_secs_f32()
            )),
        };
        match hello {
            Ok(hello) => Ok(Running {
                connection,
                hello: Arc::new(hello),
                since: Instant::now(),
            }),
            Err(reason) => {
                // Nobody waits for a server that does not want to end.
                tokio::spawn(async move { connection.link.stop().await });
                Err(reason)
            }
        }
    }

    async fn list(
        &self,
        connection: &Arc<Connection>,
        hello: &Hello,
    ) -> Result<Arc<Definitions>, UpstreamError> {
        let definitions = listing::tools(connection, hello, self.entry.timeouts.start).await?;
        if definitions.skipped_count > 0 {
            let (skipped, examples) = (definitions.skipped_count, definitions.skipped.join("; "));
            tracing::warn!(upstream = %self.name(), skipped, examples, "some tools of an MCP server are unusable");
        }
        let (definitions, has_changed) = self.catalogue.replace(self.name(), definitions).await;
        if has_changed {
            self.tell(&Event::DefinitionsChanged);
        }
        Ok(definitions)
    }

    /// Ends it; it is started no more.
    pub(crate) async fn stop(&self) {
        let running = {
            let mut state = self.lock();
            state.is_stopped = true;
            state.running.take()
        };
        if let Some(running) = running {
            running.connection.link.stop().await;
            self.tell(&Event::Stopped);
        }
    }

    pub(crate) fn tell(&self, event: &Event) {
        self.observer.happened(Some(self.name()), event);
    }

    fn failed_to_start(&self, reason: String) -> UpstreamError {
        UpstreamError::Start {
            server: self.name().clone(),
            reason,
        }
    }

    fn idle_for(&self) -> Duration {
        self.lock()
            .last_used
            .map_or(Duration::ZERO, |used| used.elapsed())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
