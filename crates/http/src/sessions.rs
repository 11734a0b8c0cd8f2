//! Sessions of Streamable HTTP (protocol versions before 2026), limited in number and age.
//!
//! `rmcp` keeps any number of sessions, and ends a session after minutes of silence even if its
//! client is connected. Here a session lives while it has an open stream, and for a while after. If
//! there are too many, a session of the principal that has most is closed, one without a stream
//! before one with, as the protocol allows: its client gets 404 and starts a new one.

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::{Stream, StreamExt};
use hotcell_domain::Principal;
use hotcell_mcp::transport::{InFlight, ReplyLease, SendReply, answered, not_kept};
use rmcp::RoleServer;
use rmcp::model::{
    ClientJsonRpcMessage, CustomResult, JsonRpcMessage, RequestId, ServerJsonRpcMessage,
    ServerResult,
};
use rmcp::transport::streamable_http_server::session::local::{
    LocalSessionManager, LocalSessionManagerError, LocalSessionWorker,
};
use rmcp::transport::streamable_http_server::session::{
    ServerSseMessage, SessionId, SessionManager,
};
use rmcp::transport::{Transport, WorkerTransport};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::limits::{HttpLimits, SENT_KEPT_MAX};
use crate::shares::Shares;

tokio::task_local! {
    /// The request that is being served. `rmcp` tells a session manager neither the caller nor lets
    /// it distinguish errors, so both are passed this way.
    static REQUEST: RequestScope;
}

struct RequestScope {
    principal: Principal,
    /// Set when the request was refused a session.
    was_refused: Cell<bool>,
}

/// Why there is no session.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SessionsError {
    #[error("all sessions are in use")]
    Full,
    #[error(transparent)]
    Local(#[from] LocalSessionManagerError),
}

/// All sessions.
pub(crate) struct Sessions {
    inner: LocalSessionManager,
    table: Arc<Mutex<SessionTable>>,
    requests: Arc<Semaphore>,
    count_max: usize,
    idle_timeout: Duration,
}

#[derive(Default)]
struct SessionTable {
    known: HashMap<SessionId, SessionUse>,
    /// Slots of sessions that are being created.
    reserved: usize,
    /// No more sessions are created.
    is_closed: bool,
}

struct SessionUse {
    /// The owner. For others the session does not exist.
    principal: Principal,
    streams: usize,
    idle_since: Instant,
}

/// An open stream of a session.
struct OpenStream {
    table: Arc<Mutex<SessionTable>>,
    id: SessionId,
}

/// A slot reserved for a session that is being created.
struct SessionReservation<'a>(&'a Mutex<SessionTable>);

impl Sessions {
    pub(crate) fn new(limits: &HttpLimits) -> Self {
        let mut inner = LocalSessionManager::default();
        inner.session_config.keep_alive = None;
        inner.session_config.completed_cache_ttl = SENT_KEPT_MAX;
        Self {
            inner,
            table: Arc::default(),
            requests: Arc::new(Semaphore::new(limits.session_requests_max)),
            count_max: limits.sessions_max,
            idle_timeout: limits.session_idle_timeout,
        }
    }

    pub(crate) fn count(&self) -> usize {
        lock(&self.table).known.len()
    }

    /// Runs `work` for a principal, which only sees its own sessions; also returns whether it was
    /// refused one.
    pub(crate) async fn serve<T>(principal: Principal, work: impl Future<Output = T>) -> (T, bool) {
        let watched = async move {
            let done = work.await;
            (done, REQUEST.with(|request| request.was_refused.get()))
        };
        let scope = RequestScope {
            principal,
            was_refused: Cell::new(false),
        };
        REQUEST.scope(scope, watched).await
    }

    /// Whether the current request may use a session. Outside of a request, the server itself is
    /// ending sessions.
    fn is_own(&self, id: &SessionId) -> bool {
        let is_own = |request: &RequestScope| {
            let table = lock(&self.table);
            let known = table.known.get(id);
            known.is_none_or(|known| known.principal == request.principal)
        };
        REQUEST.try_with(is_own).unwrap_or(true)
    }

