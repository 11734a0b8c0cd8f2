//! The HTTP+SSE transport of 2024, for clients that support no other.
//!
//! A GET opens a stream whose first event names the URL for messages sent by POST; answers arrive on the
//! stream. A session is its stream: it ends when the stream closes.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use hotcell_domain::{Caller, Principal};
use hotcell_mcp::transport::{InFlight, ReplyLease, SendReply};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderName, StatusCode};
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::{RoleServer, ServerHandler};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Instant, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::body::BodyReader;
use crate::error::HttpError;
use crate::limits::{HttpLimits, SSE_QUEUE_MAX};
use crate::router::HttpRequestPermit;
use crate::shares::Shares;

/// The path of messages sent by POST.
pub(crate) const MESSAGES_PATH: &str = "/messages";

/// All sessions and their handler. Clones share them.
pub(crate) struct Sse<H> {
    handler: H,
    table: Arc<Mutex<SseSessions>>,
    requests: Arc<Semaphore>,
    bodies: BodyReader,
    sessions_max: usize,
    keep_alive_interval: Duration,
    send_timeout: Duration,
    stop: CancellationToken,
}

type SseSessions = HashMap<String, SseSession>;

#[derive(Clone)]
struct SseSession {
    principal: Principal,
    since: Instant,
    /// Cancelled, it ends the session.
    serving: CancellationToken,
    to_server: mpsc::Sender<ClientJsonRpcMessage>,
}

/// The server's side of a session.
struct SseTransport {
    from_client: mpsc::Receiver<ClientJsonRpcMessage>,
    to_client: mpsc::Sender<SseOutgoing>,
}

/// A message to the client, with its part of the reply budget.
type SseOutgoing = (ServerJsonRpcMessage, Option<ReplyLease>);

#[derive(Debug, thiserror::Error)]
#[error("the client is gone")]
struct ClientGone;

/// The client's side: dropping it ends the session.
struct ClientStream {
    first: Option<Bytes>,
    from_server: mpsc::Receiver<SseOutgoing>,
    keep_alive_interval: Duration,
    _listed: SessionEntry,
    _serving: DropGuard,
}

/// A session's entry in the table.
struct SessionEntry {
    table: Arc<Mutex<SseSessions>>,
    id: String,
}

impl<H: Clone> Clone for Sse<H> {
    fn clone(&self) -> Self {
        Self {
            handler: self.handler.clone(),
            table: Arc::clone(&self.table),
            requests: Arc::clone(&self.requests),
            bodies: self.bodies.clone(),
            stop: self.stop.clone(),
            ..*self
        }
    }
}

impl<H: ServerHandler + Clone> Sse<H> {
    pub(crate) fn new(
        handler: H,
        limits: &HttpLimits,
        bodies: BodyReader,
        stop: CancellationToken,
    ) -> Self {
        Self {
            handler,
            table: Arc::default(),
            requests: Arc::new(Semaphore::new(limits.session_requests_max)),
            bodies,
            sessions_max: limits.sse_sessions_max,
            keep_alive_interval: limits.keep_alive_interval,
            send_timeout: limits.body_timeout,
            stop,
        }
    }

    fn begin(&self, principal: Principal) -> Result<ClientStream, HttpError> {
        let (to_server, from_client) = mpsc::channel(SSE_QUEUE_MAX);
        let (to_client, from_server) = mpsc::channel(SSE_QUEUE_MAX);
        let serving = self.stop.child_token();
        let listed = self.list(SseSession {
            principal,
            since: Instant::now(),
            serving: serving.clone(),
            to_server,
        })?;
        let transport = SseTransport {
            from_client,
            to_client,
        };
        let transport = InFlight::new(transport, Arc::clone(&self.requests));
        tokio::spawn(serve_session(
            self.handler.clone(),
            transport,
            serving.clone(),
        ));
        let endpoint = format!(
            "event: endpoint\ndata: {MESSAGES_PATH}?sessionId={}\n\n",
            listed.id
        );
        Ok(ClientStream {
            first: Some(endpoint.into()),
            from_server,
            keep_alive_interval: self.keep_alive_interval,
            _listed: listed,
            _serving: serving.drop_guard(),
        })
    }

    fn list(&self, session: SseSession) -> Result<SessionEntry, HttpError> {
        let id = random_id()?;
        let mut table = lock(&self.table);
        if table.len() >= self.sessions_max && !make_room(&mut table, &session.principal) {
            return Err(HttpError::busy("all SSE sessions are in use"));
        }
        table.insert(id.clone(), session);
        Ok(SessionEntry {
            table: Arc::clone(&self.table),
            id,
        })
    }

    async fn take(&self, request: Request) -> Result<(), HttpError> {
        let (mut parts, body) = request.into_parts();
        parts.extensions.remove::<HttpRequestPermit>();
        parts.extensions.insert(ReplyLease::default());
        let session = self.find(&parts).ok_or_else(no_such_session)?;
        let body = self.bodies.read(&parts, body).await?;
        let message = serde_json::from_slice::<ClientJsonRpcMessage>(&body.bytes);
        let mut message =
            message.map_err(|_| HttpError::invalid("the body is no JSON-RPC 2.0 message"))?;
        message.insert_extension(parts);
        match timeout(self.send_timeout, session.to_server.send(message)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(no_such_session()),
            Err(_) => Err(HttpError::busy("the session does not keep up")),
        }
    }

