//! Notifies the server of waiting connections.
//!
//! No queue: the next event is looked up by the id of the last one sent.

use std::pin::Pin;
use std::task::{Context, Poll};

use hotcell_agent_api::v1::tunnel_event::Event;
use hotcell_agent_api::v1::{TunnelEvent, TunnelIncoming, TunnelListeners};
use tokio_stream::Stream;
use tonic::Status;

use super::Tunnels;

/// The events of one call.
pub(crate) struct Events {
    tunnels: Tunnels,
    watcher: u64,
    /// The last connection sent; `None` before the list of listeners was sent.
    last_id: Option<u64>,
    is_ended: bool,
}

impl Events {
    /// Replaces the previous call.
    pub(super) fn new(tunnels: &Tunnels) -> Self {
        let mut state = tunnels.lock();
        state.watcher += 1;
        state.wake();
        Self {
            tunnels: tunnels.clone(),
            watcher: state.watcher,
            last_id: None,
            is_ended: false,
        }
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<Event, Status>> {
        let mut state = self.tunnels.lock();
        if state.watcher != self.watcher {
            self.is_ended = true;
            return Poll::Ready(Err(Status::aborted("another call has taken over")));
        }
        let Some(last_id) = self.last_id else {
            self.last_id = Some(0);
            let listeners = state.table();
            return Poll::Ready(Ok(Event::Listeners(TunnelListeners { listeners })));
        };
        if let Some((id, waiting)) = state.waiting.range(last_id + 1..).next() {
            self.last_id = Some(*id);
            return Poll::Ready(Ok(Event::Incoming(TunnelIncoming {
                tunnel_id: *id,
                purpose: waiting.purpose.clone(),
            })));
        }
        state.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Stream for Events {
    type Item = Result<TunnelEvent, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.is_ended {
            return Poll::Ready(None);
        }
        let event = self.poll_event(cx);
        event.map(|event| Some(event.map(|event| TunnelEvent { event: Some(event) })))
    }
}
