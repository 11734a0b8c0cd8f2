//! Streamable HTTP, of both generations: with a session that `initialize` began, and without one.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use reqwest::{Method, RequestBuilder, Response, StatusCode};

use super::Parcel;
use super::client::{self, HttpClient};
use super::events::Events;
use crate::bounds::STOP_GRACE;
use crate::handshake::Protocol;
use crate::rpc::{Failure, Peer};
use crate::settings::{Endpoint, Environment, Redactor};

const SESSION: &str = "mcp-session-id";
const VERSION: &str = "mcp-protocol-version";
const BOTH: &str = "application/json, text/event-stream";
/// How often a stream that was interrupted is taken up again.
const RESUMPTIONS_MAX: u32 = 10;
/// The pause before that, unless the server asks for another; and the longest.
const RESUMPTION_PAUSE: Duration = Duration::from_secs(1);
const RESUMPTION_PAUSE_MAX: Duration = Duration::from_secs(10);
/// The longest id of a session.
const SESSION_BYTES_MAX: usize = 1 << 10;

/// A server that is reached by HTTP.
pub(crate) struct Http {
    client: HttpClient,
    peer: Arc<Peer>,
    session: Mutex<Session>,
}

/// What `initialize` agreed on.
#[derive(Default, Clone)]
struct Session {
    id: Option<HeaderValue>,
    version: Option<&'static str>,
}

impl Http {
    /// Connects to nobody yet.
    pub(crate) fn new(
        endpoint: &Endpoint,
        environment: Environment<'_>,
        peer: &Arc<Peer>,
    ) -> Result<(Self, Redactor), String> {
        let (client, redactor) = HttpClient::new(endpoint, environment)?;
        let link = Self {
            client,
            peer: Arc::clone(peer),
            session: Mutex::default(),
        };
        Ok((link, redactor))
    }

    /// Sends a message and hands on what is answered. A request has its answer when this returns, or
    /// gets none.
    pub(crate) async fn send(&self, parcel: Parcel) -> Result<(), Failure> {
        let session = self.session();
        let request = addressed(self.client.request(Method::POST), &session, &parcel);
        let request = request
            .header(ACCEPT, BOTH)
            .header(CONTENT_TYPE, "application/json")
            .body(parcel.body);
        let response = client::sent(request).await?;
        if !response.status().is_success() {
            return Err(
                client::refusal(response, session.id.is_some() && !parcel.is_stateless).await,
            );
        }
        if parcel.method == "initialize" {
            self.begin_session(&response);
        }
        if parcel.id.is_none() || response.status() == StatusCode::ACCEPTED {
            return Ok(());
        }
        self.receive(response, !parcel.is_stateless).await
    }

    fn begin_session(&self, response: &Response) {
        let id = response
            .headers()
            .get(SESSION)
            .filter(|id| id.len() <= SESSION_BYTES_MAX)
            .cloned();
        self.lock().id = id.map(|mut id| {
            id.set_sensitive(true);
            id
        });
    }

    /// What both sides speak from now on.
    pub(crate) fn agreed(&self, version: &'static str) {
        self.lock().version = Some(version);
    }

    async fn receive(&self, response: Response, may_resume: bool) -> Result<(), Failure> {
        if !is_stream(&response) {
            self.take(&client::body(response).await?).await;
            return Ok(());
        }
        let mut events = Events::of(response);
        for _ in 0..RESUMPTIONS_MAX {
            let ended = self.drain(&mut events).await;
            let resumption = events.resumption().filter(|_| may_resume);
            let Some((id, retry_ms)) = resumption else {
                return ended;
            };
            let pause = retry_ms.map_or(RESUMPTION_PAUSE, Duration::from_millis);
            tokio::time::sleep(pause.min(RESUMPTION_PAUSE_MAX)).await;
            let Ok(id) = HeaderValue::from_str(id) else {
                return ended;
            };
            let request = with(self.client.request(Method::GET), &self.session());
            let request = request
                .header(ACCEPT, "text/event-stream")
                .header("last-event-id", id);
            let response = client::sent(request).await?;
            if !response.status().is_success() {
                return ended;
            }
            events = Events::of(response);
        }
        Err(Failure::Closed(
            "its stream was interrupted too often".into(),
        ))
    }

    /// Hands on events until the stream ends.
    async fn drain(&self, events: &mut Events) -> Result<(), Failure> {
        while let Some(event) = events.next().await? {
            self.take(&event.data).await;
        }
        Ok(())
    }

    /// Takes a text of the server, and answers what wants an answer.
    async fn take(&self, text: &str) {
        if text.trim().is_empty() {
            return;
        }
        for reply in self.peer.receive(text) {
            let request = with(self.client.request(Method::POST), &self.session());
            let request = request
                .header(ACCEPT, BOTH)
                .header(CONTENT_TYPE, "application/json")
                .body(reply);
            let _ = tokio::time::timeout(STOP_GRACE, client::sent(request)).await;
        }
    }

    /// Hands on what the server says unasked, until it ends the stream or has none.
    pub(crate) async fn listen(&self) {
        let request = with(self.client.request(Method::GET), &self.session());
        let response = client::sent(request.header(ACCEPT, "text/event-stream")).await;
        if let Ok(response) = response
            && response.status().is_success()
            && is_stream(&response)
        {
            let _ = self.drain(&mut Events::of(response)).await;
        }
    }

    /// Ends the session.
    pub(crate) async fn stop(&self) {
        let session = std::mem::take(&mut *self.lock());
        if session.id.is_some() {
            let request = with(self.client.request(Method::DELETE), &session);
            let _ = tokio::time::timeout(STOP_GRACE, client::sent(request)).await;
        }
        self.peer.close("it was stopped");
    }

    fn session(&self) -> Session {
        self.lock().clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Session> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// With what HTTP is to know about a message.
fn addressed(request: RequestBuilder, session: &Session, parcel: &Parcel) -> RequestBuilder {
    if !parcel.is_stateless {
        return with(request, session);
    }
    let request = request
        .header(VERSION, Protocol::STATELESS)
        .header("mcp-method", parcel.method);
    match &parcel.named {
        Some(named) => request.header("mcp-name", header_text(named)),
        None => request,
    }
}

fn with(mut request: RequestBuilder, session: &Session) -> RequestBuilder {
    if let Some(id) = &session.id {
        request = request.header(SESSION, id.clone());
    }
    match session.version {
        Some(version) => request.header(VERSION, version),
        None => request,
    }
}

fn is_stream(response: &Response) -> bool {
    let kind = response
        .headers()
        .get(CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| {
        kind.trim_start()
            .to_ascii_lowercase()
            .starts_with("text/event-stream")
    })
}

/// A name as a header has it: as it is if it is plain, else as base64.
fn header_text(name: &str) -> String {
    use base64::Engine;
    let is_plain =
        name.bytes().all(|byte| (0x21..0x7f).contains(&byte)) && !name.starts_with("=?base64?");
    if is_plain {
        return name.to_owned();
    }
    let encoded = base64::engine::general_purpose::STANDARD.encode(name);
    format!("=?base64?{encoded}?=")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_not_plain_is_encoded() {
        assert_eq!(header_text("read_file"), "read_file");
        assert_eq!(header_text("größe"), "=?base64?Z3LDtsOfZQ==?=");
        assert_eq!(header_text("a\r\nb"), "=?base64?YQ0KYg==?=");
    }
}