    /// Closes sessions that have been idle for too long.
    pub(crate) async fn reap(&self) {
        let idle =
            |used: &SessionUse| used.streams == 0 && used.idle_since.elapsed() > self.idle_timeout;
        let old: Vec<_> = {
            let table = lock(&self.table);
            let old = table.known.iter().filter(|(_, used)| idle(used));
            old.map(|(id, _)| Arc::clone(id)).collect()
        };
        for id in old {
            let _ = self.close_session(&id).await;
        }
    }

    /// Closes all sessions and creates no more.
    pub(crate) async fn close(&self) {
        let all: Vec<_> = {
            let mut table = lock(&self.table);
            table.is_closed = true;
            table.known.keys().map(Arc::clone).collect()
        };
        for id in all {
            let _ = self.close_session(&id).await;
        }
    }

    /// How often to look for idle sessions.
    pub(crate) fn reap_interval(&self) -> Duration {
        (self.idle_timeout / 4).max(Duration::from_millis(10))
    }

    /// Makes room for one more session.
    async fn reserve(&self) -> Result<SessionReservation<'_>, SessionsError> {
        let evicted = lock(&self.table).reserve(self.count_max, &current_principal());
        let Ok(evicted) = evicted else {
            let _ = REQUEST.try_with(|request| request.was_refused.set(true));
            return Err(SessionsError::Full);
        };
        let reserved = SessionReservation(&self.table);
        if let Some(id) = evicted {
            let _ = self.inner.close_session(&id).await;
        }
        Ok(reserved)
    }

    /// Records that a session is used; it has one more stream until the result is dropped.
    fn open(&self, id: &SessionId) -> OpenStream {
        if let Some(used) = lock(&self.table).known.get_mut(id) {
            used.streams += 1;
        }
        OpenStream {
            table: Arc::clone(&self.table),
            id: Arc::clone(id),
        }
    }
}

impl SessionTable {
    /// Takes a slot; returns the session that was evicted for it.
    fn reserve(
        &mut self,
        count_max: usize,
        asker: &Principal,
    ) -> Result<Option<SessionId>, SessionsError> {
        if self.is_closed {
            return Err(SessionsError::Full);
        }
        let is_full = self.known.len() + self.reserved >= count_max;
        let evicted = is_full
            .then(|| self.evict(count_max, asker).ok_or(SessionsError::Full))
            .transpose()?;
        self.reserved += 1;
        Ok(evicted)
    }

    /// Removes a session of the principal that has most: one without a stream before one with, the
    /// oldest first. A caller that opens one session after another closes its own and not those of
    /// others: who has half of all takes none from who has fewer.
    fn evict(&mut self, count_max: usize, asker: &Principal) -> Option<SessionId> {
        let shares = Shares::of(self.known.values().map(|used| &used.principal));
        let own = shares.held(asker);
        let makes_room = |used: &SessionUse| {
            let owner = &used.principal;
            let is_idle = used.streams == 0;
            shares.yields(owner, asker)
                || is_idle && (own < count_max / 2 || shares.held(owner) >= own)
        };
        let candidates = self.known.iter().filter(|(_, used)| makes_room(used));
        let chosen = candidates.max_by_key(|(_, used)| {
            let held = shares.held(&used.principal);
            (held, used.streams == 0, Reverse(used.idle_since))
        });
        let id = chosen.map(|(id, _)| Arc::clone(id))?;
        self.known.remove(&id);
        Some(id)
    }
}

/// The principal of the current request.
fn current_principal() -> Principal {
    let principal = REQUEST.try_with(|request| request.principal.clone());
    principal.unwrap_or_else(|_| Principal::local())
}

fn lock(table: &Mutex<SessionTable>) -> MutexGuard<'_, SessionTable> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        if let Some(used) = lock(&self.table).known.get_mut(&self.id) {
            used.streams = used.streams.saturating_sub(1);
            used.idle_since = Instant::now();
        }
    }
}

impl Drop for SessionReservation<'_> {
    fn drop(&mut self) {
        lock(self.0).reserved -= 1;
    }
}

