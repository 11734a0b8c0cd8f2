//! Reads a file in chunks, without blocking a thread for a slow reader.

use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use hotcell_agent_api::bounds::CHUNK_BYTES_MAX;
use hotcell_agent_api::v1::{FileInfo, ReadReply, read_reply::Reply};
use rustix::fs::FileType;
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use super::beneath::Beneath;
use super::blocking;
use super::error::{Error, Step};
use super::info::{describe, is};
use super::path::RelPath;

/// The replies of a read: the description first, then the bytes.
pub type ReadStream = Pin<Box<dyn Stream<Item = Result<ReadReply, Status>> + Send>>;

/// Up to this size, a file is read at once, on the calling thread.
const INLINE_BYTES_MAX: u64 = 128 << 10;

/// Chunks that a blocking thread reads at a time.
const BATCH_CHUNKS: usize = 8;

/// Chunks buffered for a slow reader, besides the batch being sent.
const AHEAD_CHUNKS_MAX: usize = 2;

/// An open regular file and its description.
#[derive(Debug)]
pub(super) struct FileReader {
    fd: OwnedFd,
    /// As of opening the file.
    pub info: FileInfo,
}

impl FileReader {
    /// Opens a regular file. Refuses any other type; never blocks.
    pub(super) fn open(root: &Beneath, path: &RelPath) -> Result<Self, Error> {
        let fd = root.readable(path)?;
        let stat = rustix::fs::fstat(&fd).step("stat the file")?;
        if is(&stat, FileType::Directory) {
            return Err(Error::WrongKind("it is a directory"));
        }
        if !is(&stat, FileType::RegularFile) {
            return Err(Error::WrongKind("only regular files can be read"));
        }
        let info = describe(path.as_bytes(), &stat, Vec::new());
        Ok(Self { fd, info })
    }

    /// Streams `limit` bytes from `offset` on, but never more than the file had when it was opened,
    /// so that a growing file does not keep the stream open.
    pub(super) fn stream(self, offset: u64, limit: Option<u64>) -> Result<ReadStream, Error> {
        let left = self.info.size.saturating_sub(offset);
        let range = Range {
            offset,
            left: limit.map_or(left, |limit| left.min(limit)),
        };
        let info = reply(Reply::Info(self.info.clone()));
        if range.left <= INLINE_BYTES_MAX {
            let (chunks, _) = range.read(&self.fd, usize::MAX)?;
            let replies = std::iter::once(info).chain(chunks.into_iter().map(data));
            return Ok(Box::pin(tokio_stream::iter(replies)));
        }
        let (sender, receiver) = mpsc::channel(AHEAD_CHUNKS_MAX);
        tokio::spawn(feed(sender, Arc::new(self.fd), info, range));
        Ok(Box::pin(ReceiverStream::new(receiver)))
    }

    /// The whole content, if it is at most `max` bytes.
    pub(super) fn content(&self, max: usize) -> Result<Bytes, Error> {
        let size = usize::try_from(self.info.size).unwrap_or(usize::MAX);
        if size > max {
            return Err(Error::Exhausted("the file is too large for a batch"));
        }
        let range = Range {
            offset: 0,
            left: self.info.size,
        };
        let (chunks, _) = range.read(&self.fd, usize::MAX)?;
        Ok(chunks.concat().into())
    }
}

/// The range that is still to be read.
#[derive(Clone, Copy)]
struct Range {
    offset: u64,
    left: u64,
}

impl Range {
    /// Reads some chunks; returns the remaining range, which is empty at end of file.
    fn read(mut self, fd: &OwnedFd, chunks_max: usize) -> Result<(Vec<Bytes>, Self), Error> {
        let mut chunks = Vec::new();
        while self.left > 0 && chunks.len() < chunks_max {
            let want = usize::try_from(self.left)
                .map_or(CHUNK_BYTES_MAX, |left| left.min(CHUNK_BYTES_MAX));
            let mut buffer = vec![0; want];
            let count =
                rustix::io::pread(fd, &mut buffer[..], self.offset).step("read the file")?;
            if count == 0 {
                self.left = 0;
                break;
            }
            buffer.truncate(count);
            self.offset += count as u64;
            self.left -= count as u64;
            chunks.push(buffer.into());
        }
        Ok((chunks, self))
    }
}

/// Reads batch after batch as the reader consumes them; stops when it goes away.
async fn feed(
    sender: mpsc::Sender<Result<ReadReply, Status>>,
    fd: Arc<OwnedFd>,
    info: Result<ReadReply, Status>,
    mut range: Range,
) {
    if sender.send(info).await.is_err() {
        return;
    }
    while range.left > 0 {
        let file = Arc::clone(&fd);
        let replies = match blocking::run(move |_| range.read(&file, BATCH_CHUNKS)).await {
            Ok((chunks, rest)) => {
                range = rest;
                chunks.into_iter().map(data).collect()
            }
            Err(error) => {
                range.left = 0;
                vec![Err(error.into())]
            }
        };
        for reply in replies {
            if sender.send(reply).await.is_err() {
                return;
            }
        }
    }
}

fn data(bytes: Bytes) -> Result<ReadReply, Status> {
    reply(Reply::Data(bytes))
}

#[expect(clippy::unnecessary_wraps, reason = "an item of a stream of results")]
fn reply(reply: Reply) -> Result<ReadReply, Status> {
    Ok(ReadReply { reply: Some(reply) })
}
