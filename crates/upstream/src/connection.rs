//! A connection to a running server: requests with a deadline, cancelled when nobody waits.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Instant, timeout_at};

use crate::bounds::{
    CALLS_IN_FLIGHT_MAX, ERROR_TEXT_BYTES_MAX, REQUEST_BYTES_MAX, RESULT_BYTES_MAX,
};
use crate::error::UpstreamError;
use crate::handshake::{Protocol, client_info};
use crate::link::{Link, Parcel};
use crate::name::ServerName;
use crate::rpc::{Failure, InFlight, Meta, Outgoing, Params, Peer, ProgressUpdate};
use crate::settings::Redactor;
use crate::text::quoted;

/// A connection.
pub(crate) struct Connection {
    pub(crate) link: Link,
    pub(crate) peer: Arc<Peer>,
    redactor: Redactor,
    places: Semaphore,
    /// What the handshake agreed on.
    pub(crate) protocol: OnceLock<Protocol>,
}

/// What to ask for.
#[derive(Clone)]
pub(crate) struct Request<'a> {
    pub(crate) method: &'static str,
    pub(crate) params: Params<'a>,
    pub(crate) progress: Option<mpsc::Sender<ProgressUpdate>>,
    pub(crate) timeout: Duration,
}

/// Why a request failed, before it has words.
#[derive(Debug)]
pub(crate) enum RequestError {
    /// The connection or the server.
    Failed(Failure),
    /// No answer in time.
    Timeout(Duration),
    /// Larger than may be sent.
    RequestTooLarge,
    /// All places are taken.
    Busy,
}

impl Connection {
    pub(crate) fn new(link: Link, peer: Arc<Peer>, redactor: Redactor) -> Arc<Self> {
        let places = Semaphore::new(CALLS_IN_FLIGHT_MAX);
        Arc::new(Self {
            link,
            peer,
            redactor,
            places,
            protocol: OnceLock::new(),
        })
    }

    /// Asks, and waits for the answer. Dropped half-way, or after the timeout, the server is told to
    /// cancel, and an answer that still comes is ignored.
    pub(crate) async fn request(
        self: &Arc<Self>,
        request: Request<'_>,
    ) -> Result<Box<RawValue>, RequestError> {
        let deadline = Instant::now() + request.timeout;
        let place = timeout_at(deadline, self.places.acquire()).await;
        let Ok(Ok(_place)) = place else {
            return Err(RequestError::Busy);
        };
        let is_cancellable = self.is_cancellable(request.method);
        let mut in_flight = self.peer.begin(request.progress.clone());
        let parcel = self.parcel(
            Some(in_flight.id),
            request.method,
            request.params,
            request.progress.is_some(),
        );
        let parcel = parcel.ok_or(RequestError::RequestTooLarge)?;
        let mut cancel = Cancel {
            connection: Arc::clone(self),
            id: in_flight.id,
            is_armed: is_cancellable,
        };
        let answer = timeout_at(deadline, self.exchange(&mut in_flight, parcel)).await;
        let Ok(answer) = answer else {
            return Err(RequestError::Timeout(request.timeout));
        };
        cancel.is_armed = false;
        answer.map_err(RequestError::Failed)
    }

    async fn exchange(
        &self,
        in_flight: &mut InFlight,
        parcel: Parcel,
    ) -> Result<Box<RawValue>, Failure> {
        tokio::select! {
            biased;
            answer = in_flight.answer() => return answer,
            sent = self.link.send(parcel) => sent?,
        }
        if self.link.answers_while_sending() {
            let none = Err(Failure::Protocol(
                "the response has no answer to the request",
            ));
            return in_flight.try_answer().unwrap_or(none);
        }
        in_flight.answer().await
    }

    /// Without a session, a response over HTTP that nobody reads is cancelled by that.
    fn is_cancellable(&self, method: &str) -> bool {
        match method {
            "initialize" | "server/discover" | "subscriptions/listen" => false,
            _ => !self.is_stateless() || !self.link.answers_while_sending(),
        }
    }

