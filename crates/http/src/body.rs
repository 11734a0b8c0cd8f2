//! Reads request bodies that must be completely in memory: JSON.
//!
//! Each body has a size limit, a timeout and a minimum rate. All bodies share a memory limit, of
//! which each uses only what has arrived, so that a slow or idle one takes nothing from others.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use http::header::EXPECT;
use http::request::Parts;
use http_body::Body as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

use crate::error::HttpError;
use crate::limits::{HttpLimits, SMALL_BODY_BYTES_MAX};
use crate::pace::{Pace, PaceLimits};

/// The unit of the memory permits.
const UNIT_BYTES: usize = 1 << 10;

/// How much of a refused body is read, and for how long, so that a client that is still sending
/// sees the answer and not a connection reset.
const DISCARDED_BYTES_MAX: usize = 64 << 20;
const DISCARD_TIMEOUT: Duration = Duration::from_secs(2);

/// Reads bodies within limits.
#[derive(Debug, Clone)]
pub(crate) struct BodyReader {
    bytes_max: usize,
    pace: PaceLimits,
    wait_timeout: Duration,
    shared: Arc<Semaphore>,
}

/// A body, and the memory that it holds.
pub(crate) struct BufferedBody {
    pub(crate) bytes: Bytes,
    _memory: BodyMemory,
}

/// The memory of a body: what has arrived beyond its small beginning.
struct BodyMemory {
    shared: Arc<Semaphore>,
    held: Option<OwnedSemaphorePermit>,
    /// How long it may still wait for memory. This must end, because concurrent bodies may each
    /// hold a part of what the others need.
    wait_left: Duration,
}

impl BodyReader {
    pub(crate) fn new(limits: &HttpLimits) -> Self {
        Self {
            bytes_max: limits.body_bytes_max,
            pace: limits.body_pace(),
            wait_timeout: limits.bodies_wait_timeout,
            shared: Arc::new(Semaphore::new(limits.bodies_bytes_max / UNIT_BYTES)),
        }
    }

    pub(crate) async fn read(&self, parts: &Parts, body: Body) -> Result<BufferedBody, HttpError> {
        let length = body.size_hint().exact();
        let length = length.map(|length| usize::try_from(length).unwrap_or(usize::MAX));
        if length.is_some_and(|length| length > self.bytes_max) {
            return Err(self.too_large(parts, body).await);
        }
        let mut memory = BodyMemory {
            shared: Arc::clone(&self.shared),
            held: None,
            wait_left: self.wait_timeout,
        };
        let bytes = self.collect(parts, body, &mut memory).await?;
        Ok(BufferedBody {
            bytes,
            _memory: memory,
        })
    }

    async fn collect(
        &self,
        parts: &Parts,
        body: Body,
        memory: &mut BodyMemory,
    ) -> Result<Bytes, HttpError> {
        let mut whole = BytesMut::new();
        let mut pieces = body.into_data_stream();
        let mut pace = Pace::new(self.pace);
        let slow = |_| HttpError::slow("the body came too slowly");
        while let Some(piece) = pace.wait(pieces.next()).await.map_err(slow)? {
            let piece = piece.map_err(|_| HttpError::invalid("the body broke off"))?;
            if piece.len() > self.bytes_max - whole.len() {
                return Err(self.too_large(parts, Body::from_stream(pieces)).await);
            }
            pace.came(piece.len());
            memory.grow(whole.len() + piece.len()).await?;
            whole.extend_from_slice(&piece);
        }
        Ok(whole.freeze())
    }

    async fn too_large(&self, parts: &Parts, body: Body) -> HttpError {
        // A client that waits for `100 Continue` has sent nothing.
        if !parts.headers.contains_key(EXPECT) {
            discard(body).await;
        }
        HttpError::too_large(self.bytes_max)
    }
}

impl BodyMemory {
    /// Acquires the memory for a body that has reached this length.
    async fn grow(&mut self, bytes: usize) -> Result<(), HttpError> {
        let units = bytes
            .saturating_sub(SMALL_BODY_BYTES_MAX)
            .div_ceil(UNIT_BYTES);
        let held = self
            .held
            .as_ref()
            .map_or(0, OwnedSemaphorePermit::num_permits);
        let missing = u32::try_from(units.saturating_sub(held)).unwrap_or(u32::MAX);
        if missing == 0 {
            return Ok(());
        }
        let begun = Instant::now();
        let more = Arc::clone(&self.shared).acquire_many_owned(missing);
        let Ok(Ok(more)) = timeout(self.wait_left, more).await else {
            return Err(HttpError::busy("too many large requests are being read"));
        };
        self.wait_left = self.wait_left.saturating_sub(begun.elapsed());
        match &mut self.held {
            Some(held) => held.merge(more),
            none => *none = Some(more),
        }
        Ok(())
    }
}

/// Reads and discards for a while.
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
