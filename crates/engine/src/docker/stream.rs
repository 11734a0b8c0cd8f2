//! A stream to the agent: the stdin and stdout of one exec of `hotcell-agent connect` (the
//! *bridge*), carried by the engine.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bollard::container::LogOutput;
use bollard::errors::Error as ApiError;
use bollard::exec::StartExecResults;
use bollard::models::ExecConfig;
use bytes::{Buf as _, Bytes};
use futures_util::Stream;
use hotcell_agent_client::bounds::{CONNECT_ABSTRACT_FLAG, HANDSHAKE_ACCEPTED};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};

use super::client::{Client, Fault};
use super::profile::{AGENT_SOCKET, CONNECT_UID};
use super::watch::{State, Watch};
use crate::EngineError;

/// Timeout from the request for a stream to the agent's first answer on it.
const OPEN_TIMEOUT: Duration = Duration::from_secs(30);

/// How long the last bytes of an agent may take after its container has exited. Usually the engine
/// closes the stream earlier; sometimes it never does.
const LAST_WORDS_TIMEOUT: Duration = Duration::from_secs(2);

/// Bytes of the bridge's error message that are kept.
const COMPLAINT_BYTES_MAX: usize = 1024;

/// How long to read that message.
const COMPLAINT_TIMEOUT: Duration = Duration::from_secs(1);

type Output = Pin<Box<dyn Stream<Item = Result<LogOutput, ApiError>> + Send>>;

/// Why there is no stream.
#[derive(Debug)]
pub(super) enum OpenError {
    /// The engine did not open one.
    Fault(Fault),
    /// The engine opened one, and no agent answered on it.
    NoAgent(io::Error),
}

/// The bridge's stdin and stdout.
pub(super) struct ExecStream {
    output: Output,
    input: Pin<Box<dyn AsyncWrite + Send>>,
    unread: Bytes,
    complaint: Vec<u8>,
    /// Completes when the container has exited, even if the engine does not close the stream.
    over: Pin<Box<dyn Future<Output = ()> + Send>>,
    is_over: bool,
}

/// Opens a stream to the agent of a running container and waits for its greeting. `agent` is the
/// path of the agent's binary in the container.
pub(super) async fn open(
    client: &Client,
    name: &str,
    agent: &str,
) -> Result<ExecStream, OpenError> {
    let step = "open a stream to the agent";
    let uid = CONNECT_UID.to_string();
    let config = ExecConfig {
        attach_stdin: Some(true),
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        cmd: Some(
            [agent, "connect", CONNECT_ABSTRACT_FLAG, AGENT_SOCKET]
                .map(str::to_owned)
                .into(),
        ),
        user: Some(format!("{uid}:{uid}")),
        working_dir: Some("/".to_owned()),
        ..ExecConfig::default()
    };
    let opening = async |api: &bollard::Docker| {
        let exec = api.create_exec(name, config).await?;
        api.start_exec(&exec.id, None).await
    };
    let started = client.call_within(OPEN_TIMEOUT, step, opening);
    let mut stream = match started.await.map_err(OpenError::Fault)? {
        StartExecResults::Attached { output, input } => ExecStream {
            output,
            input,
            unread: Bytes::new(),
            complaint: Vec::new(),
            over: Box::pin(std::future::pending()),
            is_over: false,
        },
        StartExecResults::Detached => return Err(OpenError::Fault(client.cut(step))),
    };
    stream
        .wait_for_welcome()
        .await
        .map_err(OpenError::NoAgent)?;
    Ok(stream)
}

impl OpenError {
    /// Whether the attempt failed quickly, in a container that exists.
    pub(super) fn is_worth_another_try(&self) -> bool {
        match self {
            Self::Fault(fault) => fault.is_worth_another_try(),
            Self::NoAgent(error) => error.kind() != io::ErrorKind::TimedOut,
        }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fault(fault) => fault.fmt(f),
            Self::NoAgent(error) => error.fmt(f),
        }
    }
}

impl From<OpenError> for EngineError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Fault(fault) => fault.into(),
            OpenError::NoAgent(source) => Self::Engine {
                step: "reach the agent",
                source: source.into(),
            },
        }
    }
}

impl ExecStream {
    /// Ends the stream when the container exits.
    pub(super) fn watched(mut self, watch: Arc<Watch>) -> Self {
        self.over = Box::pin(async move {
            if watch.ended().await != State::Destroyed {
                tokio::time::sleep(LAST_WORDS_TIMEOUT).await;
            }
        });
        self
    }

    async fn wait_for_welcome(&mut self) -> io::Result<()> {
        match tokio::time::timeout(OPEN_TIMEOUT, self.read_u8()).await {
            Ok(Ok(HANDSHAKE_ACCEPTED)) => Ok(()),
            Ok(Ok(first)) => Err(io::Error::other(self.not_an_agent(first).await)),
            Ok(Err(_)) => Err(io::Error::other(self.complaint())),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    /// Describes an answer that is not an agent's: mostly the engine's message why it could not run
    /// the bridge.
    async fn not_an_agent(&mut self, first: u8) -> String {
        self.note(&[first]);
        let mut rest = [0; COMPLAINT_BYTES_MAX];
        if let Ok(Ok(count)) = tokio::time::timeout(COMPLAINT_TIMEOUT, self.read(&mut rest)).await {
            self.note(&rest[..count]);
        }
        self.complaint()
    }

    fn complaint(&self) -> String {
        let said = String::from_utf8_lossy(&self.complaint);
        format!("the way to the agent ended: {}", said.trim())
    }

    /// Whether the stream has already ended, without waiting.
    pub(super) fn has_ended(&mut self) -> bool {
        if !self.unread.is_empty() {
            return false;
        }
        let mut cx = Context::from_waker(Waker::noop());
        matches!(self.poll_fill(&mut cx), Poll::Ready(Ok(false) | Err(_)))
    }

    /// Waits for unread data; false at the end of the stream.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        while self.unread.is_empty() {
            match self.output.as_mut().poll_next(cx) {
                Poll::Pending => {
                    if !self.is_over {
                        ready!(self.over.as_mut().poll(cx));
                        self.is_over = true;
                    }
                    return Poll::Ready(Ok(false));
                }
                Poll::Ready(None) => return Poll::Ready(Ok(false)),
                Poll::Ready(Some(Err(error))) => {
                    return Poll::Ready(Err(io::Error::other(error)));
                }
                Poll::Ready(Some(Ok(LogOutput::StdOut { message }))) => self.unread = message,
                Poll::Ready(Some(Ok(other))) => self.note(&other.into_bytes()),
            }
        }
        Poll::Ready(Ok(true))
    }

    fn note(&mut self, said: &[u8]) {
        let room = COMPLAINT_BYTES_MAX - self.complaint.len();
        self.complaint
            .extend_from_slice(&said[..said.len().min(room)]);
    }
}

impl fmt::Debug for ExecStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExecStream").finish_non_exhaustive()
    }
}

impl AsyncRead for ExecStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if ready!(self.poll_fill(cx))? {
            let count = self.unread.len().min(buf.remaining());
            buf.put_slice(&self.unread[..count]);
            self.unread.advance(count);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ExecStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.input.as_mut().poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.input.as_mut().poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.input.as_mut().poll_shutdown(cx)
    }
}
