//! The requests that wait for an answer, and what else an upstream may send.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::message::{Incoming, RpcError, messages, refusal};
use crate::bounds::GARBAGE_LOGGED_MAX;
use crate::name::ServerName;
use crate::text::on_one_line;

/// How far a call is.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct ProgressUpdate {
    /// So much is done.
    pub progress: f64,
    /// Of so much, if the server knows.
    #[serde(default)]
    pub total: Option<f64>,
    /// What it does: the server's words.
    #[serde(default)]
    pub message: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ProgressParams {
    progress_token: u64,
    #[serde(flatten)]
    update: ProgressUpdate,
}

/// How a request ended.
pub(crate) type Answer = Result<Box<RawValue>, Failure>;

/// Why it has no result.
#[derive(Debug, Clone)]
pub(crate) enum Failure {
    /// The server says so.
    Rpc(RpcError),
    /// The answer was too large.
    TooLarge,
    /// The connection ended first.
    Closed(Arc<str>),
    /// The server does not know our session any more; the request was not worked on.
    SessionLost,
    /// There is nobody at its address; nothing was sent.
    Unreachable,
    /// The HTTP server refused it.
    Refused(u16),
    /// What came was not MCP.
    Protocol(&'static str),
}

struct Waiting {
    answer: oneshot::Sender<Answer>,
    progress: Option<mpsc::Sender<ProgressUpdate>>,
}

/// One connection's requests in flight.
pub(crate) struct Peer {
    server: ServerName,
    next_id: AtomicU64,
    waiting: Mutex<HashMap<u64, Waiting>>,
    garbage: AtomicU32,
    tools_changed: watch::Sender<u64>,
    closed: CancellationToken,
    closed_why: OnceLock<Arc<str>>,
}

impl Peer {
    pub(crate) fn new(server: ServerName) -> Arc<Self> {
        Arc::new(Self {
            server,
            next_id: AtomicU64::new(1),
            waiting: Mutex::default(),
            garbage: AtomicU32::new(0),
            tools_changed: watch::Sender::new(0),
            closed: CancellationToken::new(),
            closed_why: OnceLock::new(),
        })
    }

    /// A new request; it waits until it is dropped.
    pub(crate) fn begin(
        self: &Arc<Self>,
        progress: Option<mpsc::Sender<ProgressUpdate>>,
    ) -> InFlight {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (answer, receiver) = oneshot::channel();
        self.lock().insert(id, Waiting { answer, progress });
        let in_flight = InFlight {
            id,
            receiver,
            peer: Arc::clone(self),
        };
        if let Some(why) = self.closed_why.get() {
            // `close` may have looked before we were there.
            self.settle(id, Err(Failure::Closed(Arc::clone(why))));
        }
        in_flight
    }

    /// Takes a text of the upstream. Returns what it is to be answered.
    pub(crate) fn receive(&self, text: &str) -> Vec<String> {
        let Ok(messages) = messages(text) else {
            self.note_garbage(text);
            return Vec::new();
        };
        messages
            .into_iter()
            .filter_map(|message| self.take(message))
            .collect()
    }

    fn take(&self, message: Incoming) -> Option<String> {
        match message {
            Incoming::Response { id, outcome } => {
                self.settle(id, outcome.map_err(Failure::Rpc));
                None
            }
            Incoming::Request { id, method } => Some(refusal(&id, &method)),
            Incoming::Notification { method, params } => {
                match method.as_str() {
                    "notifications/progress" => self.progress(params.as_deref()),
                    "notifications/tools/list_changed" => {
                        self.tools_changed.send_modify(|count| *count += 1);
                    }
                    _ => {}
                }
                None
            }
        }
    }

    /// Ends a request. One that nobody waits for any more (answered already, timed out, never made)
    /// is ignored.
    pub(crate) fn settle(&self, id: u64, answer: Answer) {
        let waiting = self.lock().remove(&id);
        match waiting {
            // Its caller may have left meanwhile.
            Some(waiting) => drop(waiting.answer.send(answer)),
            None => {
                tracing::debug!(upstream = %self.server, id, "ignored an answer that nobody waits for");
            }
        }
    }

    /// Hands progress on; a caller that does not keep up misses some.
    fn progress(&self, params: Option<&RawValue>) {
        let parsed =
            params.and_then(|params| serde_json::from_str::<ProgressParams>(params.get()).ok());
        let Some(ProgressParams {
            progress_token,
            update,
        }) = parsed
        else {
            return;
        };
        if let Some(progress) = self
            .lock()
            .get(&progress_token)
            .and_then(|waiting| waiting.progress.as_ref())
        {
            let _ = progress.try_send(update);
        }
    }