    /// Whether every request says everything.
    pub(crate) fn is_stateless(&self) -> bool {
        self.protocol.get().is_some_and(Protocol::is_stateless)
    }

    /// Tells the server something.
    pub(crate) async fn notify(
        &self,
        method: &'static str,
        params: Params<'_>,
    ) -> Result<(), Failure> {
        match self.parcel(None, method, params, false) {
            Some(parcel) => self.link.send(parcel).await,
            None => Err(Failure::TooLarge),
        }
    }

    /// The message as bytes, unless they are too many.
    fn parcel(
        &self,
        id: Option<u64>,
        method: &'static str,
        mut params: Params<'_>,
        wants_progress: bool,
    ) -> Option<Parcel> {
        let is_stateless = self.is_stateless() || method == "server/discover";
        let meta = Meta {
            progress_token: id.filter(|_| wants_progress),
            protocol_version: is_stateless.then_some(Protocol::STATELESS),
            client_info: is_stateless.then(client_info),
            client_capabilities: is_stateless.then(|| Value::Object(serde_json::Map::new())),
        };
        params.meta = (wants_progress || is_stateless).then_some(meta);
        let named = params.name.or(params.uri).map(str::to_owned);
        let message = Outgoing {
            jsonrpc: "2.0",
            id,
            method,
            params,
        };
        let body = serde_json::to_vec(&message)
            .ok()
            .filter(|body| body.len() <= REQUEST_BYTES_MAX)?;
        Some(Parcel {
            id,
            method,
            named,
            is_stateless,
            body: body.into(),
        })
    }

    /// The failure in words.
    pub(crate) fn described(&self, error: RequestError) -> UpstreamError {
        let server = self.peer.server().clone();
        match error {
            RequestError::Timeout(after) => UpstreamError::Timeout { server, after },
            RequestError::RequestTooLarge => too_large(server, "request to", REQUEST_BYTES_MAX),
            RequestError::Busy => UpstreamError::Busy {
                server,
                max: CALLS_IN_FLIGHT_MAX,
            },
            RequestError::Failed(failure) => match failure {
                Failure::TooLarge => too_large(server, "answer of", RESULT_BYTES_MAX),
                Failure::Closed(reason) => UpstreamError::Crashed {
                    server,
                    reason: reason.to_string(),
                },
                Failure::Unreachable => UpstreamError::Start {
                    server,
                    reason: "it cannot be reached".to_owned(),
                },
                Failure::SessionLost => UpstreamError::Crashed {
                    server,
                    reason: "its session ended".to_owned(),
                },
                Failure::Refused(status) => UpstreamError::Refused { server, status },
                Failure::Protocol(reason) => UpstreamError::Protocol {
                    server,
                    reason: reason.to_owned(),
                },
                Failure::Rpc(error) => {
                    let message = self.redactor.redact(&error.message);
                    let message = quoted(&message, ERROR_TEXT_BYTES_MAX).into_owned();
                    UpstreamError::Server {
                        server,
                        code: error.code,
                        message,
                    }
                }
            },
        }
    }
}

fn too_large(server: ServerName, what: &'static str, bytes_max: usize) -> UpstreamError {
    UpstreamError::TooLarge {
        server,
        what,
        bytes_max,
    }
}

/// Tells the server that nobody waits for an answer any more.
struct Cancel {
    connection: Arc<Connection>,
    id: u64,
    is_armed: bool,
}

impl Drop for Cancel {
    fn drop(&mut self) {
        if !self.is_armed || self.connection.peer.is_closed() {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        let (connection, id) = (Arc::clone(&self.connection), self.id);
        runtime.spawn(async move {
            let params = Params {
                request_id: Some(id),
                reason: Some("nobody waits for it"),
                ..Params::default()
            };
            let notify = connection.notify("notifications/cancelled", params);
            let _ = tokio::time::timeout(Duration::from_secs(5), notify).await;
        });
    }
}
