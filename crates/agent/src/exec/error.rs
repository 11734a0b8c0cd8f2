//! Why a call about an exec was refused, sorted by what the caller can do about it.

use rustix::io::Errno;

use super::events::SeqError;
use super::start::StartError;
use crate::process::tree::TreeError;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// The start cannot be right.
    #[error(transparent)]
    Start(#[from] StartError),
    /// Something else of the request cannot be right.
    #[error("{0}")]
    Request(&'static str),
    /// No such exec.
    #[error("there is no such exec")]
    NotFound,
    /// The id belongs to another start.
    #[error("the exec id exists with another start")]
    Exists,
    /// A number that was acknowledged or does not exist.
    #[error(transparent)]
    Seq(#[from] SeqError),
    /// Another follower came.
    #[error("another follower has taken the exec over")]
    TakenOver,
    /// The leader must have ended for this.
    #[error("the exec is running")]
    Running,
    /// The leader must not have ended for this.
    #[error("the exec is not running")]
    NotRunning,
    /// The exec has pipes.
    #[error("the exec has no terminal")]
    NoTerminal,
    /// Stdin was never open, was closed, or nobody reads it any more.
    #[error("stdin is closed, {accepted} bytes were accepted")]
    StdinClosed {
        /// Over all calls.
        accepted: u64,
    },
    /// Bytes between what was accepted and the offset are missing.
    #[error("stdin has {accepted} bytes, the offset is behind that")]
    StdinGap {
        /// Over all calls.
        accepted: u64,
    },
    /// The agent may not run anything as somebody else.
    #[error("the agent cannot change to another user")]
    OtherUser,
    /// As many execs as there may be.
    #[error("the agent holds as many execs as it can, none of them finished and acknowledged")]
    Full,
    /// The agent is ending.
    #[error("the agent is shutting down")]
    ShuttingDown,
    /// The kernel refused.
    #[error("could not {step}: {errno}")]
    Os {
        /// What could not be done.
        step: &'static str,
        /// Why.
        errno: Errno,
    },
    /// Processes could not be ended.
    #[error(transparent)]
    Tree(#[from] TreeError),
}

impl ExecError {
    /// Names the step that the kernel refused.
    pub fn os(step: &'static str) -> impl Fn(Errno) -> Self {
        move |errno| Self::Os { step, errno }
    }
}