    /// The session that a message names, if it belongs to the sender.
    fn find(&self, parts: &http::request::Parts) -> Option<SseSession> {
        let mut pairs = parts.uri.query()?.split('&');
        let id = pairs.find_map(|pair| pair.strip_prefix("sessionId="))?;
        let session = lock(&self.table).get(id).cloned()?;
        let caller = parts.extensions.get::<Caller>()?;
        (caller.principal == session.principal).then_some(session)
    }
}

pub(crate) async fn open<H: ServerHandler + Clone>(
    State(sse): State<Sse<H>>,
    request: Request,
) -> Response {
    let caller = request.extensions().get::<Caller>();
    let principal = caller.map_or_else(Principal::local, |caller| caller.principal.clone());
    match sse.begin(principal) {
        Ok(stream_to_client) => {
            let headers = [
                (CONTENT_TYPE, "text/event-stream"),
                (CACHE_CONTROL, "no-cache"),
                (HeaderName::from_static("x-accel-buffering"), "no"),
            ];
            let events = stream::unfold(stream_to_client, ClientStream::next);
            (headers, Body::from_stream(events)).into_response()
        }
        Err(refusal) => refusal.into_response(),
    }
}

/// Accepts a message for a session.
pub(crate) async fn message<H: ServerHandler + Clone>(
    State(sse): State<Sse<H>>,
    request: Request,
) -> Response {
    match sse.take(request).await {
        Ok(()) => (StatusCode::ACCEPTED, "Accepted").into_response(),
        Err(refusal) => refusal.into_response(),
    }
}

async fn serve_session<H: ServerHandler>(
    handler: H,
    transport: InFlight<SseTransport>,
    stop: CancellationToken,
) {
    match rmcp::service::serve_server_with_ct(handler, transport, stop).await {
        Ok(running) => drop(running.waiting().await),
        Err(error) => tracing::debug!(%error, "an SSE session did not begin"),
    }
}

impl ClientStream {
    /// The next event; a comment as keep-alive if there has been none for a while.
    async fn next(mut self) -> Option<(Result<Bytes, Infallible>, Self)> {
        if let Some(first) = self.first.take() {
            return Some((Ok(first), self));
        }
        let event = match timeout(self.keep_alive_interval, self.from_server.recv()).await {
            Ok(Some((message, reply))) => {
                let event = event(&message)?;
                reply.map_or(event.clone(), |reply| reply.hold(event))
            }
            Ok(None) => return None,
            Err(_) => Bytes::from_static(b": alive\n\n"),
        };
        Some((Ok(event), self))
    }
}

/// JSON has no newlines outside strings, and escapes them inside.
fn event(message: &ServerJsonRpcMessage) -> Option<Bytes> {
    let mut event = b"event: message\ndata: ".to_vec();
    serde_json::to_writer(&mut event, message).ok()?;
    event.extend_from_slice(b"\n\n");
    Some(event.into())
}

impl SendReply for SseTransport {
    fn answer(
        &mut self,
        message: ServerJsonRpcMessage,
        reply: Option<ReplyLease>,
    ) -> impl Future<Output = Result<(), ClientGone>> + Send + 'static {
        let to_client = self.to_client.clone();
        async move {
            to_client
                .send((message, reply))
                .await
                .map_err(|_| ClientGone)
        }
    }
}

impl Transport<RoleServer> for SseTransport {
    type Error = ClientGone;

    fn send(
        &mut self,
        message: ServerJsonRpcMessage,
    ) -> impl Future<Output = Result<(), ClientGone>> + Send + 'static {
        self.answer(message, None)
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        self.from_client.recv().await
    }

    async fn close(&mut self) -> Result<(), ClientGone> {
        self.from_client.close();
        Ok(())
    }
}

impl Drop for SessionEntry {
    fn drop(&mut self) {
        lock(&self.table).remove(&self.id);
    }
}

/// Ends the oldest session of the principal that has most, if that one has more than its share.
fn make_room(table: &mut SseSessions, asker: &Principal) -> bool {
    let shares = Shares::of(table.values().map(|session| &session.principal));
    let yields = |session: &SseSession| shares.yields(&session.principal, asker);
    let candidates = table.iter().filter(|(_, session)| yields(session));
    let chosen = candidates
        .max_by_key(|(_, session)| (shares.held(&session.principal), Reverse(session.since)));
    let Some(id) = chosen.map(|(id, _)| id.clone()) else {
        return false;
    };
    if let Some(session) = table.remove(&id) {
        session.serving.cancel();
    }
    true
}

fn lock(table: &Mutex<SseSessions>) -> MutexGuard<'_, SseSessions> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

fn no_such_session() -> HttpError {
    let hint = "open a new one by GET /sse";
    HttpError::new(
        StatusCode::NOT_FOUND,
        "not_found",
        "there is no such session",
        hint,
    )
}

/// 128 random bits.
fn random_id() -> Result<String, HttpError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| {
        tracing::error!(%error, "could not get random bytes");
        HttpError::busy("no session can be opened now")
    })?;
    Ok(format!("{:032x}", u128::from_be_bytes(bytes)))
}
