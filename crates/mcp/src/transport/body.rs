//! Reading the body of a request that must be in memory whole: JSON.
//!
//! Each body has a bound, a deadline and a lowest rate. Together they have a bound, of which
//! each takes as much as has come of it: one that is slow or idle keeps nothing from others.

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

use super::limits::{HttpLimits, SMALL_BODY_BYTES_MAX};
use super::pace::{Pace, PaceLimits};
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
    pace: PaceLimits,
    wait_timeout: Duration,
    shared: Arc<Semaphore>,
}

/// A body, and the memory that it holds.
pub(crate) struct Whole {
    pub(crate) bytes: Bytes,
    _room: Room,
}

/// Memory that a body holds: as much as has come of it, beyond its small beginning.
struct Room {
    shared: Arc<Semaphore>,
    held: Option<OwnedSemaphorePermit>,
    /// How long it may still wait for more. It cannot wait for ever: all that are being read
    /// may hold a part of what each of them needs.
    patience: Duration,
}

impl Bodies {
    pub(crate) fn new(limits: &HttpLimits) -> Self {
        Self {
            bytes_max: limits.body_bytes_max,
            pace: limits.body_pace(),
            wait_timeout: limits.bodies_wait_timeout,
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
        let mut room = Room {
            shared: Arc::clone(&self.shared),
            held: None,
            patience: self.wait_timeout,
        };
        let bytes = self.collect(parts, body, &mut room).await?;
        Ok(Whole { bytes, _room: room })
    }

    async fn collect(&self, parts: &Parts, body: Body, room: &mut Room) -> Result<Bytes, Refusal> {
        let mut whole = BytesMut::new();
        let mut pieces = body.into_data_stream();
        let mut pace = Pace::new(self.pace);
        let slow = |_| Refusal::slow("the body came too slowly");
        while let Some(piece) = pace.wait(pieces.next()).await.map_err(slow)? {
            let piece = piece.map_err(|_| Refusal::invalid("the body broke off"))?;
            if piece.len() > self.bytes_max - whole.len() {
                return Err(self.too_large(parts, Body::from_stream(pieces)).await);
            }
            pace.came(piece.len());
            room.grow(whole.len() + piece.len()).await?;
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

impl Room {
    /// Makes room for a body that has this length by now.
    async fn grow(&mut self, bytes: usize) -> Result<(), Refusal> {
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
        let Ok(Ok(more)) = timeout(self.patience, more).await else {
            return Err(Refusal::busy("too many large requests are being read"));
        };
        self.patience = self.patience.saturating_sub(begun.elapsed());
        match &mut self.held {
            Some(held) => held.merge(more),
            none => *none = Some(more),
        }
        Ok(())
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
