//! The server's half of the agent protocol.
//!
//! An [`Agent`] speaks over one byte stream that an engine opened. The container at
//! the other end is hostile: whatever arrives is checked against the protocol's
//! bounds here, once, and becomes a type of ours or an error. No type of the wire
//! protocol leaves this crate.

#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

mod connect;
mod error;
mod exec;
mod feature;
mod file;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod transfer;
mod tunnel;

use hotcell_agent_api::v1::agent_client::AgentClient;
use tonic::transport::Channel;

pub use error::{AgentError, AgentRefusal};
pub use exec::{
    Command, Event, EventKind, ExecInfo, Exit, ExitCause, Follow, Output, Usage, Winsize,
};
pub use feature::{Feature, Features};
pub use file::{BatchOutcome, FileInfo, FileKind, Operation, Page, Precondition, WriteOptions};
pub use hotcell_agent_api::bounds;
pub use transfer::{ByteReader, ByteWriter};
pub use tunnel::{IncomingTunnel, TunnelAddress, TunnelStream, Tunnels};

/// A connection to a container's agent. Cheap to clone; all clones share it.
#[derive(Clone, Debug)]
pub struct Agent {
    calls: AgentClient<Channel>,
    hello: Hello,
}

/// What an agent says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Its package version.
    pub version: String,
    /// Another value means that another agent answers.
    pub boot_id: [u8; 16],
    /// The directory below which it serves files.
    pub root: String,
    /// The user execs run as.
    pub uid: u32,
    /// The group execs run as.
    pub gid: u32,
    /// Whether an exec may ask for another user.
    pub can_switch_user: bool,
    /// What it was started with: the image's variables, and what the engine adds.
    pub env: Vec<Variable>,
    /// The newest protocol version that it and this server speak.
    pub protocol: u32,
    /// What it can do beyond the first version.
    pub features: Features,
}

/// The name and the value of an environment variable.
pub type Variable = (Vec<u8>, Vec<u8>);

impl Hello {
    /// The variables it was started with.
    pub fn variables(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.env.iter().map(|(name, value)| (&name[..], &value[..]))
    }
}

impl Agent {
    /// What the agent said when the connection was made.
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// Whether the agent can do this; one that is older than the feature cannot.
    pub fn has(&self, feature: Feature) -> bool {
        self.hello.features.contains(feature)
    }

    /// Fails with [`AgentError::TooOld`] where the agent cannot do this.
    pub fn require(&self, feature: Feature) -> Result<(), AgentError> {
        let too_old = AgentError::TooOld { feature };
        self.has(feature).then_some(()).ok_or(too_old)
    }

    fn calls(&self) -> AgentClient<Channel> {
        self.calls.clone()
    }
}
