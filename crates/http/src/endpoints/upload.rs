//! The body of an upload, in chunks. It may take as long as its size warrants, but must not trickle
//! or pause.

use axum::body::{Body, BodyDataStream};
use bytes::Bytes;
use futures_util::StreamExt;
use http::request::Parts;

use crate::body::discard;
use crate::error::HttpError;
use crate::pace::{Pace, PaceLimits};

pub(super) struct Upload {
    pieces: BodyDataStream,
    pace: Pace,
    is_awaited: bool,
}

impl Upload {
    pub(super) fn new(parts: &Parts, body: Body, pace: PaceLimits) -> Self {
        let is_awaited = parts.headers.contains_key(http::header::EXPECT);
        Self {
            pieces: body.into_data_stream(),
            pace: Pace::new(pace),
            is_awaited,
        }
    }

    /// The next chunk; `None` at the end. After an error the rest is unusable.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, HttpError> {
        match self.pace.wait(self.pieces.next()).await {
            Ok(None) => Ok(None),
            Ok(Some(Ok(piece))) => {
                self.pace.came(piece.len());
                Ok(Some(piece))
            }
            Ok(Some(Err(_))) => Err(HttpError::invalid("the body broke off")),
            Err(_) => Err(HttpError::slow("the upload paused or came too slowly")),
        }
    }

    /// Reads on for a while, so that a client that is still sending sees the error.
    pub(super) async fn refuse(self, refusal: HttpError) -> HttpError {
        let has_timed_out = refusal.status() == http::StatusCode::REQUEST_TIMEOUT;
        if !self.is_awaited && !has_timed_out {
            discard(Body::from_stream(self.pieces)).await;
        }
        refusal
    }
}
