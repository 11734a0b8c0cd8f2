//! What can go wrong, in words fit for a model: no secrets, no paths of this host.

use std::time::Duration;

use crate::name::ServerName;

/// Why something could not be had from an upstream.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UpstreamError {
    /// There is none of this name, or this principal may not use it.
    #[error("there is no MCP server `{server}`")]
    Unknown {
        /// As it was asked for.
        server: String,
    },
    /// The server has no such tool.
    #[error("the MCP server `{server}` has no tool `{tool}`")]
    UnknownTool {
        /// The server.
        server: ServerName,
        /// As it was asked for, quoted.
        tool: String,
    },
    /// It could not be started; nothing was called.
    #[error("the MCP server `{server}` could not be started: {reason}")]
    Start {
        /// The server.
        server: ServerName,
        /// What failed.
        reason: String,
    },
    /// It crashed lately and is not started again yet; nothing was called.
    #[error("the MCP server `{server}` failed {failures} times in a row ({reason}); it is tried again in {} seconds", retry_in.as_secs().max(1))]
    BackOff {
        /// The server.
        server: ServerName,
        /// How often.
        failures: u32,
        /// The last failure.
        reason: String,
        /// When it may be tried again.
        retry_in: Duration,
    },
    /// No answer in time. The server was told to cancel; whether it did the work is unknown.
    #[error("the MCP server `{server}` did not answer within {} seconds", after.as_secs_f32())]
    Timeout {
        /// The server.
        server: ServerName,
        /// How long was waited.
        after: Duration,
    },
    /// It ended, or its connection did, before it answered; whether it did the work is unknown.
    #[error("the MCP server `{server}` ended before it answered ({reason})")]
    Crashed {
        /// The server.
        server: ServerName,
        /// What is known.
        reason: String,
    },
    /// The answer, or what was to be sent, is larger than the bound.
    #[error("the {what} the MCP server `{server}` is larger than {bytes_max} bytes")]
    TooLarge {
        /// The server.
        server: ServerName,
        /// `request to` or `answer of`.
        what: &'static str,
        /// The bound.
        bytes_max: usize,
    },
    /// It answered something that is not MCP.
    #[error("the MCP server `{server}` broke the protocol: {reason}")]
    Protocol {
        /// The server.
        server: ServerName,
        /// How.
        reason: String,
    },
    /// It refused our credentials.
    #[error("the MCP server `{server}` refused the request: HTTP status {status}")]
    Refused {
        /// The server.
        server: ServerName,
        /// The HTTP status.
        status: u16,
    },
    /// It answered with an error of its own.
    #[error("the MCP server `{server}` answered with error {code}: {message}")]
    Server {
        /// The server.
        server: ServerName,
        /// Its JSON-RPC code.
        code: i64,
        /// Its message: bounded, control characters escaped, our secrets removed.
        message: String,
    },
    /// Too many calls wait for this server.
    #[error("too many calls to the MCP server `{server}` are in flight ({max})")]
    Busy {
        /// The server.
        server: ServerName,
        /// The bound.
        max: usize,
    },
}

impl UpstreamError {
    /// What happened, for a sentence that names the server already.
    pub(crate) fn reason(&self) -> String {
        match self {
            Self::Start { reason, .. }
            | Self::BackOff { reason, .. }
            | Self::Crashed { reason, .. }
            | Self::Protocol { reason, .. } => reason.clone(),
            Self::Timeout { after, .. } => {
                format!("it did not answer within {} seconds", after.as_secs_f32())
            }
            Self::Server { code, message, .. } => {
                format!("it answered with error {code}: {message}")
            }
            Self::Refused { status, .. } => {
                format!("it refused the request with HTTP status {status}")
            }
            Self::TooLarge { .. } => "its answer is too large".to_owned(),
            Self::Unknown { .. } | Self::UnknownTool { .. } | Self::Busy { .. } => self.to_string(),
        }
    }

    /// Whether it is certain that the server did not see the request.
    pub fn was_not_sent(&self) -> bool {
        match self {
            Self::Unknown { .. }
            | Self::UnknownTool { .. }
            | Self::Start { .. }
            | Self::BackOff { .. }
            | Self::Refused { .. }
            | Self::Busy { .. } => true,
            Self::TooLarge { what, .. } => what.starts_with("request"),
            Self::Timeout { .. }
            | Self::Crashed { .. }
            | Self::Protocol { .. }
            | Self::Server { .. } => false,
        }
    }
}

/// Why the catalogue could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The directory could not be made.
    #[error("could not create the directory of the MCP servers' catalogue")]
    Directory(#[source] std::io::Error),
}
