//! Bounds the memory of replies, from before they are built until their client has read them or is
//! gone.
//!
//! ```text
//! transport: an empty lease with each request ─▶ handler: takes bytes of the budget into it
//!                                                    │
//! client ◀─ last byte written, lease dropped ◀─ transport: keeps the lease with the answer
//! ```
//!
//! A client that requests much and reads nothing would fill the server's memory. So replies take
//! their bytes from one budget that all callers share; if it is used up, a request waits for a
//! moment and is then refused. Small replies are free: the number of requests in flight bounds
//! them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use rmcp::RoleServer;
use rmcp::model::{
    ClientJsonRpcMessage, ErrorData, GetExtensions, JsonRpcMessage, RequestId, ServerJsonRpcMessage,
};
use rmcp::transport::Transport;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::limits::SMALL_ANSWER_BYTES_MAX;

/// The budget is counted in units of this size.
const UNIT_BYTES: usize = 1 << 10;

/// The memory that all replies share. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct ReplyBudget {
    shared: Arc<Semaphore>,
    bytes_max: usize,
    wait_max: Duration,
}

/// The budget has no room for another reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BudgetExhausted {
    /// The size of the whole budget.
    pub(crate) bytes_max: usize,
}

/// The share of the budget that the reply to one message holds; for a batch, that of all its
/// replies. Released when the last clone is dropped.
#[derive(Debug, Clone, Default)]
pub struct ReplyLease(Arc<Mutex<LeaseState>>);

/// The units that one request has taken.
#[derive(Debug, Default)]
pub(crate) struct LeaseShare(usize);

#[derive(Debug, Default)]
struct LeaseState {
    permit: Option<OwnedSemaphorePermit>,
    /// Large replies themselves, where the transport would otherwise keep them in memory for
    /// longer.
    messages: HashMap<RequestId, ServerJsonRpcMessage>,
}

impl ReplyBudget {
    pub(crate) fn new(bytes_max: usize, wait_max: Duration) -> Self {
        let units = (bytes_max / UNIT_BYTES).clamp(1, Semaphore::MAX_PERMITS);
        Self {
            shared: Arc::new(Semaphore::new(units)),
            bytes_max,
            wait_max,
        }
    }

    /// Adjusts a request's share in `reply` to exactly `bytes`, waiting for others to release
    /// theirs. On `Err` its share is unchanged.
    pub(crate) async fn take(
        &self,
        reply: &ReplyLease,
        share: &mut LeaseShare,
        bytes: usize,
    ) -> Result<(), BudgetExhausted> {
        let wanted = self.units(bytes);
        if share.0 >= wanted {
            reply.give_back(share.0 - wanted);
            share.0 = wanted;
            return Ok(());
        }
        let more = u32::try_from(wanted - share.0).unwrap_or(u32::MAX);
        let acquired = Arc::clone(&self.shared).acquire_many_owned(more);
        match timeout(self.wait_max, acquired).await {
            Ok(Ok(permit)) => {
                reply.add(permit);
                share.0 = wanted;
                Ok(())
            }
            _ => Err(BudgetExhausted {
                bytes_max: self.bytes_max,
            }),
        }
    }

    /// A small reply is free, and the largest takes the whole budget.
    fn units(&self, bytes: usize) -> usize {
        if bytes <= SMALL_ANSWER_BYTES_MAX {
            return 0;
        }
        let all = (self.bytes_max / UNIT_BYTES).max(1);
        bytes.div_ceil(UNIT_BYTES).min(all)
    }
}

impl ReplyLease {
    /// The lease that was attached to a request over HTTP.
    pub fn of_http(message: &ClientJsonRpcMessage) -> Option<Self> {
        let JsonRpcMessage::Request(request) = message else {
            return None;
        };
        let parts = request.request.extensions().get::<http::request::Parts>()?;
        parts.extensions.get().cloned()
    }

    /// Attaches the lease to the bytes, so that it is held until they are written.
    pub fn hold(&self, bytes: Bytes) -> Bytes {
        if self.units() == 0 {
            return bytes;
        }
        Bytes::from_owner(LeasedBytes {
            bytes,
            _reply: self.clone(),
        })
    }

    /// Whether it holds any of the budget.
    pub fn is_large(&self) -> bool {
        self.units() > 0
    }

    /// Keeps the reply to a request.
    pub fn keep(&self, id: RequestId, message: ServerJsonRpcMessage) {
        self.lock().messages.insert(id, message);
    }

    /// Takes the reply that was kept.
    pub fn kept(&self, id: &RequestId) -> Option<ServerJsonRpcMessage> {
        self.lock().messages.remove(id)
    }

