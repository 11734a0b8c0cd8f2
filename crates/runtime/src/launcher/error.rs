//! Why a container was not started.

use std::io;

use serde::{Deserialize, Serialize};

use crate::plan::InvalidSpec;
use crate::start::StartError;

/// Why a container was not started. Nothing of it is left.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// There is no launcher any more; start another.
    #[error("the launcher has ended")]
    Gone {
        /// How that showed itself.
        source: io::Error,
    },
    /// The launcher itself could not be started.
    #[error("could not start the launcher")]
    Start {
        /// Why.
        source: io::Error,
    },
    /// The spec asks for what cannot be.
    #[error("{reason}")]
    InvalidSpec {
        /// Which rule it breaks.
        reason: String,
    },
    /// A step on the way failed.
    #[error("could not {step}")]
    Step {
        /// What was to be done.
        step: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The first process was killed on the way, or took too long.
    #[error("{reason}")]
    Ended {
        /// Which of the two.
        reason: String,
    },
}

impl LaunchError {
    pub(super) fn step(step: &str) -> impl FnOnce(io::Error) -> Self {
        let step = step.to_owned();
        move |source| Self::Step { step, source }
    }
}

impl From<InvalidSpec> for LaunchError {
    fn from(invalid: InvalidSpec) -> Self {
        Self::InvalidSpec { reason: invalid.0 }
    }
}

impl From<StartError> for LaunchError {
    fn from(error: StartError) -> Self {
        match error {
            StartError::Step { step, source } => Self::Step {
                step: step.to_owned(),
                source,
            },
            StartError::Died | StartError::TimedOut => Self::Ended {
                reason: error.to_string(),
            },
        }
    }
}

/// The same, in a form that can be sent.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum SentError {
    InvalidSpec {
        reason: String,
    },
    Step {
        step: String,
        errno: Option<i32>,
        text: String,
    },
    Ended {
        reason: String,
    },
}

impl From<LaunchError> for SentError {
    fn from(error: LaunchError) -> Self {
        let sent = |step: &str, source: io::Error| Self::Step {
            step: step.to_owned(),
            errno: source.raw_os_error(),
            text: source.to_string(),
        };
        match error {
            LaunchError::InvalidSpec { reason } => Self::InvalidSpec { reason },
            LaunchError::Ended { reason } => Self::Ended { reason },
            LaunchError::Step { step, source } => sent(&step, source),
            LaunchError::Gone { source } | LaunchError::Start { source } => {
                sent("start the launcher", source)
            }
        }
    }
}

impl From<SentError> for LaunchError {
    fn from(sent: SentError) -> Self {
        match sent {
            SentError::InvalidSpec { reason } => Self::InvalidSpec { reason },
            SentError::Ended { reason } => Self::Ended { reason },
            SentError::Step { step, errno, text } => {
                let source =
                    errno.map_or_else(|| io::Error::other(text), io::Error::from_raw_os_error);
                Self::Step { step, source }
            }
        }
    }
}
