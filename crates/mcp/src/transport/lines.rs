//! One JSON-RPC message per line: the format of stdio and the unix socket.
//!
//! A line that is too long or not a message is answered with an error, and reading continues with
//! the next line. A line may be a batch, if the protocol version has them.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex as SyncMutex, MutexGuard, PoisonError};

use bytes::{BufMut, Bytes, BytesMut};
use futures_util::future::BoxFuture;
use futures_util::{SinkExt, StreamExt};
use rmcp::RoleServer;
use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, ErrorData, JsonRpcMessage, RequestId,
    ServerJsonRpcMessage,
};
use rmcp::transport::Transport;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Mutex;
use tokio_util::codec::{
    AnyDelimiterCodec, AnyDelimiterCodecError, Encoder, FramedRead, FramedWrite,
};
use tokio_util::sync::CancellationToken;

use super::batch::{Batch, Batches, OutgoingMessages, OutgoingReply, WRONG_VERSION, is_batch};
use super::limits::MESSAGE_BYTES_MAX;
use super::reply_budget::{ReplyLease, SendReply};

/// A larger read buffer is freed once it is empty.
const BUFFER_KEPT_BYTES_MAX: usize = 64 << 10;

type Writer<W> = Arc<Mutex<Option<FramedWrite<W, MessageEncoder>>>>;

/// A transport over a pair of byte streams.
pub(crate) struct Lines<R, W> {
    read: FramedRead<R, AnyDelimiterCodec>,
    write: Writer<W>,
    /// Set when writing to the peer has failed: then nothing is read from it either.
    is_broken: CancellationToken,
    /// Messages of a batch that were not delivered yet.
    queue: VecDeque<ClientJsonRpcMessage>,
    batches: Arc<SyncMutex<Batches>>,
    refusing: Option<BoxFuture<'static, ()>>,
}

struct MessageEncoder;

/// A parsed line.
enum Line {
    Message(Box<ClientJsonRpcMessage>),
    Batch(Batch),
    Nothing,
    Bad(ErrorData, Option<RequestId>),
}

impl<R, W> Lines<R, W>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    pub(crate) fn new(read: R, write: W) -> Self {
        Self::with_line_bytes_max(read, write, MESSAGE_BYTES_MAX)
    }

    fn with_line_bytes_max(read: R, write: W, bytes_max: usize) -> Self {
        let newline = b"\n".to_vec();
        let codec = AnyDelimiterCodec::new_with_max_length(newline.clone(), newline, bytes_max);
        let write = FramedWrite::new(write, MessageEncoder);
        Self {
            read: FramedRead::new(read, codec),
            write: Arc::new(Mutex::new(Some(write))),
            is_broken: CancellationToken::new(),
            queue: VecDeque::new(),
            batches: Arc::default(),
            refusing: None,
        }
    }

    /// The next line; `None` at end of file or after a read error.
    async fn next_line(&mut self) -> Option<Line> {
        let line = match self.read.next().await {
            Some(Ok(line)) => parse(&line, lock(&self.batches).are_allowed()),
            Some(Err(AnyDelimiterCodecError::MaxChunkLengthExceeded)) => {
                // A framed reader ends after an error, and continues when it is polled again.
                let _ = self.read.next().await;
                let message = format!("a message is longer than {MESSAGE_BYTES_MAX} bytes");
                Line::Bad(ErrorData::invalid_request(message, None), None)
            }
            Some(Err(AnyDelimiterCodecError::Io(error))) => {
                tracing::debug!(%error, "could not read a message");
                return None;
            }
            None => return None,
        };
        let buffer = self.read.read_buffer_mut();
        if buffer.is_empty() && buffer.capacity() > BUFFER_KEPT_BYTES_MAX {
            *buffer = BytesMut::new();
        }
        Some(line)
    }

    /// Splits a batch.
    fn begin(&mut self, batch: Batch) {
        let (messages, done) = lock(&self.batches).begin(batch);
        for message in &messages {
            self.note_cancelled(message);
        }
        self.queue.extend(messages);
        self.send_later(done);
    }

    fn note_cancelled(&mut self, message: &ClientJsonRpcMessage) {
        if let JsonRpcMessage::Notification(notification) = message
            && let ClientNotification::CancelledNotification(cancelled) = &notification.notification
            && let Some(id) = &cancelled.params.request_id
        {
            let done = lock(&self.batches).forget(id);
            self.send_later(done);
        }
    }

    /// Sends something before the next line is read.
    fn send_later(&mut self, sending: Option<OutgoingReply>) {
        let Some(sending) = sending else {
            return;
        };
        let (write, is_broken) = (Arc::clone(&self.write), self.is_broken.clone());
        let before = self.refusing.take();
        self.refusing = Some(Box::pin(async move {
            if let Some(before) = before {
                before.await;
            }
            drop(put(&write, &is_broken, sending).await);
        }));
    }
}