    fn units(&self) -> usize {
        let kept = self.lock();
        kept.permit
            .as_ref()
            .map_or(0, OwnedSemaphorePermit::num_permits)
    }

    fn add(&self, permit: OwnedSemaphorePermit) {
        let mut kept = self.lock();
        match &mut kept.permit {
            Some(before) => before.merge(permit),
            None => kept.permit = Some(permit),
        }
    }

    fn give_back(&self, units: usize) {
        let mut kept = self.lock();
        let given = kept.permit.as_mut().and_then(|permit| permit.split(units));
        drop(given);
    }

    fn lock(&self) -> MutexGuard<'_, LeaseState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct LeasedBytes {
    bytes: Bytes,
    _reply: ReplyLease,
}

impl AsRef<[u8]> for LeasedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// A transport that sends replies together with their leases.
pub trait SendReply: Transport<RoleServer> {
    /// Sends a reply; `reply` is dropped when the client has read it, or never will.
    fn answer(
        &mut self,
        message: ServerJsonRpcMessage,
        reply: Option<ReplyLease>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static;
}

/// The request that a message answers.
pub fn answered(message: &ServerJsonRpcMessage) -> Option<&RequestId> {
    match message {
        JsonRpcMessage::Response(response) => Some(&response.id),
        JsonRpcMessage::Error(error) => error.id.as_ref(),
        JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => None,
    }
}

/// The reply to a client that asks again for a large reply, which is not kept.
pub fn not_kept(id: Option<RequestId>) -> ServerJsonRpcMessage {
    let text = "this answer was too large to be kept; make the request again";
    JsonRpcMessage::error(ErrorData::internal_error(text, None), id)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    /// The only request of its message.
    #[derive(Default)]
    struct LeasedRequest(ReplyLease, LeaseShare);

    async fn take(
        answers: &ReplyBudget,
        asked: &mut LeasedRequest,
        bytes: usize,
    ) -> Result<(), BudgetExhausted> {
        answers.take(&asked.0, &mut asked.1, bytes).await
    }

    #[tokio::test(start_paused = true)]
    async fn the_budget_is_shared_and_given_back_with_the_last_byte() {
        let answers = ReplyBudget::new(4 * MIB, Duration::from_secs(5));
        let (mut first, mut second) = (LeasedRequest::default(), LeasedRequest::default());
        take(&answers, &mut first, 3 * MIB).await.unwrap();
        let refused = take(&answers, &mut second, 2 * MIB).await;
        assert_eq!(refused, Err(BudgetExhausted { bytes_max: 4 * MIB }));
        assert!(!second.0.is_large());
        // Small replies are never refused.
        let small = take(&answers, &mut second, SMALL_ANSWER_BYTES_MAX);
        small.await.unwrap();
        // The real size is less than the estimate.
        take(&answers, &mut first, 2 * MIB).await.unwrap();
        take(&answers, &mut second, 2 * MIB).await.unwrap();
        let mut bytes = first.0.hold(Bytes::from_static(b"abcdef"));
        drop(first);
        let rest = bytes.split_off(3);
        drop(bytes);
        let mut third = LeasedRequest::default();
        assert!(take(&answers, &mut third, MIB).await.is_err());
        drop(rest);
        take(&answers, &mut third, 2 * MIB).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn the_answers_to_a_batch_add_up() {
        let answers = ReplyBudget::new(4 * MIB, Duration::from_secs(5));
        let (reply, mut shares) = (
            ReplyLease::default(),
            [(); 3].map(|()| LeaseShare::default()),
        );
        for share in &mut shares[..2] {
            answers.take(&reply, share, 2 * MIB).await.unwrap();
        }
        assert!(answers.take(&reply, &mut shares[2], MIB).await.is_err());
        answers.take(&reply, &mut shares[0], MIB).await.unwrap();
        answers.take(&reply, &mut shares[2], MIB).await.unwrap();
        for id in [1, 2] {
            let id = RequestId::Number(id);
            reply.keep(id.clone(), not_kept(Some(id)));
        }
        for id in [1, 2].map(RequestId::Number) {
            let kept = reply.kept(&id).unwrap();
            assert_eq!(answered(&kept), Some(&id));
        }
        drop(reply);
        let mut next = LeasedRequest::default();
        take(&answers, &mut next, 4 * MIB).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_is_larger_than_the_budget_has_all_of_it() {
        let answers = ReplyBudget::new(MIB, Duration::from_secs(5));
        let (mut large, mut other) = (LeasedRequest::default(), LeasedRequest::default());
        take(&answers, &mut large, 100 * MIB).await.unwrap();
        assert!(take(&answers, &mut other, MIB / 2).await.is_err());
        drop(large);
        take(&answers, &mut other, MIB / 2).await.unwrap();
    }
}
