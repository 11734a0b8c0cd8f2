//! Errors of calls about an exec, grouped by what the caller can do about them.

use rustix::io::Errno;

use super::events::SeqError;
use super::start::StartError;
use crate::process::tree::TreeError;

#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// The `start` request is invalid.
    #[error(transparent)]
    Start(#[from] StartError),
    /// Another request is invalid.
    #[error("{0}")]
    Request(&'static str),
    #[error("there is no such exec")]
    NotFound,
    #[error("the exec id exists with another start")]
    Exists,
    /// The sequence number was acknowledged already or does not exist yet.
    #[error(transparent)]
    Seq(#[from] SeqError),
    #[error("another follower has taken the exec over")]
    TakenOver,
    #[error("the exec is running")]
    Running,
    #[error("the exec is not running")]
    NotRunning,
    #[error("the exec has no terminal")]
    NoTerminal,
    /// Stdin was never open, was closed, or has no reader left.
    #[error("stdin is closed, {accepted} bytes were accepted")]
    StdinClosed {
        /// Total over all calls.
        accepted: u64,
    },
    /// There is a gap between the accepted bytes and the offset.
    #[error("stdin has {accepted} bytes, the offset is behind that")]
    StdinGap {
        /// Total over all calls.
        accepted: u64,
    },
    #[error("the agent cannot change to another user")]
    OtherUser,
    #[error("the agent holds as many execs as it can, none of them finished and acknowledged")]
    Full,
    #[error("the agent is shutting down")]
    ShuttingDown,
    /// A system call failed.
    #[error("could not {step}: {errno}")]
    Os {
        /// Completes "could not …".
        step: &'static str,
        errno: Errno,
    },
    #[error(transparent)]
    Tree(#[from] TreeError),
}

impl ExecError {
    /// Adds the name of the failed step to an errno.
    pub fn os(step: &'static str) -> impl Fn(Errno) -> Self {
        move |errno| Self::Os { step, errno }
    }
}
