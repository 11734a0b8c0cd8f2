//! One JSON-RPC message a line: how stdio and the unix socket speak.
//!
//! A line that is too long or is no message is answered with an error, and the next line is
//! read as if nothing had happened.

use std::io;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use futures_util::future::BoxFuture;
use futures_util::{SinkExt, StreamExt};
use rmcp::RoleServer;
use rmcp::model::{
    ClientJsonRpcMessage, ErrorData, JsonRpcMessage, RequestId, ServerJsonRpcMessage,
};
use rmcp::transport::Transport;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Mutex;
use tokio_util::codec::{
    AnyDelimiterCodec, AnyDelimiterCodecError, Encoder, FramedRead, FramedWrite,
};
use tokio_util::sync::CancellationToken;

use super::limits::MESSAGE_BYTES_MAX;
use super::reply::{Answering, Reply};

/// A read buffer that grew larger than this is given back once it is empty.
const BUFFER_KEPT_BYTES_MAX: usize = 64 << 10;

type Writer<W> = Arc<Mutex<Option<FramedWrite<W, MessageEncoder>>>>;

/// A transport over a pair of byte streams.
pub(crate) struct Lines<R, W> {
    read: FramedRead<R, AnyDelimiterCodec>,
    write: Writer<W>,
    /// Set when the peer takes no more: then it is not listened to either.
    is_broken: CancellationToken,
    refusing: Option<BoxFuture<'static, ()>>,
}

struct MessageEncoder;

/// What a line was.
enum Line {
    Message(Box<ClientJsonRpcMessage>),
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
            refusing: None,
        }
    }

    /// The next line; `None` at the end or when nothing can be read any more.
    async fn next_line(&mut self) -> Option<Line> {
        let line = match self.read.next().await {
            Some(Ok(line)) => parse(&line),
            Some(Err(AnyDelimiterCodecError::MaxChunkLengthExceeded)) => {
                // A framed reader ends after an error, and goes on when it is asked again.
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
}

fn parse(line: &Bytes) -> Line {
    let line = line
        .strip_prefix(b"\xef\xbb\xbf")
        .unwrap_or(line)
        .trim_ascii();
    if line.is_empty() {
        return Line::Nothing;
    }
    match serde_json::from_slice(line) {
        Ok(message) => Line::Message(Box::new(message)),
        Err(_) => explain(line),
    }
}

/// Says what is wrong with a line that is no message.
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
        let write = Arc::clone(&self.write);
        let is_broken = self.is_broken.clone();
        async move {
            let mut write = write.lock().await;
            let sent = match write.as_mut() {
                Some(write) => write.send(message).await,
                None => return Err(io::ErrorKind::NotConnected.into()),
            };
            if sent.is_err() {
                // A part of a message may be written: nothing can follow it.
                write.take();
                is_broken.cancel();
            }
            sent
        }
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

impl<R, W> Answering for Lines<R, W>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    fn answer(
        &mut self,
        message: ServerJsonRpcMessage,
        reply: Option<Reply>,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let sent = self.send(message);
        async move {
            let result = sent.await;
            drop(reply);
            result
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
            // Kept, because this future may be dropped at any await.
            if let Some(refusing) = &mut self.refusing {
                refusing.await;
                self.refusing = None;
            }
            match self.next_line().await? {
                Line::Message(message) => return Some(*message),
                Line::Nothing => {}
                Line::Bad(error, id) => {
                    let sent = self.send(JsonRpcMessage::error(error, id));
                    self.refusing = Some(Box::pin(async move { drop(sent.await) }));
                }
            }
        }
    }
}

impl Encoder<ServerJsonRpcMessage> for MessageEncoder {
    type Error = io::Error;

    fn encode(&mut self, message: ServerJsonRpcMessage, buffer: &mut BytesMut) -> io::Result<()> {
        serde_json::to_writer(buffer.writer(), &message)?;
        buffer.put_u8(b'\n');
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

    use super::*;

    const PING: &[u8] = br#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#;

    /// What is answered to `input`, and how many messages come out of it.
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
}
