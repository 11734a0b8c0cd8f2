//! How messages get to an upstream and back.

mod client;
mod events;
mod http;
mod lines;
mod sse;
mod stdio;

use std::sync::Arc;

use bytes::Bytes;

use crate::rpc::{Failure, Peer};
use crate::settings::{Environment, Launch, Redactor};

/// A way to one server. What arrives goes to its [`Peer`].
pub(crate) enum Link {
    /// A child process.
    Stdio(stdio::Stdio),
    /// Streamable HTTP.
    Http(Box<http::Http>),
    /// HTTP with server-sent events.
    Sse(sse::Sse),
}

/// A message on its way, with what HTTP says about it in headers.
#[derive(Debug, Clone)]
pub(crate) struct Parcel {
    /// Our id, if it is a request.
    pub(crate) id: Option<u64>,
    pub(crate) method: &'static str,
    /// The tool, prompt or resource that it is about.
    pub(crate) named: Option<String>,
    /// Whether it is of the revision without sessions.
    pub(crate) is_stateless: bool,
    /// JSON.
    pub(crate) body: Bytes,
}

impl Link {
    /// Starts the program, or prepares to connect. The error is fit for a model.
    pub(crate) fn open(
        launch: &Launch,
        environment: Environment<'_>,
        peer: &Arc<Peer>,
    ) -> Result<(Self, Redactor), String> {
        match launch {
            Launch::Stdio(program) => {
                let (link, redactor) = stdio::Stdio::start(program, environment, peer)?;
                Ok((Self::Stdio(link), redactor))
            }
            Launch::Http(endpoint) => {
                let (link, redactor) = http::Http::new(endpoint, environment, peer)?;
                Ok((Self::Http(Box::new(link)), redactor))
            }
            Launch::Sse(endpoint) => {
                let (link, redactor) = sse::Sse::new(endpoint, environment, peer)?;
                Ok((Self::Sse(link), redactor))
            }
        }
    }

    /// Sends a message.
    pub(crate) async fn send(&self, parcel: Parcel) -> Result<(), Failure> {
        match self {
            Self::Stdio(link) => link.send(parcel.body).await,
            Self::Http(link) => link.send(parcel).await,
            Self::Sse(link) => link.send(parcel).await,
        }
    }

    /// Whether an answer has arrived once its request was sent, or never will.
    pub(crate) fn answers_while_sending(&self) -> bool {
        matches!(self, Self::Http(_))
    }

    /// Tells it what was agreed on.
    pub(crate) fn agreed(&self, version: &'static str) {
        if let Self::Http(link) = self {
            link.agreed(version);
        }
    }

    /// Hands on what a server says unasked, where that needs a request of its own.
    pub(crate) async fn listen(&self) {
        if let Self::Http(link) = self {
            link.listen().await;
        }
    }

    /// Ends it; returns when it has ended.
    pub(crate) async fn stop(&self) {
        match self {
            Self::Stdio(link) => link.stop().await,
            Self::Http(link) => link.stop().await,
            Self::Sse(link) => link.stop(),
        }
    }
}
