//! Bodies that come from a file, whole or still being written.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::sync::{mpsc, watch};

use crate::http::BoxError;

/// Bytes that are read at once, and pieces that wait for a slow reader.
const PIECE_BYTES: usize = 256 * 1024;
const PIECES_MAX: usize = 1;

/// How far a download has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    pub(crate) written: u64,
    pub(crate) end: Option<End>,
}

/// How a download has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Whole,
    Failed,
}

/// A body whose pieces another task reads.
pub(crate) struct FileBody {
    pieces: mpsc::Receiver<io::Result<Bytes>>,
    left: Option<u64>,
}

impl FileBody {
    /// A part of a file that is whole.
    pub(crate) fn part(file: Arc<File>, range: Range<u64>) -> Self {
        let left = Some(range.end.saturating_sub(range.start));
        let whole = Progress {
            written: range.end,
            end: Some(End::Whole),
        };
        let (_, progress) = watch::channel(whole);
        Self::start(file, range.start, progress, left)
    }

    /// All of a file that is being written.
    pub(crate) fn growing(
        file: Arc<File>,
        progress: watch::Receiver<Progress>,
        bytes: Option<u64>,
    ) -> Self {
        Self::start(file, 0, progress, bytes)
    }

    fn start(
        file: Arc<File>,
        at: u64,
        progress: watch::Receiver<Progress>,
        left: Option<u64>,
    ) -> Self {
        let (sender, pieces) = mpsc::channel(PIECES_MAX);
        tokio::spawn(async move {
            let reading = read(file, at, progress, &sender);
            let read = tokio::select! {
                read = reading => read,
                () = sender.closed() => return,
            };
            if let Err(error) = read {
                // Nobody has to hear it if nobody reads.
                let _ = sender.send(Err(error)).await;
            }
        });
        Self { pieces, left }
    }
}

async fn read(
    file: Arc<File>,
    mut at: u64,
    mut progress: watch::Receiver<Progress>,
    pieces: &mpsc::Sender<io::Result<Bytes>>,
) -> io::Result<()> {
    loop {
        let is_further = |progress: &Progress| progress.written > at || progress.end.is_some();
        let seen = *progress.wait_for(is_further).await.map_err(|_| cut_off())?;
        if seen.end == Some(End::Failed) {
            return Err(cut_off());
        }
        while at < seen.written {
            let count = usize::try_from(seen.written - at).unwrap_or(usize::MAX);
            let piece = read_piece(Arc::clone(&file), at, count.min(PIECE_BYTES)).await?;
            at += u64::try_from(piece.len()).unwrap_or(u64::MAX);
            if pieces.send(Ok(piece)).await.is_err() {
                return Ok(());
            }
        }
        if seen.end == Some(End::Whole) {
            return Ok(());
        }
    }
}

async fn read_piece(file: Arc<File>, at: u64, count: usize) -> io::Result<Bytes> {
    let reading = tokio::task::spawn_blocking(move || {
        let mut piece = vec![0; count];
        file.read_exact_at(&mut piece, at)?;
        Ok(Bytes::from(piece))
    });
    reading.await?
}

fn cut_off() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the download was cut off")
}

impl Body for FileBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let piece = ready!(self.pieces.poll_recv(cx));
        if let (Some(Ok(piece)), Some(left)) = (&piece, &mut self.left) {
            *left = left.saturating_sub(u64::try_from(piece.len()).unwrap_or(u64::MAX));
        }
        Poll::Ready(piece.map(|piece| piece.map(Frame::data).map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.left == Some(0)
    }

    fn size_hint(&self) -> SizeHint {
        self.left.map_or_else(SizeHint::new, SizeHint::with_exact)
    }
}