fn lock(batches: &SyncMutex<Batches>) -> MutexGuard<'_, Batches> {
    batches.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes a message; releases its part of the reply budget when it is written, or never will be.
async fn put<W: AsyncWrite + Unpin>(
    write: &Writer<W>,
    is_broken: &CancellationToken,
    sending: OutgoingReply,
) -> io::Result<()> {
    let OutgoingReply { what, replies } = sending;
    let mut write = write.lock().await;
    let sent = match write.as_mut() {
        Some(write) => write.send(what).await,
        None => return Err(io::ErrorKind::NotConnected.into()),
    };
    if sent.is_err() {
        // Part of a message may be written, so nothing can follow it.
        write.take();
        is_broken.cancel();
    }
    drop(replies);
    sent
}

fn parse(line: &Bytes, takes_batches: bool) -> Line {
    let line = line
        .strip_prefix(b"\xef\xbb\xbf")
        .unwrap_or(line)
        .trim_ascii();
    if line.is_empty() {
        return Line::Nothing;
    }
    if is_batch(line) {
        return parse_batch(line, takes_batches);
    }
    match serde_json::from_slice(line) {
        Ok(message) => Line::Message(Box::new(message)),
        Err(_) => explain(line),
    }
}

fn parse_batch(line: &[u8], is_allowed: bool) -> Line {
    let batch = if is_allowed {
        Batch::parse(line)
    } else {
        Err(WRONG_VERSION.to_owned())
    };
    match batch {
        Ok(batch) => Line::Batch(batch),
        Err(reason) => Line::Bad(ErrorData::invalid_request(reason, None), None),
    }
}

/// Explains why a line is not a message.
fn explain(line: &[u8]) -> Line {
    let Ok(value) = serde_json::from_slice::<Value>(line) else {
        return Line::Bad(ErrorData::parse_error("this line is not JSON", None), None);
    };
    let id = value.get("id");
    if id.is_none() && value.get("method").is_some() {
        // A notification of another protocol, or of a later version of this one.
        return Line::Nothing;
    }
    let id = id.and_then(|id| serde_json::from_value(id.clone()).ok());
    let error = ErrorData::invalid_request("this is JSON, but no JSON-RPC 2.0 message", None);
    Line::Bad(error, id)
}

impl<R, W> Transport<RoleServer> for Lines<R, W>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    type Error = io::Error;

    fn send(
        &mut self,
        message: ServerJsonRpcMessage,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        self.answer(message, None)
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        let is_broken = self.is_broken.clone();
        is_broken.run_until_cancelled(self.next_message()).await?
    }

    async fn close(&mut self) -> io::Result<()> {
        drop(self.write.lock().await.take());
        Ok(())
    }
}

impl<R, W> SendReply for Lines<R, W>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    fn answer(
        &mut self,
        message: ServerJsonRpcMessage,
        reply: Option<ReplyLease>,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let sending = lock(&self.batches).outgoing(message, reply);
        let (write, is_broken) = (Arc::clone(&self.write), self.is_broken.clone());
        async move {
            match sending {
                Some(sending) => put(&write, &is_broken, sending).await,
                None => Ok(()),
            }
        }
    }
}

