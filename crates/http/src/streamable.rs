//! Streamable HTTP: all protocol versions at one path, those before 2026 with sessions.
//!
//! `rmcp` implements the protocol. This adds what it lacks: a timeout for bodies, JSON-RPC errors
//! for bodies that are not messages, batches, and limits on sessions.

use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use hotcell_domain::{Caller, Principal};
use hotcell_mcp::transport::ReplyLease;
use hotcell_mcp::transport::batch::{self, Batch};
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderValue, Method, StatusCode};
use http_body::{Frame, SizeHint};
use http_body_util::{BodyExt, Full, Limited};
use rmcp::ServerHandler;
use rmcp::model::ProtocolVersion;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::body::BodyReader;
use crate::error::HttpError;
use crate::limits::{BATCH_ANSWER_BYTES_MAX, BATCH_AT_ONCE_MAX, HttpLimits};
use crate::router::HttpRequestPermit;
use crate::sessions::Sessions;

/// The header that names the session.
const SESSION_ID: &str = "mcp-session-id";

/// Serves Streamable HTTP. Clones share their state.
pub(crate) struct Streamable<H> {
    service: StreamableHttpService<H, Sessions>,
    bodies: BodyReader,
}

impl<H> Clone for Streamable<H> {
    fn clone(&self) -> Self {
        Self {
            service: self.service.clone(),
            bodies: self.bodies.clone(),
        }
    }
}

impl<H: ServerHandler + Clone> Streamable<H> {
    /// Serves `handler`; ends every stream when told to stop.
    pub(crate) fn new(
        handler: H,
        limits: &HttpLimits,
        bodies: BodyReader,
        stop: &CancellationToken,
    ) -> (Self, Arc<Sessions>) {
        let sessions = Arc::new(Sessions::new(limits));
        tokio::spawn(reap(Arc::downgrade(&sessions), stop.clone()));
        // Host names were checked before, on every path. The body was read before, too.
        let config = StreamableHttpServerConfig::default()
            .disable_allowed_hosts()
            .disable_allowed_origins()
            .with_json_response(true)
            .with_sse_keep_alive(Some(limits.keep_alive_interval))
            .with_max_request_body_bytes(limits.body_bytes_max)
            .with_cancellation_token(stop.child_token());
        let make = move || Ok(handler.clone());
        let service = StreamableHttpService::new(make, Arc::clone(&sessions), config);
        (Self { service, bodies }, sessions)
    }
}

pub(crate) async fn serve<H: ServerHandler + Clone>(
    State(streamable): State<Streamable<H>>,
    request: Request,
) -> Response {
    match streamable.answer(request).await {
        Ok(response) => response,
        Err(refusal) => refusal.into_response(),
    }
}

impl<H: ServerHandler + Clone> Streamable<H> {
    async fn answer(&self, request: Request) -> Result<Response, HttpError> {
        let (mut parts, body) = request.into_parts();
        if parts.headers.contains_key(SESSION_ID) {
            // The session counts its requests itself, including those that nobody waits for.
            parts.extensions.remove::<HttpRequestPermit>();
        }
        let reply = ReplyLease::default();
        parts.extensions.insert(reply.clone());
        // Other methods have no body.
        let body = match parts.method {
            Method::POST => self.bodies.read(&parts, body).await?,
            _ => self.bodies.read(&parts, Body::empty()).await?,
        };
        let is_json = parts.headers.get(CONTENT_TYPE).is_some_and(is_json);
        if is_json && batch::is_batch(&body.bytes) {
            return self.answer_batch(&parts, &body.bytes).await;
        }
        let principal = principal(&parts);
        let is_end = parts.method == Method::DELETE;
        let request = http::Request::from_parts(parts, Full::new(body.bytes.clone()));
        let handled = self.service.handle(request);
        let (response, was_refused) = Sessions::serve(principal, handled).await;
        if was_refused {
            return Err(HttpError::busy("all sessions are in use"));
        }
        if is_json && response.status() == StatusCode::UNSUPPORTED_MEDIA_TYPE {
            return Ok(no_message(&body.bytes));
        }
        let mut response = response.map(|body| Body::new(LeasedBody { body, reply }));
        // `rmcp` answers 202, which the Python SDK reports to its user as a failure.
        if is_end && response.status() == StatusCode::ACCEPTED {
            *response.status_mut() = StatusCode::NO_CONTENT;
        }
        Ok(response)
    }
}

