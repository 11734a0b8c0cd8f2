//! Reading the body of a request that must be in memory whole: JSON.
//!
//! Each body has a bound and a deadline, and those that are not small have a bound together.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use http::header::EXPECT;
use http::request::Parts;
use http_body::Body as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::limits::{HttpLimits, SMALL_BODY_BYTES_MAX};
use super::refusal::Refusal;

/// Permits are counted in these.
const UNIT_BYTES: usize = 1 << 10;

/// How much of a body that is refused is read, and for how long, so that a client that is
/// still sending sees the answer and not a broken connection.
const DISCARDED_BYTES_MAX: usize = 64 << 20;
const DISCARD_TIMEOUT: Duration = Duration::from_secs(2);

/// Reads bodies, within limits.
#[derive(Debug, Clone)]
pub(crate) struct Bodies {
    bytes_max: usize,
    timeout: Duration,
    shared: Arc<Semaphore>,
}

/// A body, and its place in memory.
pub(crate) struct Whole {
    pub(crate) bytes: Bytes,
    _place: Option<OwnedSemaphorePermit>,
}

impl Bodies {
    pub(crate) fn new(limits: &HttpLimits) -> Self {
        Self {
            bytes_max: limits.body_bytes_max,
            timeout: limits.body_timeout,
            shared: Arc::new(Semaphore::new(limits.bodies_bytes_max / UNIT_BYTES)),
        }
    }

    /// Reads all of a body.
    pub(crate) async fn read(&self, parts: &Parts, body: Body) -> Result<Whole, Refusal> {
        let length = body.size_hint().exact();
        let length = length.map(|length| usize::try_from(length).unwrap_or(usize::MAX));
        if length.is_some_and(|length| length > self.bytes_max) {
            return Err(self.too_large(parts, body).await);
        }
        let place = self.place(length.unwrap_or(self.bytes_max)).await?;
        let collected = timeout(self.timeout, self.collect(parts, body)).await;
        let late = |_| Refusal::slow("the body took too long to arrive");
        let bytes = collected.map_err(late)??;
        Ok(Whole {
            bytes,
            _place: place,
        })
    }

    async fn place(&self, bytes: usize) -> Result<Option<OwnedSemaphorePermit>, Refusal> {
        if bytes <= SMALL_BODY_BYTES_MAX {
            return Ok(None);
        }
        let units = u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX);
        let acquired = timeout(
            self.timeout,
            Arc::clone(&self.shared).acquire_many_owned(units),
        );
        match acquired.await {
            Ok(Ok(permit)) => Ok(Some(permit)),
            _ => Err(Refusal::busy("too many large requests are being read")),
        }
    }

    async fn collect(&self, parts: &Parts, body: Body) -> Result<Bytes, Refusal> {
        let mut whole = BytesMut::new();
        let mut pieces = body.into_data_stream();
        while let Some(piece) = pieces.next().await {
            let piece = piece.map_err(|_| Refusal::invalid("the body broke off"))?;
            if piece.len() > self.bytes_max - whole.len() {
                return Err(self.too_large(parts, Body::from_stream(pieces)).await);
            }
            whole.extend_from_slice(&piece);
        }
        Ok(whole.freeze())
    }

    async fn too_large(&self, parts: &Parts, body: Body) -> Refusal {
        // A client that waits to be told to go on has sent nothing.
        if !parts.headers.contains_key(EXPECT) {
            discard(body).await;
        }
        Refusal::too_large(self.bytes_max)
    }
}

/// Reads on for a while, and forgets it.
pub(crate) async fn discard(body: Body) {
    let _ = timeout(DISCARD_TIMEOUT, async {
        let mut left = DISCARDED_BYTES_MAX;
        let mut pieces = body.into_data_stream();
        while let Some(Ok(piece)) = pieces.next().await {
            let Some(rest) = left.checked_sub(piece.len()) else {
                return;
            };
            left = rest;
        }
    })
    .await;
}
