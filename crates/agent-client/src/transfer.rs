//! Transfers file content and archives, in bounded chunks.

use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;
use hotcell_agent_api::bounds::CHUNK_BYTES_MAX;
use hotcell_agent_api::v1::read_reply::Reply;
use hotcell_agent_api::v1::{
    ExportReply, ExportRequest, ImportHeader, ImportRequest, ReadReply, ReadRequest, WriteRequest,
    import_request, write_request,
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use crate::file::write_header;
use crate::{Agent, AgentError, FileInfo, WriteOptions};

/// Chunks queued for the agent.
const PIECES_QUEUED_MAX: usize = 4;

/// Bytes from the agent.
#[derive(Debug)]
pub struct ByteReader {
    source: Source,
    /// How many bytes may still come, if known.
    left: Option<u64>,
}

#[derive(Debug)]
enum Source {
    File(Streaming<ReadReply>),
    Archive(Streaming<ExportReply>),
}

/// Bytes to the agent. Dropping it before [`ByteWriter::finish`] abandons the transfer: the file is
/// unchanged.
pub struct ByteWriter<T> {
    pieces: mpsc::Sender<Piece>,
    outcome: Pin<Box<dyn Future<Output = Result<T, AgentError>> + Send>>,
}

enum Piece {
    Data(Bytes),
    /// Distinguishes the end from a writer that was dropped halfway.
    End,
}

impl Agent {
    /// Reads at most `limit` bytes of a file from `offset`, or to its end.
    pub async fn read(
        &self,
        path: &[u8],
        offset: u64,
        limit: Option<u64>,
    ) -> Result<(FileInfo, ByteReader), AgentError> {
        let request = ReadRequest {
            path: Bytes::copy_from_slice(path),
            offset,
            limit,
        };
        let mut replies = self.calls().read(request).await?.into_inner();
        let Some(Reply::Info(info)) = replies.message().await?.and_then(|reply| reply.reply) else {
            return Err(AgentError::Protocol(
                "a read does not begin with the file's description",
            ));
        };
        let info = FileInfo::parse(info)?;
        let present = info.size.saturating_sub(offset);
        let reader = ByteReader {
            source: Source::File(replies),
            left: Some(limit.map_or(present, |limit| limit.min(present))),
        };
        Ok((info, reader))
    }

    /// Writes a file from memory.
    pub async fn write_all(
        &self,
        path: &[u8],
        data: Bytes,
        options: WriteOptions,
    ) -> Result<FileInfo, AgentError> {
        use write_request::Request;
        let count = data.len().div_ceil(CHUNK_BYTES_MAX);
        let pieces = (0..count).map(move |n| {
            let start = n * CHUNK_BYTES_MAX;
            Request::Data(data.slice(start..data.len().min(start + CHUNK_BYTES_MAX)))
        });
        // All content is in memory, so a small file is sent in one frame.
        let requests = std::iter::once(Request::Header(write_header(path, options)))
            .chain(pieces)
            .chain([Request::End(true)])
            .map(|request| WriteRequest {
                request: Some(request),
            });
        let written = self.calls().write(tokio_stream::iter(requests)).await?;
        FileInfo::parse(written.into_inner())
    }

    /// Starts writing a file.
    pub fn write(&self, path: &[u8], options: WriteOptions) -> ByteWriter<FileInfo> {
        let header = write_header(path, options);
        let first = WriteRequest {
            request: Some(write_request::Request::Header(header)),
        };
        let mut calls = self.calls();
        let end = WriteRequest {
            request: Some(write_request::Request::End(true)),
        };
        ByteWriter::begin(
            first,
            |data| WriteRequest {
                request: Some(write_request::Request::Data(data)),
            },
            Some(end),
            move |requests| async move { FileInfo::parse(calls.write(requests).await?.into_inner()) },
        )
    }

    /// Starts unpacking a tar stream into a directory; finishes with the number of members and
    /// bytes. A bound of 0 means the agent's own.
    pub fn import(&self, dest: &[u8], bytes_max: u64, entries_max: u64) -> ByteWriter<(u64, u64)> {
        let header = ImportHeader {
            dest: Bytes::copy_from_slice(dest),
            bytes_max,
            entries_max,
        };
        let first = ImportRequest {
            request: Some(import_request::Request::Header(header)),
        };
        let mut calls = self.calls();
        ByteWriter::begin(
            first,
            |data| ImportRequest {
                request: Some(import_request::Request::Data(data)),
            },
            // An archive has an end marker of its own.
            None,
            move |requests| async move {
                let reply = calls.import(requests).await?.into_inner();
                Ok((reply.entries, reply.bytes))
            },
        )
    }

    /// Packs a file or a directory into a tar stream.
    pub async fn export(
        &self,
        path: &[u8],
        include: &[String],
        exclude: &[String],
    ) -> Result<ByteReader, AgentError> {
        let request = ExportRequest {
            path: Bytes::copy_from_slice(path),
            include: include.to_vec(),
            exclude: exclude.to_vec(),
        };
        let replies = self.calls().export(request).await?.into_inner();
        Ok(ByteReader {
            source: Source::Archive(replies),
            left: None,
        })
    }
}

impl ByteReader {
    /// The next chunk, of at most [`CHUNK_BYTES_MAX`] bytes; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, AgentError> {
        let piece = match &mut self.source {
            Source::File(replies) => match replies.message().await?.map(|reply| reply.reply) {
                Some(Some(Reply::Data(data))) => Some(data),
                Some(_) => return Err(AgentError::Protocol("a read goes on with no data")),
                None => None,
            },
            Source::Archive(replies) => replies.message().await?.map(|reply| reply.data),
        };
        piece.map(|data| self.admit(data)).transpose()
    }

    fn admit(&mut self, data: Bytes) -> Result<Bytes, AgentError> {
        check_chunk(&data)?;
        if let Some(left) = &mut self.left {
            *left = left
                .checked_sub(data.len() as u64)
                .ok_or(AgentError::Protocol("it sent more than it was asked for"))?;
        }
        Ok(data)
    }

    /// Reads the rest, which must be at most `bytes_max`.
    pub async fn collect(mut self, bytes_max: usize) -> Result<Vec<u8>, AgentError> {
        let mut all = Vec::new();
        while let Some(piece) = self.next().await? {
            if all.len() + piece.len() > bytes_max {
                return Err(AgentError::Protocol("it sent more than it was asked for"));
            }
            all.extend_from_slice(&piece);
        }
        Ok(all)
    }
}

