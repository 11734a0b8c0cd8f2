//! Limits the number of requests that are being answered.
//!
//! `rmcp` starts a task for each request without a limit: a peer that sends without reading the
//! answers, or that abandons its requests by closing HTTP connections, would pile them up. So every
//! transport is wrapped, and the transport itself answers a request beyond the limit with an error.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::BoxFuture;
use hotcell_domain::Caller;
use rmcp::RoleServer;
use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, ErrorCode, ErrorData, GetExtensions, JsonRpcMessage,
    RequestId, ServerJsonRpcMessage,
};
use rmcp::transport::Transport;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::limits::REQUESTS_PER_CONNECTION_MAX;
use super::reply_budget::{ReplyLease, SendReply, answered};

/// From the range that JSON-RPC reserves for servers.
const TOO_MANY_REQUESTS: ErrorCode = ErrorCode(-32029);

/// A transport with a limit on requests in flight.
pub struct InFlight<T> {
    inner: T,
    shared: Arc<Semaphore>,
    connection: Arc<Semaphore>,
    open: Arc<Mutex<PendingRequests>>,
    caller: Option<Caller>,
    refusing: Option<BoxFuture<'static, ()>>,
}

/// Requests without an answer. An id that is sent twice counts twice.
type PendingRequests = HashMap<RequestId, Vec<PendingRequest>>;

struct PendingRequest {
    _permit: RequestPermit,
    reply: ReplyLease,
}

/// A request's permit. Released once the request has been answered or cancelled *and* its handler
/// has ended: the request carries a clone, which is dropped with the handler.
#[derive(Debug, Clone)]
pub(crate) struct RequestPermit {
    _permits: Arc<[OwnedSemaphorePermit; 2]>,
}

impl<T> InFlight<T> {
    /// Limits the requests of this transport, and of all that share `shared`.
    pub fn new(inner: T, shared: Arc<Semaphore>) -> Self {
        Self {
            inner,
            shared,
            connection: Arc::new(Semaphore::new(REQUESTS_PER_CONNECTION_MAX)),
            open: Arc::default(),
            caller: None,
            refusing: None,
        }
    }

    /// Attributes all requests of this transport to this caller.
    #[must_use]
    pub(crate) fn of_caller(self, caller: Option<Caller>) -> Self {
        Self { caller, ..self }
    }

    /// Admits a message; false if it is a request beyond the limit.
    fn admit(&self, message: &mut ClientJsonRpcMessage) -> bool {
        let reply = ReplyLease::of_http(message);
        let JsonRpcMessage::Request(request) = message else {
            return true;
        };
        let permits =
            [&self.connection, &self.shared].map(|bound| Arc::clone(bound).try_acquire_owned());
        let [Ok(connection), Ok(shared)] = permits else {
            return false;
        };
        let permit = RequestPermit {
            _permits: Arc::new([connection, shared]),
        };
        let extensions = request.request.extensions_mut();
        extensions.insert(permit.clone());
        if let Some(caller) = &self.caller {
            extensions.insert(caller.clone());
        }
        let reply = reply.unwrap_or_else(|| {
            let reply = ReplyLease::default();
            extensions.insert(reply.clone());
            reply
        });
        let pending = PendingRequest {
            _permit: permit,
            reply,
        };
        let mut open = lock(&self.open);
        open.entry(request.id.clone()).or_default().push(pending);
        true
    }
}

fn lock(open: &Mutex<PendingRequests>) -> MutexGuard<'_, PendingRequests> {
    open.lock().unwrap_or_else(PoisonError::into_inner)
}

fn end(open: &Mutex<PendingRequests>, id: &RequestId) -> Option<PendingRequest> {
    let mut open = lock(open);
    let pending = open.get_mut(id)?;
    let ended = pending.pop();
    if pending.is_empty() {
        open.remove(id);
    }
    ended
}

impl<T: SendReply> Transport<RoleServer> for InFlight<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        message: ServerJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let pending = answered(&message).and_then(|id| end(&self.open, id));
        let reply = pending.as_ref().map(|pending| pending.reply.clone());
        let sent = self.inner.answer(message, reply);
        async move {
            let result = sent.await;
            drop(pending);
            result
        }
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        loop {
            // The loop above drops this future whenever something else happens, so unfinished work
            // is kept. Nothing is read meanwhile: a peer that does not read the refusals is not
            // served.
            if let Some(refusing) = &mut self.refusing {
                refusing.await;
                self.refusing = None;
            }
            let mut message = self.inner.receive().await?;
            if !self.admit(&mut message) {
                self.refuse(&message);
                continue;
            }
            if let JsonRpcMessage::Notification(notification) = &message {
                self.note_cancelled(&notification.notification);
            }
            return Some(message);
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.inner.close().await
    }
}

const TOO_MANY_TEXT: &str = "too many requests are in flight; wait for answers, then send again";

impl<T: SendReply> InFlight<T> {
    fn refuse(&mut self, message: &ClientJsonRpcMessage) {
        let JsonRpcMessage::Request(request) = message else {
            return;
        };
        let error = ErrorData::new(TOO_MANY_REQUESTS, TOO_MANY_TEXT, None);
        let answer = JsonRpcMessage::error(error, Some(request.id.clone()));
        let sent = self.inner.send(answer);
        self.refusing = Some(Box::pin(async move { drop(sent.await) }));
    }

    /// A cancelled request gets no answer; from now on only its handler holds the permit.
    fn note_cancelled(&self, notification: &ClientNotification) {
        if let ClientNotification::CancelledNotification(cancelled) = notification
            && let Some(id) = &cancelled.params.request_id
        {
            drop(end(&self.open, id));
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

    use super::super::lines::Lines;
    use super::*;

    #[tokio::test]
    async fn a_cancelled_request_keeps_its_place_until_its_handler_has_ended() {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let (read, write) = tokio::io::split(theirs);
        let places = Arc::new(Semaphore::new(2));
        let mut server = InFlight::new(Lines::new(read, write), Arc::clone(&places));
        let (answers, mut to_server) = tokio::io::split(ours);
        let mut answers = BufReader::new(answers).lines();
        let ping = |id| format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"ping\"}}\n");
        let cancel = |id| {
            let params = format!("{{\"requestId\":{id}}}");
            let method = "notifications/cancelled";
            format!("{{\"jsonrpc\":\"2.0\",\"method\":\"{method}\",\"params\":{params}}}\n")
        };
        let sent = [ping(1), ping(2), cancel(1), cancel(2), ping(3)].concat();
        to_server.write_all(sent.as_bytes()).await.unwrap();
        let mut handled = Vec::new();
        for _ in 0..4 {
            handled.push(server.receive().await.unwrap());
        }
        let refused = tokio::select! {
            message = server.receive() => panic!("{message:?} is one too many"),
            line = answers.next_line() => line.unwrap().unwrap(),
        };
        assert!(refused.contains("-32029"), "{refused}");
        assert!(lock(&server.open).is_empty());
        assert_eq!(places.available_permits(), 0);
        // The first handler has ended.
        drop(handled.remove(0));
        assert_eq!(places.available_permits(), 1);
        to_server.write_all(ping(4).as_bytes()).await.unwrap();
        let next = server.receive().await.unwrap();
        drop((handled, next));
        // The last one has not been answered.
        assert_eq!(places.available_permits(), 1);
        let error = ErrorData::internal_error("x", None);
        let answer = JsonRpcMessage::error(error, Some(RequestId::Number(4)));
        server.send(answer).await.unwrap();
        assert_eq!(places.available_permits(), 2);
    }
}
