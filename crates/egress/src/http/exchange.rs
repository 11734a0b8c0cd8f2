//! How long the bodies of a request and its answer may stand still.
//!
//! What counts is the time in which nothing comes of either, so a stream of events may be as slow as its
//! events are, and one side may be silent while the other speaks. A side that does not read is not
//! waited for: it holds back the other one, and nothing but its own connection.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};

use super::BoxError;
use crate::HostName;

/// How long nothing may come of a body that has not ended. Servers of events send a sign of life at
/// least every minute or so.
pub(super) const BODY_IDLE_TIMEOUT: Duration = Duration::from_mins(5);

/// Nothing came of a body for too long.
#[derive(Debug, thiserror::Error)]
#[error("nothing came for {} s", BODY_IDLE_TIMEOUT.as_secs())]
pub(super) struct Stalled;

/// A request and its answer.
#[derive(Debug)]
pub(super) struct Exchange {
    host: HostName,
    /// When something came of either body.
    moved: Mutex<Instant>,
    is_stalled: AtomicBool,
}

impl Exchange {
    pub(super) fn new(host: &HostName) -> Arc<Self> {
        Arc::new(Self {
            host: host.clone(),
            moved: Mutex::new(Instant::now()),
            is_stalled: AtomicBool::new(false),
        })
    }

    /// Whether one of its bodies has stood still for too long.
    pub(super) fn is_stalled(&self) -> bool {
        self.is_stalled.load(Ordering::Relaxed)
    }

    fn moved(&self) -> Instant {
        *self.moved.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_moved(&self) {
        *self.moved.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    fn stall(&self) -> Stalled {
        if !self.is_stalled.swap(true, Ordering::Relaxed) {
            tracing::info!(host = %self.host, "the bodies of a request and its answer stood still");
        }
        Stalled
    }
}

/// A body of an exchange, which fails when the exchange stands still.
pub(super) struct TimedBody<B> {
    body: B,
    exchange: Arc<Exchange>,
    /// Since when the next piece is waited for. Before that, whoever reads was waited for.
    waiting_since: Option<Instant>,
    /// Made when it is first needed: most bodies are there when they are asked for.
    alarm: Option<Pin<Box<Sleep>>>,
}

impl<B> TimedBody<B> {
    pub(super) fn new(body: B, exchange: &Arc<Exchange>) -> Self {
        Self {
            body,
            exchange: Arc::clone(exchange),
            waiting_since: None,
            alarm: None,
        }
    }

    /// Ready once the exchange has stood still for too long.
    fn poll_stalled(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let since = *self.waiting_since.get_or_insert_with(Instant::now);
        let make = || Box::pin(sleep_until(since + BODY_IDLE_TIMEOUT));
        let alarm = self.alarm.get_or_insert_with(make);
        loop {
            ready!(alarm.as_mut().poll(cx));
            let until = self.exchange.moved().max(since) + BODY_IDLE_TIMEOUT;
            if until <= Instant::now() {
                return Poll::Ready(());
            }
            alarm.as_mut().reset(until);
        }
    }
}

impl<B> Body for TimedBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(cx) else {
            ready!(this.poll_stalled(cx));
            return Poll::Ready(Some(Err(this.exchange.stall().into())));
        };
        this.exchange.set_moved();
        this.waiting_since = None;
        Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