/// Checks the size of a chunk. It must not be empty either, or a stream of nothing could go on for
/// ever.
pub(crate) fn check_chunk(data: &Bytes) -> Result<(), AgentError> {
    match data.len() {
        1..=CHUNK_BYTES_MAX => Ok(()),
        0 => Err(AgentError::Protocol("it sent an empty chunk")),
        _ => Err(AgentError::Protocol("it sent a chunk over the bound")),
    }
}

impl<T: Send + 'static> ByteWriter<T> {
    fn begin<R, F, C>(first: R, wrap: fn(Bytes) -> R, mut end: Option<R>, call: C) -> Self
    where
        R: Send + 'static,
        F: Future<Output = Result<T, AgentError>> + Send + 'static,
        C: FnOnce(ReceiverStream<R>) -> F,
    {
        let (pieces, mut queued) = mpsc::channel(PIECES_QUEUED_MAX);
        let (requests, outgoing) = mpsc::channel(PIECES_QUEUED_MAX);
        let feed = async move {
            let mut next = Some(first);
            while let Some(request) = next.take() {
                if requests.send(request).await.is_err() {
                    return true;
                }
                match queued.recv().await {
                    Some(Piece::Data(data)) => next = Some(wrap(data)),
                    Some(Piece::End) => {
                        if let Some(end) = end.take() {
                            let _ = requests.send(end).await;
                        }
                        return true;
                    }
                    None => return false,
                }
            }
            true
        };
        let call = call(ReceiverStream::new(outgoing));
        Self {
            pieces,
            outcome: Box::pin(feed_and_call(feed, call)),
        }
    }

    /// Sends bytes. Waits while the agent is busy.
    pub async fn write(&mut self, data: Bytes) -> Result<(), AgentError> {
        let mut rest = data;
        while !rest.is_empty() {
            let piece = rest.split_to(rest.len().min(CHUNK_BYTES_MAX));
            self.send(Piece::Data(piece)).await?;
        }
        Ok(())
    }

    /// Marks the end and waits for the agent's answer.
    pub async fn finish(mut self) -> Result<T, AgentError> {
        self.send(Piece::End).await?;
        self.outcome.await
    }

    /// Queues a chunk while driving the call, which nothing else does.
    async fn send(&mut self, piece: Piece) -> Result<(), AgentError> {
        tokio::select! {
            biased;
            sent = self.pieces.send(piece) => sent.map_err(|_| AgentError::Lost),
            early = &mut self.outcome => {
                // A finished future must not be polled again, whatever the caller does next.
                self.outcome = Box::pin(async { Err(AgentError::Lost) });
                Err(early.err().unwrap_or(AgentError::Protocol(
                    "it answered before it had everything",
                )))
            }
        }
    }
}

/// Drives both until the call is answered. Dropping the writer drops this future and with it the
/// call: the agent sees a cancelled stream, not an end.
async fn feed_and_call<T>(
    feed: impl Future<Output = bool>,
    call: impl Future<Output = Result<T, AgentError>>,
) -> Result<T, AgentError> {
    let mut call = std::pin::pin!(call);
    let mut feed = std::pin::pin!(feed);
    tokio::select! {
        answer = &mut call => return answer,
        whole = &mut feed => if !whole {
            return Err(AgentError::Lost);
        },
    }
    call.await
}