impl<R, W> Lines<R, W>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    async fn next_message(&mut self) -> Option<ClientJsonRpcMessage> {
        loop {
            // Kept in a field, because this future may be dropped at any await.
            if let Some(refusing) = &mut self.refusing {
                refusing.await;
                self.refusing = None;
            }
            if let Some(message) = self.queue.pop_front() {
                return Some(message);
            }
            match self.next_line().await? {
                Line::Message(message) => {
                    self.note_cancelled(&message);
                    return Some(*message);
                }
                Line::Batch(batch) => self.begin(batch),
                Line::Nothing => {}
                Line::Bad(error, id) => {
                    let error = JsonRpcMessage::error(error, id);
                    self.send_later(Some(OutgoingReply::one(error, None)));
                }
            }
        }
    }
}

impl Encoder<OutgoingMessages> for MessageEncoder {
    type Error = io::Error;

    fn encode(&mut self, outgoing: OutgoingMessages, buffer: &mut BytesMut) -> io::Result<()> {
        match outgoing {
            OutgoingMessages::One(message) => serde_json::to_writer(buffer.writer(), &message)?,
            OutgoingMessages::All(messages) => serde_json::to_writer(buffer.writer(), &messages)?,
        }
        buffer.put_u8(b'\n');
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

    use super::super::write_timeout::WriteTimeout;
    use super::*;

    const PING: &[u8] = br#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#;

    /// The answers to `input`, and the number of messages delivered.
    async fn exchange(input: &[u8]) -> (Vec<String>, usize) {
        let (mut ours, theirs) = tokio::io::duplex(1 << 16);
        let (read, write) = tokio::io::split(theirs);
        let mut lines = Lines::with_line_bytes_max(read, write, 64);
        ours.write_all(input).await.unwrap();
        let (answers, mut to_us) = tokio::io::split(ours);
        to_us.shutdown().await.unwrap();
        let mut count = 0;
        while lines.receive().await.is_some() {
            count += 1;
        }
        drop(lines);
        let mut answers = BufReader::new(answers).lines();
        let mut texts = Vec::new();
        while let Some(text) = answers.next_line().await.unwrap() {
            texts.push(text);
        }
        (texts, count)
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_is_answered_and_the_next_one_is_read() {
        let mut input = vec![b'x'; 1000];
        input.push(b'\n');
        input.extend_from_slice(PING);
        input.push(b'\n');
        let (answers, count) = exchange(&input).await;
        assert_eq!(count, 1);
        assert_eq!(answers.len(), 1, "{answers:?}");
        assert!(
            answers[0].contains("-32600") && answers[0].contains("longer"),
            "{answers:?}"
        );
    }

    #[tokio::test]
    async fn what_is_no_message_is_answered_by_its_id_where_it_has_one() {
        let (answers, count) = exchange(b"{\n{\"id\":3,\"jsonrpc\":\"1.0\"}\n[]\n").await;
        assert_eq!(count, 0);
        assert!(answers[0].contains("-32700"), "{answers:?}");
        assert!(
            answers[1].contains("-32600") && answers[1].contains("\"id\":3"),
            "{answers:?}"
        );
        assert_eq!(answers.len(), 3);
    }

    #[tokio::test]
    async fn empty_lines_and_foreign_notifications_hold_nothing_up() {
        let mut input = b"\r\n\n{\"method\":\"$/trace\",\"params\":{}}\n".to_vec();
        input.extend_from_slice(PING);
        input.extend_from_slice(b"\r\n");
        let (answers, count) = exchange(&input).await;
        assert!(answers.is_empty(), "{answers:?}");
        assert_eq!(count, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_reads_nothing_is_cut_off() {
        let (mut ours, theirs) = tokio::io::duplex(64);
        let (read, write) = tokio::io::split(theirs);
        let write = WriteTimeout::new(write, Duration::from_mins(1));
        let mut lines = Lines::new(read, write);
        ours.write_all(&[PING, b"\n"].concat()).await.unwrap();
        assert!(lines.receive().await.is_some());
        let answer = || {
            let error = ErrorData::internal_error("x".repeat(1000), None);
            JsonRpcMessage::error(error, None)
        };
        let unread = lines.send(answer()).await.unwrap_err();
        assert_eq!(unread.kind(), io::ErrorKind::TimedOut);
        ours.write_all(&[PING, b"\n"].concat()).await.unwrap();
        assert!(lines.receive().await.is_none());
        let gone = lines.send(answer()).await.unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::NotConnected);
    }
}
