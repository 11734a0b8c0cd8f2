//! The body of an upload, piece by piece. It may take as long as it likes, but not pause.

use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use bytes::Bytes;
use futures_util::StreamExt;
use http::request::Parts;
use tokio::time::timeout;

use crate::transport::{Refusal, discard};

/// What is left of a body.
pub(super) struct Upload {
    pieces: BodyDataStream,
    idle_timeout: Duration,
    is_awaited: bool,
}

impl Upload {
    pub(super) fn new(parts: &Parts, body: Body, idle_timeout: Duration) -> Self {
        let is_awaited = parts.headers.contains_key(http::header::EXPECT);
        Self {
            pieces: body.into_data_stream(),
            idle_timeout,
            is_awaited,
        }
    }

    /// The next piece, `None` at the end. After an error nothing comes that could be used.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Refusal> {
        let next = timeout(self.idle_timeout, self.pieces.next()).await;
        match next {
            Ok(None) => Ok(None),
            Ok(Some(Ok(piece))) => Ok(Some(piece)),
            Ok(Some(Err(_))) => Err(Refusal::invalid("the body broke off")),
            Err(_) => Err(Refusal::slow("the upload paused for too long")),
        }
    }

    /// Reads on for a while, so that a client that is still sending sees why it need not.
    pub(super) async fn refuse(self, refusal: Refusal) -> Refusal {
        let has_timed_out = refusal.status() == http::StatusCode::REQUEST_TIMEOUT;
        if !self.is_awaited && !has_timed_out {
            discard(Body::from_stream(self.pieces)).await;
        }
        refusal
    }
}
