//! Connects to an agent over a byte stream.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hotcell_agent_api::bounds::{
    CONNECTION_WINDOW_BYTES, ENGINE_ENV_BYTES_MAX, ENGINE_ENV_MAX, FRAME_BYTES_MAX,
    IMAGE_ENV_BYTES_MAX, IMAGE_ENV_MAX, MESSAGE_BYTES_MAX, PATH_BYTES_MAX, PROTOCOL_VERSION_MAX,
    PROTOCOL_VERSION_MIN, STREAM_WINDOW_BYTES, STREAMS_MAX,
};
use hotcell_agent_api::v1::agent_client::AgentClient;
use hotcell_agent_api::v1::{EnvVar, HelloReply, HelloRequest};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tonic::transport::{Channel, Endpoint};

use crate::error::printable;
use crate::timed::{CallObserver, TimedChannel};
use crate::{Agent, AgentError, Features, Hello, Variable};

/// How long an agent may take to answer `Hello`: a few milliseconds after its start, longer on a
/// busy or emulated host.
const HELLO_TIMEOUT: Duration = Duration::from_secs(30);

/// Headers an agent may send with one answer.
const HEADER_BYTES_MAX: u32 = 16 << 10;

/// Calls that wait to be written to the connection.
const CALLS_QUEUED_MAX: usize = 1024;

impl Agent {
    /// Performs the handshake over a stream that an engine opened.
    pub async fn connect<S>(stream: S) -> Result<Self, AgentError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        Self::connect_observed(stream, None).await
    }

    /// Like [`Agent::connect`]; `observer` is called with the duration of each call.
    pub async fn connect_observed<S>(
        stream: S,
        observer: Option<CallObserver>,
    ) -> Result<Self, AgentError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let hand_shake = async {
            let channel = channel(stream).await?;
            let mut calls = AgentClient::new(TimedChannel { channel, observer })
                .max_decoding_message_size(MESSAGE_BYTES_MAX)
                .max_encoding_message_size(MESSAGE_BYTES_MAX);
            let reply = calls
                .hello(HelloRequest {
                    protocol: PROTOCOL_VERSION_MIN,
                    protocol_max: PROTOCOL_VERSION_MAX,
                })
                .await?;
            let hello = Hello::parse(reply.into_inner())?;
            Ok(Self { calls, hello })
        };
        tokio::time::timeout(HELLO_TIMEOUT, hand_shake)
            .await
            .unwrap_or(Err(AgentError::Lost))
    }
}

/// A channel over exactly this stream. When the stream ends, so does the channel, and the caller
/// asks the engine for a new one.
async fn channel<S>(stream: S) -> Result<Channel, AgentError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let once = Arc::new(Mutex::new(Some(stream)));
    let connector = tower::service_fn(move |_| {
        let stream = once.lock().unwrap_or_else(PoisonError::into_inner).take();
        async move {
            stream
                .map(TokioIo::new)
                .ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected))
        }
    });
    // The name is never resolved: the connector above already has the stream.
    Endpoint::from_static("http://agent")
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_frame_size(FRAME_BYTES_MAX)
        .http2_max_header_list_size(HEADER_BYTES_MAX)
        // Frames that arrive for calls that we have dropped are not a protocol violation.
        .http2_max_concurrent_reset_streams(STREAMS_MAX as usize)
        .buffer_size(CALLS_QUEUED_MAX)
        .connect_with_connector(connector)
        .await
        .map_err(|_| AgentError::Lost)
}

impl Hello {
    pub(crate) fn parse(reply: HelloReply) -> Result<Self, AgentError> {
        let protocol = agreed_version(&reply)?;
        let is_plain = !reply.root.chars().any(char::is_control);
        if !reply.root.starts_with('/') || reply.root.len() > PATH_BYTES_MAX || !is_plain {
            return Err(AgentError::Protocol("its root is not an absolute path"));
        }
        let boot_id = reply.boot_id.as_ref().try_into();
        Ok(Self {
            version: printable(&reply.version),
            boot_id: boot_id.map_err(|_| AgentError::Protocol("its boot id is not 16 bytes"))?,
            root: reply.root,
            uid: reply.uid,
            gid: reply.gid,
            can_switch_user: reply.can_switch_user,
            env: environment(&reply.env)?,
            protocol,
            features: Features::parse(reply.features),
        })
    }
}

/// The newest version that both support. An agent of version 1 sends no range.
fn agreed_version(reply: &HelloReply) -> Result<u32, AgentError> {
    let (oldest, newest) = match reply.protocol_max {
        0 => (reply.protocol, reply.protocol),
        newest => (reply.protocol, newest),
    };
    if oldest == 0 || oldest > newest {
        return Err(AgentError::Protocol("its versions are no range"));
    }
    if newest < PROTOCOL_VERSION_MIN || oldest > PROTOCOL_VERSION_MAX {
        return Err(AgentError::Version { oldest, newest });
    }
    Ok(newest.min(PROTOCOL_VERSION_MAX))
}

fn environment(env: &[EnvVar]) -> Result<Vec<Variable>, AgentError> {
    let bytes = env.iter().map(|one| one.name.len() + one.value.len() + 2);
    let fits = env.len() <= IMAGE_ENV_MAX + ENGINE_ENV_MAX
        && bytes.sum::<usize>() <= IMAGE_ENV_BYTES_MAX + ENGINE_ENV_BYTES_MAX;
    if !fits {
        return Err(AgentError::Protocol("its environment is over its bounds"));
    }
    let pair = |one: &EnvVar| (one.name.to_vec(), one.value.to_vec());
    Ok(env.iter().map(pair).collect())
}