    /// Logs the first few texts that are no messages.
    pub(crate) fn note_garbage(&self, text: &str) {
        let before = self.garbage.fetch_add(1, Ordering::Relaxed);
        if before < GARBAGE_LOGGED_MAX {
            let start = on_one_line(text, 120);
            tracing::warn!(upstream = %self.server, start, "an MCP server wrote something that is no message; ignored");
        }
    }

    /// Ends every request, now and later.
    pub(crate) fn close(&self, why: impl Into<Arc<str>>) {
        let why = self.closed_why.get_or_init(|| why.into());
        self.closed.cancel();
        let waiting = std::mem::take(&mut *self.lock());
        for waiting in waiting.into_values() {
            let _ = waiting.answer.send(Err(Failure::Closed(Arc::clone(why))));
        }
    }

    /// Waits until the connection has ended; says why.
    pub(crate) async fn closed(&self) -> Arc<str> {
        self.closed.cancelled().await;
        self.closed_why
            .get()
            .cloned()
            .unwrap_or_else(|| "closed".into())
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.is_cancelled()
    }

    /// Changes whenever the server says that its tools did.
    pub(crate) fn tools_changed(&self) -> watch::Receiver<u64> {
        self.tools_changed.subscribe()
    }

    /// How many requests wait.
    pub(crate) fn in_flight(&self) -> usize {
        self.lock().len()
    }

    pub(crate) fn server(&self) -> &ServerName {
        &self.server
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request that waits. Dropped, it is forgotten, and its answer will be ignored.
pub(crate) struct InFlight {
    pub(crate) id: u64,
    receiver: oneshot::Receiver<Answer>,
    peer: Arc<Peer>,
}

impl InFlight {
    /// Waits for the answer. May be polled again after it was dropped half-way.
    pub(crate) async fn answer(&mut self) -> Answer {
        match (&mut self.receiver).await {
            Ok(answer) => answer,
            Err(_) => Err(Failure::Closed("the request was forgotten".into())),
        }
    }

    /// The answer, if it is there.
    pub(crate) fn try_answer(&mut self) -> Option<Answer> {
        self.receiver.try_recv().ok()
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.peer.lock().remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer() -> Arc<Peer> {
        Peer::new(ServerName::parse("s").unwrap())
    }

    #[tokio::test]
    async fn an_answer_reaches_its_request_once() {
        let peer = peer();
        let (mut one, mut other) = (peer.begin(None), peer.begin(None));
        peer.receive(&format!(r#"{{"id":{},"result":{{"n":1}}}}"#, one.id));
        // The same again, and one for a request that never was.
        peer.receive(&format!(r#"{{"id":{},"result":{{"n":2}}}}"#, one.id));
        peer.receive(r#"{"id":999,"result":{}}"#);
        assert_eq!(one.answer().await.unwrap().get(), r#"{"n":1}"#);
        assert!(other.try_answer().is_none());
        assert_eq!(peer.in_flight(), 1);
        drop(other);
        assert_eq!(peer.in_flight(), 0);
    }

    #[tokio::test]
    async fn closing_ends_every_request_now_and_later() {
        let peer = peer();
        let mut before = peer.begin(None);
        peer.close("gone");
        let mut after = peer.begin(None);
        for request in [&mut before, &mut after] {
            assert!(matches!(request.answer().await, Err(Failure::Closed(why)) if &*why == "gone"));
        }
    }

    #[tokio::test]
    async fn progress_reaches_the_request_that_it_names_and_never_blocks() {
        let peer = peer();
        let (sender, mut receiver) = mpsc::channel(1);
        let request = peer.begin(Some(sender));
        for progress in 1..=3 {
            let id = request.id;
            peer.receive(&format!(r#"{{"method":"notifications/progress","params":{{"progressToken":{id},"progress":{progress},"total":3,"message":"m"}}}}"#));
        }
        let update = receiver.recv().await.unwrap();
        assert_eq!(
            (update.progress, update.total, update.message.as_deref()),
            (1.0, Some(3.0), Some("m"))
        );
        assert!(receiver.try_recv().is_err());
    }

    #[test]
    fn a_change_of_tools_is_noticed() {
        let peer = peer();
        let changed = peer.tools_changed();
        assert!(!changed.has_changed().unwrap());
        peer.receive(r#"{"method":"notifications/tools/list_changed"}"#);
        assert!(changed.has_changed().unwrap());
    }
}
