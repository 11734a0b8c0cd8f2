//! Streamable HTTP: every protocol version at one path, those before 2026 with sessions.
//!
//! `rmcp` speaks the protocol. What it leaves open is closed here: a body has a deadline, a
//! body that is no message is answered as JSON-RPC says, batches are answered, and sessions
//! are bounded.

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

/// Names the session of a request.
const SESSION_ID: &str = "mcp-session-id";

/// What serves the path. Clones share it.
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
    /// Serves `handler`; when told to stop, ends every stream.
    pub(crate) fn new(
        handler: H,
        limits: &HttpLimits,
        bodies: BodyReader,
        stop: &CancellationToken,
    ) -> (Self, Arc<Sessions>) {
        let sessions = Arc::new(Sessions::new(limits));
        tokio::spawn(reap(Arc::downgrade(&sessions), stop.clone()));
        // Names are checked before, on every path. The body was read before, too.
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

/// Serves one request.
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
            // The session counts its requests itself, also those that nobody waits for.
            parts.extensions.remove::<HttpRequestPermit>();
        }
        let reply = ReplyLease::default();
        parts.extensions.insert(reply.clone());
        // The others have none.
        let body = match parts.method {
            Method::POST => self.bodies.read(&parts, body).await?,
            _ => self.bodies.read(&parts, Body::empty()).await?,
        };
        let is_json = parts.headers.get(CONTENT_TYPE).is_some_and(is_json);
        if is_json && batch::is_batch(&body.bytes) {
            return self.answer_batch(&parts, &body.bytes).await;
        }
        let principal = principal(&parts);
        let request = http::Request::from_parts(parts, Full::new(body.bytes.clone()));
        let handled = self.service.handle(request);
        let (response, was_refused) = Sessions::serve(principal, handled).await;
        if was_refused {
            return Err(HttpError::busy("all sessions are in use"));
        }
        if is_json && response.status() == StatusCode::UNSUPPORTED_MEDIA_TYPE {
            return Ok(no_message(&body.bytes));
        }
        Ok(response.map(|body| Body::new(LeasedBody { body, reply })))
    }
}

/// Whose sessions a request can name. Every request has passed [`crate::Identify`].
fn principal(parts: &Parts) -> Principal {
    let caller = parts.extensions.get::<Caller>();
    caller.map_or_else(Principal::local, |caller| caller.principal.clone())
}

/// A body, each piece of which keeps what the answer has of the budget until it is written.
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
    /// Answers each message of a batch as if it had come alone, and all of them together.
    async fn answer_batch(&self, parts: &Parts, body: &[u8]) -> Result<Response, HttpError> {
        let version = parts.headers.get("mcp-protocol-version");
        // Without the header it is this one.
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

/// What came of one message of a batch.
enum BatchItemAnswer {
    /// It was no request.
    Nothing,
    /// Its answer, as JSON, and what that has of the budget for answers.
    Answer(Vec<u8>, ReplyLease),
    /// What HTTP says about all of them.
    Other(Response),
}

/// The answers to a batch, as the beginning of a JSON array.
#[derive(Default)]
struct BatchAnswers {
    json: Vec<u8>,
    /// Given back when the last byte is written.
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

/// The answer among the events of a stream: the message that has an id and no method.
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

/// The answer to a body that says it is JSON and is no message.
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

/// Closes idle sessions, and when told to stop, all.
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
