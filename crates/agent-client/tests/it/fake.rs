//! An agent that answers `Hello` and then sends whatever the test wants.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use h2::server::SendResponse;
use hotcell_agent_api::v1::HelloReply;
use hotcell_agent_client::bounds::{PROTOCOL_VERSION_MAX, PROTOCOL_VERSION_MIN};
use hotcell_agent_client::{Agent, AgentError};
use http::{HeaderMap, Response};
use prost::Message;
use tokio::io::DuplexStream;

/// How long a call to a hostile agent may take. Time is paused, so this costs nothing.
pub(crate) const DEADLINE: Duration = Duration::from_mins(2);

/// The buffer between client and agent.
const PIPE_BYTES: usize = 64 << 10;

/// How the agent answers one call.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// These bytes as the body, then the status.
    Body(Vec<Bytes>, Option<(u16, String)>),
    /// This chunk for ever.
    Endless(Bytes),
    /// Only a status, with a header of this length.
    Header(usize),
    /// Another HTTP status.
    Http(u16),
    /// A reset of the stream.
    Reset,
    /// No answer.
    Silence,
    /// Closes the whole connection after this part of a body.
    HangUp(Vec<Bytes>),
}

/// A message in a gRPC frame.
pub(crate) fn framed(message: &impl Message) -> Bytes {
    raw_frame(0, None, &message.encode_to_vec())
}

/// A frame with a wrong flag or length.
pub(crate) fn raw_frame(flag: u8, length: Option<u32>, body: &[u8]) -> Bytes {
    let mut frame = BytesMut::new();
    frame.put_u8(flag);
    frame.put_u32(length.unwrap_or_else(|| u32::try_from(body.len()).expect("a short body")));
    frame.put_slice(body);
    frame.freeze()
}

/// Messages, then success.
pub(crate) fn messages<M: Message>(messages: &[M]) -> Answer {
    Answer::Body(
        messages.iter().map(framed).collect(),
        Some((0, String::new())),
    )
}

/// The `Hello` of a real agent.
pub(crate) fn honest_hello() -> HelloReply {
    HelloReply {
        protocol: PROTOCOL_VERSION_MIN,
        protocol_max: PROTOCOL_VERSION_MAX,
        features: u64::MAX,
        version: "0.1.0".into(),
        boot_id: vec![7; 16].into(),
        root: "/workspace".into(),
        uid: 1000,
        gid: 1000,
        can_switch_user: false,
        env: Vec::new(),
    }
}

/// A connection to an agent with these answers, one per call.
pub(crate) async fn connect(answers: Vec<Answer>) -> Result<Agent, AgentError> {
    let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
    tokio::spawn(serve(theirs, answers.into()));
    tokio::time::timeout(DEADLINE, Agent::connect(ours))
        .await
        .expect("a connection is made or refused in time")
}

/// The same, after an honest `Hello`.
pub(crate) async fn agent(answer: Answer) -> Agent {
    connect(vec![messages(&[honest_hello()]), answer])
        .await
        .expect("an honest hello is believed")
}

async fn serve(stream: DuplexStream, mut answers: VecDeque<Answer>) {
    let Ok(mut connection) = h2::server::handshake(stream).await else {
        return;
    };
    while let Some(Ok((_request, respond))) = connection.accept().await {
        let answer = answers.pop_front().unwrap_or(Answer::Silence);
        let Answer::HangUp(body) = answer else {
            tokio::spawn(send(respond, answer));
            continue;
        };
        let sent = tokio::spawn(send(respond, Answer::Body(body, None)));
        let polled = std::future::poll_fn(|cx| connection.poll_closed(cx));
        let _ = tokio::time::timeout(Duration::from_millis(10), polled).await;
        sent.abort();
        return;
    }
}

async fn send(mut respond: SendResponse<Bytes>, answer: Answer) -> Option<()> {
    let response = Response::builder().header("content-type", "application/grpc");
    match answer {
        Answer::Body(body, status) => {
            let mut stream = respond.send_response(response.body(()).ok()?, false).ok()?;
            for piece in body {
                write(&mut stream, piece).await?;
            }
            match status {
                Some((code, message)) => stream.send_trailers(trailers(code, &message)).ok()?,
                None => std::future::pending().await,
            }
        }
        Answer::Endless(piece) => {
            let mut stream = respond.send_response(response.body(()).ok()?, false).ok()?;
            loop {
                write(&mut stream, piece.clone()).await?;
            }
        }
        Answer::Header(bytes) => {
            let response = response
                .header("grpc-status", "5")
                .header("grpc-message", "x".repeat(bytes));
            respond.send_response(response.body(()).ok()?, true).ok()?;
        }
        Answer::Http(status) => {
            let response = Response::builder().status(status);
            respond.send_response(response.body(()).ok()?, true).ok()?;
        }
        Answer::Reset => respond.send_reset(h2::Reason::INTERNAL_ERROR),
        Answer::Silence | Answer::HangUp(_) => std::future::pending().await,
    }
    Some(())
}

/// Writes as much as the reader accepts.
async fn write(stream: &mut h2::SendStream<Bytes>, mut piece: Bytes) -> Option<()> {
    while !piece.is_empty() {
        stream.reserve_capacity(piece.len());
        let room = std::future::poll_fn(|cx| stream.poll_capacity(cx))
            .await?
            .ok()?;
        stream
            .send_data(piece.split_to(room.min(piece.len())), false)
            .ok()?;
    }
    Some(())
}

fn trailers(code: u16, message: &str) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", code.into());
    trailers.insert("grpc-message", message.parse().expect("a plain message"));
    trailers
}