/// The principal whose sessions the request can use. Every request has passed [`crate::Identify`].
fn principal(parts: &Parts) -> Principal {
    let caller = parts.extensions.get::<Caller>();
    caller.map_or_else(Principal::local, |caller| caller.principal.clone())
}

/// A body whose chunks keep the answer's part of the reply budget until they are written.
struct LeasedBody<B> {
    body: B,
    reply: ReplyLease,
}

impl<B> http_body::Body for LeasedBody<B>
where
    B: http_body::Body<Data = Bytes> + Unpin,
{
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        let held = |frame: Frame<Bytes>| frame.map_data(|bytes| self.reply.hold(bytes));
        Poll::Ready(frame.map(|frame| frame.map(held)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<H: ServerHandler + Clone> Streamable<H> {
    /// Answers each message of a batch as if it had come alone, and returns all answers together.
    async fn answer_batch(&self, parts: &Parts, body: &[u8]) -> Result<Response, HttpError> {
        let version = parts.headers.get("mcp-protocol-version");
        // Without the header, this version is assumed.
        if version.is_some_and(|version| version != ProtocolVersion::V_2025_03_26.as_str()) {
            return Ok(json_rpc_error(-32600, batch::WRONG_VERSION));
        }
        let batch = match Batch::parse(body) {
            Ok(batch) => batch,
            Err(reason) => return Ok(json_rpc_error(-32600, &reason)),
        };
        let answering = batch.0.into_iter().map(|item| self.answer_one(parts, item));
        let mut answering = stream::iter(answering).buffer_unordered(BATCH_AT_ONCE_MAX);
        let mut all = BatchAnswers::default();
        while let Some(answered) = answering.next().await {
            match answered? {
                BatchItemAnswer::Nothing => {}
                BatchItemAnswer::Answer(answer, reply) => all.push(&answer, reply)?,
                BatchItemAnswer::Other(response) => return Ok(response),
            }
        }
        Ok(all.into_response())
    }

    async fn answer_one(&self, parts: &Parts, item: Value) -> Result<BatchItemAnswer, HttpError> {
        let body = Full::new(Bytes::from(item.to_string()));
        let (mut parts, reply) = (parts.clone(), ReplyLease::default());
        parts.extensions.insert(reply.clone());
        let principal = principal(&parts);
        let request = http::Request::from_parts(parts, body);
        let handled = self.service.handle(request);
        let (response, was_refused) = Sessions::serve(principal, handled).await;
        if was_refused {
            return Err(HttpError::busy("all sessions are in use"));
        }
        match response.status() {
            StatusCode::OK => {}
            StatusCode::ACCEPTED => return Ok(BatchItemAnswer::Nothing),
            StatusCode::UNSUPPORTED_MEDIA_TYPE | StatusCode::UNPROCESSABLE_ENTITY => {
                let error = serde_json::to_vec(&batch::no_message(&item));
                return Ok(error.map_or(BatchItemAnswer::Nothing, |error| {
                    BatchItemAnswer::Answer(error, reply)
                }));
            }
            _ => return Ok(BatchItemAnswer::Other(response.map(Body::new))),
        }
        let is_json = response.headers().get(CONTENT_TYPE).is_some_and(is_json);
        let whole = Limited::new(response.into_body(), BATCH_ANSWER_BYTES_MAX);
        let whole = whole.collect().await.map_err(|_| too_long())?.to_bytes();
        let answer = if is_json {
            Some(whole.to_vec())
        } else {
            answer_in_events(&whole)
        };
        Ok(answer.map_or(BatchItemAnswer::Nothing, |answer| {
            BatchItemAnswer::Answer(answer, reply)
        }))
    }
}

/// The result of one message of a batch.
enum BatchItemAnswer {
    /// It was not a request.
    Nothing,
    /// Its answer as JSON, with its part of the reply budget.
    Answer(Vec<u8>, ReplyLease),
    /// An HTTP error for the whole batch.
    Other(Response),
}

/// The answers to a batch, as the beginning of a JSON array.
#[derive(Default)]
struct BatchAnswers {
    json: Vec<u8>,
    /// Released when the last byte is written.
    replies: Vec<ReplyLease>,
}

impl BatchAnswers {
    fn push(&mut self, answer: &[u8], reply: ReplyLease) -> Result<(), HttpError> {
        if self.json.len() + answer.len() > BATCH_ANSWER_BYTES_MAX {
            return Err(too_long());
        }
        self.json
            .push(if self.json.is_empty() { b'[' } else { b',' });
        self.json.extend_from_slice(answer);
        self.replies.push(reply);
        Ok(())
    }

    fn into_response(mut self) -> Response {
        if self.json.is_empty() {
            return StatusCode::ACCEPTED.into_response();
        }
        self.json.push(b']');
        let body = Body::from(Bytes::from_owner(self));
        ([(CONTENT_TYPE, "application/json")], body).into_response()
    }
}

impl AsRef<[u8]> for BatchAnswers {
    fn as_ref(&self) -> &[u8] {
        &self.json
    }
}

fn too_long() -> HttpError {
    let message =
        format!("the answers to this batch are longer than {BATCH_ANSWER_BYTES_MAX} bytes");
    let hint = "send its requests one at a time";
    let status = StatusCode::PAYLOAD_TOO_LARGE;
    HttpError::new(status, "resource_exhausted", &message, hint)
}

/// The answer among the events of a stream: the message with an id and without a method.
fn answer_in_events(events: &[u8]) -> Option<Vec<u8>> {
    #[derive(Deserialize)]
    struct Shape {
        id: Option<IgnoredAny>,
        method: Option<IgnoredAny>,
    }
    let lines = events.split(|byte| *byte == b'\n');
    let mut data = lines.filter_map(|line| line.strip_prefix(b"data:"));
    let answer = data.find(|data| {
        let shape = serde_json::from_slice::<Shape>(data);
        shape.is_ok_and(|shape| shape.id.is_some() && shape.method.is_none())
    })?;
    Some(answer.trim_ascii().to_vec())
}

fn is_json(value: &HeaderValue) -> bool {
    value
        .to_str()
        .is_ok_and(|value| value.starts_with("application/json"))
}

/// The answer to a JSON body that is not a message.
fn no_message(body: &Bytes) -> Response {
    let (code, message) = match serde_json::from_slice::<IgnoredAny>(body) {
        Ok(_) => (-32600, "the body is JSON, but no JSON-RPC 2.0 message"),
        Err(_) => (-32700, "the body is not JSON"),
    };
    json_rpc_error(code, message)
}

fn json_rpc_error(code: i32, message: &str) -> Response {
    let error = json!({ "code": code, "message": message });
    let body = json!({ "jsonrpc": "2.0", "id": null, "error": error });
    HttpError::of_body(StatusCode::BAD_REQUEST, body).into_response()
}

/// Closes idle sessions, and all of them when told to stop.
async fn reap(sessions: Weak<Sessions>, stop: CancellationToken) {
    let Some(period) = sessions.upgrade().map(|sessions| sessions.reap_interval()) else {
        return;
    };
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        let Some(sessions) = sessions.upgrade() else {
            return;
        };
        sessions.reap().await;
    }
    if let Some(sessions) = sessions.upgrade() {
        sessions.close().await;
    }
}