/// Wraps a stream so that its session counts as used. `reply` belongs to the request it answers,
/// and holds the answer if it is large.
fn while_in_use(
    stream: impl Stream<Item = ServerSseMessage> + Send + Sync + 'static,
    open: OpenStream,
    reply: Option<ReplyLease>,
) -> impl Stream<Item = ServerSseMessage> + Send + Sync + 'static {
    stream.map(move |mut event| {
        let _ = &open;
        if let Some(message) = event.message.take() {
            event.message = Some(if is_stand_in(&message) {
                let id = answered(&message);
                let kept = reply.as_ref().zip(id);
                let kept = kept.and_then(|(reply, id)| reply.kept(id));
                Arc::new(kept.unwrap_or_else(|| not_kept(id.cloned())))
            } else {
                message
            });
        }
        event
    })
}

/// A session keeps what it has sent for a while, in case its client's connection broke. Large
/// answers are sent another way, and this placeholder is kept instead.
const STAND_IN: &str = "hotcell/large";

fn stand_in(id: RequestId) -> ServerJsonRpcMessage {
    let result = CustomResult::new(serde_json::Value::from(STAND_IN));
    JsonRpcMessage::response(ServerResult::CustomResult(result), id)
}

fn is_stand_in(message: &ServerJsonRpcMessage) -> bool {
    match message {
        JsonRpcMessage::Response(response) => {
            matches!(&response.result, ServerResult::CustomResult(result) if result.0 == STAND_IN)
        }
        JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) | JsonRpcMessage::Error(_) => {
            false
        }
    }
}

/// The transport of one session.
pub(crate) struct SessionTransport(WorkerTransport<LocalSessionWorker>);

impl Transport<RoleServer> for SessionTransport {
    type Error = <WorkerTransport<LocalSessionWorker> as Transport<RoleServer>>::Error;

    fn send(
        &mut self,
        message: ServerJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.0.send(message)
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        self.0.receive().await
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.0.close().await
    }
}

impl SendReply for SessionTransport {
    fn answer(
        &mut self,
        message: ServerJsonRpcMessage,
        reply: Option<ReplyLease>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let large = reply.filter(ReplyLease::is_large);
        match (large, answered(&message).cloned()) {
            (Some(reply), Some(id)) => {
                reply.keep(id.clone(), message);
                self.send(stand_in(id))
            }
            _ => self.send(message),
        }
    }
}

impl SessionManager for Sessions {
    type Error = SessionsError;
    type Transport = InFlight<SessionTransport>;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), SessionsError> {
        let reserved = self.reserve().await?;
        let (id, transport) = self.inner.create_session().await?;
        let used = SessionUse {
            principal: current_principal(),
            streams: 0,
            idle_since: Instant::now(),
        };
        lock(&self.table).known.insert(Arc::clone(&id), used);
        drop(reserved);
        let transport = InFlight::new(SessionTransport(transport), Arc::clone(&self.requests));
        Ok((id, transport))
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, SessionsError> {
        let _open = self.open(id);
        Ok(self.inner.initialize_session(id, message).await?)
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, SessionsError> {
        Ok(self.is_own(id) && self.inner.has_session(id).await?)
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), SessionsError> {
        // A session that does not exist is closed already.
        if !self.is_own(id) {
            return Ok(());
        }
        lock(&self.table).known.remove(id);
        Ok(self.inner.close_session(id).await?)
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionsError> {
        let open = self.open(id);
        let reply = ReplyLease::of_http(&message);
        let stream = self.inner.create_stream(id, message).await?;
        Ok(while_in_use(stream, open, reply))
    }

    async fn accept_message(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<(), SessionsError> {
        let _open = self.open(id);
        Ok(self.inner.accept_message(id, message).await?)
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionsError> {
        let open = self.open(id);
        let stream = self.inner.create_standalone_stream(id).await?;
        Ok(while_in_use(stream, open, None))
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionsError> {
        let open = self.open(id);
        let stream = self.inner.resume(id, last_event_id).await?;
        Ok(while_in_use(stream, open, None))
    }
}

#[cfg(test)]
mod tests;
