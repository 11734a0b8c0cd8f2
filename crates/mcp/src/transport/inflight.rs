//! A bound on requests that are being answered.
//!
//! `rmcp` starts a task for each request and never looks back: a peer that sends without
//! reading the answers, or that leaves its requests behind with a closed HTTP connection,
//! would pile them up. So every transport is wrapped, and a request over the bound is
//! answered with an error at once, by the transport itself.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::BoxFuture;
use rmcp::RoleServer;
use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, ErrorCode, ErrorData, JsonRpcMessage, RequestId,
    ServerJsonRpcMessage,
};
use rmcp::transport::Transport;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::limits::REQUESTS_PER_CONNECTION_MAX;

/// JSON-RPC leaves this range to servers.
const TOO_MANY_REQUESTS: ErrorCode = ErrorCode(-32029);

/// A transport whose requests in flight are bounded.
pub(crate) struct InFlight<T> {
    inner: T,
    shared: Arc<Semaphore>,
    open: Arc<Mutex<Open>>,
    refusing: Option<BoxFuture<'static, ()>>,
}

/// What has come and not been answered. An id that is sent twice counts twice.
#[derive(Default)]
struct Open {
    permits: HashMap<RequestId, Vec<OwnedSemaphorePermit>>,
    count: usize,
}

impl<T> InFlight<T> {
    /// Bounds the requests of this transport, and of all that have the same `shared`.
    pub(crate) fn new(inner: T, shared: Arc<Semaphore>) -> Self {
        Self {
            inner,
            shared,
            open: Arc::default(),
            refusing: None,
        }
    }

    fn open(&self) -> std::sync::MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn admit(&self, id: &RequestId) -> bool {
        let mut open = self.open();
        if open.count >= REQUESTS_PER_CONNECTION_MAX {
            return false;
        }
        let Ok(permit) = Arc::clone(&self.shared).try_acquire_owned() else {
            return false;
        };
        open.permits.entry(id.clone()).or_default().push(permit);
        open.count += 1;
        true
    }
}

impl Open {
    fn end(&mut self, id: &RequestId) {
        let Some(permits) = self.permits.get_mut(id) else {
            return;
        };
        permits.pop();
        self.count -= 1;
        if permits.is_empty() {
            self.permits.remove(id);
        }
    }
}

impl<T: Transport<RoleServer>> Transport<RoleServer> for InFlight<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        message: ServerJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let answered = match &message {
            JsonRpcMessage::Response(response) => Some(response.id.clone()),
            JsonRpcMessage::Error(error) => error.id.clone(),
            JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => None,
        };
        let open = Arc::clone(&self.open);
        let sent = self.inner.send(message);
        async move {
            let result = sent.await;
            if let Some(id) = answered {
                open.lock().unwrap_or_else(PoisonError::into_inner).end(&id);
            }
            result
        }
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        loop {
            // The loop above us drops this future whenever something else happens, so what
            // must be finished is kept. Nothing is read meanwhile: who does not take the
            // refusals is not listened to.
            if let Some(refusing) = &mut self.refusing {
                refusing.await;
                self.refusing = None;
            }
            let message = self.inner.receive().await?;
            match &message {
                JsonRpcMessage::Request(request) if !self.admit(&request.id) => {
                    let error = ErrorData::new(TOO_MANY_REQUESTS, TOO_MANY_TEXT, None);
                    let answer = JsonRpcMessage::error(error, Some(request.id.clone()));
                    let sent = self.inner.send(answer);
                    self.refusing = Some(Box::pin(async move { drop(sent.await) }));
                    continue;
                }
                JsonRpcMessage::Notification(notification) => {
                    self.note_cancelled(&notification.notification);
                }
                JsonRpcMessage::Request(_)
                | JsonRpcMessage::Response(_)
                | JsonRpcMessage::Error(_) => {}
            }
            return Some(message);
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.inner.close().await
    }
}

const TOO_MANY_TEXT: &str = "too many requests are in flight; wait for answers, then send again";

impl<T> InFlight<T> {
    /// A cancelled request gets no answer.
    fn note_cancelled(&self, notification: &ClientNotification) {
        if let ClientNotification::CancelledNotification(cancelled) = notification
            && let Some(id) = &cancelled.params.request_id
        {
            self.open().end(id);
        }
    }
}
