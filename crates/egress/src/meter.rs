//! Counts and paces what one container sends and receives.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::http::BoxError;
use crate::policy::Limits;

/// How much may pass at once before pacing begins.
const BURST: Duration = Duration::from_millis(50);

/// One container's traffic, in both directions.
#[derive(Debug)]
pub(crate) struct Meter {
    down: Direction,
    up: Direction,
}

#[derive(Debug)]
struct Direction {
    bytes: AtomicU64,
    bytes_max: u64,
    bucket: Mutex<Bucket>,
}

/// When the bytes that have passed will have taken their time.
#[derive(Debug)]
struct Bucket {
    free_at: Instant,
    rate: u64,
}

impl Meter {
    /// A meter that has counted nothing.
    pub(crate) fn new(limits: &Limits) -> Self {
        let direction = |bytes_max| Direction {
            bytes: AtomicU64::new(0),
            bytes_max,
            bucket: Mutex::new(Bucket {
                free_at: Instant::now(),
                rate: limits.rate.max(1),
            }),
        };
        Self {
            down: direction(limits.down_bytes),
            up: direction(limits.up_bytes),
        }
    }

    /// Bytes received.
    pub(crate) fn down(&self) -> u64 {
        self.down.bytes.load(Ordering::Relaxed)
    }

    /// Bytes sent.
    pub(crate) fn up(&self) -> u64 {
        self.up.bytes.load(Ordering::Relaxed)
    }

    /// The budget that is used up, if one is.
    pub(crate) fn exhausted(&self) -> Option<&'static str> {
        [("down", &self.down), ("up", &self.up)]
            .into_iter()
            .find(|(_, direction)| direction.is_exhausted())
            .map(|(name, _)| name)
    }
}

impl Direction {
    fn is_exhausted(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) >= self.bytes_max
    }

    /// Counts bytes; returns until when the next ones have to wait.
    fn count(&self, bytes: usize) -> Option<Instant> {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let mut bucket = self.bucket.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let nanoseconds = u128::from(bytes) * 1_000_000_000 / u128::from(bucket.rate);
        let taken = Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX));
        bucket.free_at = bucket.free_at.max(now) + taken;
        let wait_until = bucket.free_at.checked_sub(BURST)?;
        (wait_until > now).then_some(wait_until)
    }
}

/// What one connection has carried.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    down: AtomicU64,
    up: AtomicU64,
}

impl Traffic {
    pub(crate) fn down(&self) -> u64 {
        self.down.load(Ordering::Relaxed)
    }

    pub(crate) fn up(&self) -> u64 {
        self.up.load(Ordering::Relaxed)
    }
}

fn add(counter: &AtomicU64, bytes: usize) {
    counter.fetch_add(u64::try_from(bytes).unwrap_or(u64::MAX), Ordering::Relaxed);
}

/// A connection to a host outside, whose bytes count.
#[derive(Debug)]
pub(crate) struct Metered<S> {
    stream: S,
    meter: Arc<Meter>,
    traffic: Arc<Traffic>,
    read_pause: Option<Pin<Box<Sleep>>>,
    write_pause: Option<Pin<Box<Sleep>>>,
}

impl<S> Metered<S> {
    pub(crate) fn new(stream: S, meter: Arc<Meter>, traffic: Arc<Traffic>) -> Self {
        Self {
            stream,
            meter,
            traffic,
            read_pause: None,
            write_pause: None,
        }
    }
}

/// A body from the cache, whose bytes count as if they came from outside.
pub(crate) struct MeteredBody<B> {
    body: B,
    meter: Arc<Meter>,
    traffic: Arc<Traffic>,
    pause: Option<Pin<Box<Sleep>>>,
}

impl<B> MeteredBody<B> {
    pub(crate) fn new(body: B, meter: Arc<Meter>, traffic: Arc<Traffic>) -> Self {
        Self {
            body,
            meter,
            traffic,
            pause: None,
        }
    }
}

impl<B> Body for MeteredBody<B>
where
    B: Body<Data = Bytes, Error = BoxError> + Unpin,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        ready!(poll_pause(&mut this.pause, cx));
        let frame = ready!(Pin::new(&mut this.body).poll_frame(cx));
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
        {
            if this.meter.down.is_exhausted() {
                return Poll::Ready(Some(Err(used_up().into())));
            }
            add(&this.traffic.down, data.len());
            let pause = this.meter.down.count(data.len());
            this.pause = pause.map(|until| Box::pin(sleep_until(until)));
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

fn poll_pause(pause: &mut Option<Pin<Box<Sleep>>>, cx: &mut Context<'_>) -> Poll<()> {
    if let Some(sleep) = pause {
        ready!(sleep.as_mut().poll(cx));
        *pause = None;
    }
    Poll::Ready(())
}

fn used_up() -> io::Error {
    io::Error::new(io::ErrorKind::QuotaExceeded, "the egress budget is used up")
}

impl<S: AsyncRead + Unpin> AsyncRead for Metered<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        ready!(poll_pause(&mut this.read_pause, cx));
        if this.meter.down.is_exhausted() {
            return Poll::Ready(Err(used_up()));
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(cx, buf))?;
        let count = buf.filled().len() - before;
        add(&this.traffic.down, count);
        let pause = this.meter.down.count(count);
        this.read_pause = pause.map(|until| Box::pin(sleep_until(until)));
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Metered<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        ready!(poll_pause(&mut this.write_pause, cx));
        if this.meter.up.is_exhausted() {
            return Poll::Ready(Err(used_up()));
        }
        let count = ready!(Pin::new(&mut this.stream).poll_write(cx, data))?;
        add(&this.traffic.up, count);
        let pause = this.meter.up.count(count);
        this.write_pause = pause.map(|until| Box::pin(sleep_until(until)));
        Poll::Ready(Ok(count))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    fn limits(rate: u64) -> Limits {
        Limits {
            rate,
            down_bytes: 1_000_000,
            up_bytes: 1_000,
            ..Limits::default()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_are_counted_and_paced() {
        let (near, mut far) = tokio::io::duplex(1 << 20);
        let meter = Arc::new(Meter::new(&limits(100_000)));
        let mut metered = Metered::new(near, Arc::clone(&meter), Arc::default());
        far.write_all(&vec![0; 200_000]).await.unwrap();
        let since = Instant::now();
        metered.read_exact(&mut vec![0; 200_000]).await.unwrap();
        assert_eq!(meter.down(), 200_000);
        // The last piece is not waited for, the ones before it are.
        let taken = since.elapsed();
        assert!(taken < Duration::from_secs(2), "{taken:?}");
        far.write_all(&[0; 1]).await.unwrap();
        metered.read_exact(&mut [0]).await.unwrap();
        assert!(since.elapsed() >= Duration::from_millis(1_900));
    }

    #[tokio::test]
    async fn a_budget_that_is_used_up_ends_the_connection() {
        let (near, _far) = tokio::io::duplex(1 << 20);
        let meter = Arc::new(Meter::new(&limits(u64::MAX)));
        let mut metered = Metered::new(near, Arc::clone(&meter), Arc::default());
        assert_eq!(meter.exhausted(), None);
        metered.write_all(&[0; 1_000]).await.unwrap();
        assert_eq!(meter.exhausted(), Some("up"));
        let error = metered.write_all(&[0]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::QuotaExceeded);
    }
}
