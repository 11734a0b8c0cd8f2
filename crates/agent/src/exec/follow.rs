//! The follower: the one stream that reads an exec's events.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use hotcell_agent_api::v1::ExecEvent;
use hotcell_agent_api::v1::exec_event::Event;
use tokio_stream::Stream;

use super::Exec;
use super::error::ExecError;

/// A stream of events that ends after `exit`, or with an error when another follower takes over.
/// Dropping it does not affect the exec.
pub struct Follower {
    exec: Arc<Exec>,
    number: u64,
    /// The number of the last event that was returned.
    seq: u64,
    is_done: bool,
}

/// Acknowledges events for one follower.
pub struct Acks {
    exec: Arc<Exec>,
    number: u64,
}

impl Follower {
    /// Follows the events after `seq`.
    pub fn new(exec: Arc<Exec>, seq: u64) -> Result<Self, ExecError> {
        let number = exec.follow(seq)?;
        Ok(Self {
            exec,
            number,
            seq,
            is_done: false,
        })
    }

    pub fn acks(&self) -> Acks {
        Acks {
            exec: self.exec.clone(),
            number: self.number,
        }
    }
}

impl Acks {
    /// Acknowledges events up to `seq`; returns whether more acknowledgements can follow.
    pub fn ack(&self, seq: u64) -> bool {
        self.exec.ack(self.number, seq)
    }

    /// Ends the follower because it sent an invalid message. Returns false: no acknowledgement can
    /// follow.
    pub fn refuse(&self) -> bool {
        self.exec.refuse(self.number);
        false
    }
}

impl Stream for Follower {
    type Item = Result<ExecEvent, ExecError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.is_done {
            return Poll::Ready(None);
        }
        let result = ready!(self.exec.poll_event(self.number, self.seq, cx));
        match &result {
            Some(Ok(event)) => {
                self.seq = event.seq;
                self.is_done = matches!(event.event, Some(Event::Exit(_)));
            }
            Some(Err(_)) | None => self.is_done = true,
        }
        Poll::Ready(result)
    }
}
