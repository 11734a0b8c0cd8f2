//! The server's half of the agent protocol.
//!
//! An [`Agent`] speaks over one byte stream that an engine opened. The container at the other end
//! is hostile: whatever arrives is checked against the protocol's bounds here, once, and becomes
//! one of our types or an error. No type of the wire protocol leaves this crate.

#![forbid(unsafe_code)]

mod cleanup;
mod connect;
mod datagrams;
mod disk;
mod error;
mod exec;
mod feature;
mod file;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod notebook;
mod timed;
mod transfer;
mod trust;
mod tunnel;

use hotcell_agent_api::v1::agent_client::AgentClient;

pub use cleanup::{Changes, Cleanup};
pub use datagrams::{DatagramSender, Datagrams};
pub use disk::DiskUse;
pub use error::{AgentError, AgentRefusal};
pub use exec::{
    Command, Event, EventKind, ExecInfo, Exit, ExitCause, Follow, Interpreter, Output, Usage,
    Winsize,
};
pub use feature::{Feature, Features};
pub use file::{BatchOutcome, FileInfo, FileKind, Operation, Page, Precondition, WriteOptions};
pub use hotcell_agent_api::bounds;
pub use notebook::{
    CellEnd, CellForm, CellValue, NotebookChannel, NotebookDeath, NotebookError, NotebookEvent,
    NotebookFrame, NotebookHello, NotebookRequest,
};
pub use timed::CallObserver;
pub use transfer::{ByteReader, ByteWriter};
pub use trust::TrustFiles;
pub use tunnel::{IncomingTunnel, TunnelAddress, TunnelStream, Tunnels};

use timed::TimedChannel;

/// A connection to a container's agent. Cheap to clone; all clones share it.
#[derive(Clone, Debug)]
pub struct Agent {
    calls: AgentClient<TimedChannel>,
    hello: Hello,
}

/// What an agent reports about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Its package version.
    pub version: String,
    /// Random per agent process: a new value means that the agent was restarted.
    pub boot_id: [u8; 16],
    /// The directory whose files it serves.
    pub root: String,
    /// The user id of execs.
    pub uid: u32,
    /// The group id of execs.
    pub gid: u32,
    /// Whether execs may run as another user.
    pub can_switch_user: bool,
    /// The environment of the agent: the image's variables and those that the engine adds.
    pub env: Vec<Variable>,
    /// The newest protocol version that both sides support.
    pub protocol: u32,
    /// The features that it supports beyond the first version.
    pub features: Features,
}

/// Name and value of an environment variable.
pub type Variable = (Vec<u8>, Vec<u8>);

impl Hello {
    /// The environment of the agent.
    pub fn variables(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.env.iter().map(|(name, value)| (&name[..], &value[..]))
    }
}

impl Agent {
    /// The agent's answer to `Hello`, from when the connection was made.
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// Whether the agent supports a feature; one that is older than the feature does not.
    pub fn has(&self, feature: Feature) -> bool {
        self.hello.features.contains(feature)
    }

    /// Fails with [`AgentError::TooOld`] if the agent does not support a feature.
    pub fn require(&self, feature: Feature) -> Result<(), AgentError> {
        let too_old = AgentError::TooOld { feature };
        self.has(feature).then_some(()).ok_or(too_old)
    }

    fn calls(&self) -> AgentClient<TimedChannel> {
        self.calls.clone()
    }
}
