//! Errors of starting a container.

use std::io;

use serde::{Deserialize, Serialize};

use crate::plan::InvalidSpec;
use crate::start::StartError;

/// Why a container was not started. Nothing of it is left, except as [`LaunchError::Gone`] says.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The launcher has exited; start another. A cgroup of the container may be left.
    #[error("the launcher has ended")]
    Gone {
        /// How the client noticed.
        source: io::Error,
    },
    /// The launcher itself could not be started.
    #[error("could not start the launcher")]
    Start {
        /// The failed system call.
        source: io::Error,
    },
    /// The spec breaks a rule.
    #[error("{reason}")]
    InvalidSpec {
        /// The rule, for the log.
        reason: String,
    },
    /// A step of the start failed.
    #[error("could not {step}")]
    Step {
        /// Completes "could not …".
        step: String,
        /// The error of the system call.
        source: io::Error,
    },
    /// The first process was killed before exec, or timed out.
    #[error("{reason}")]
    Ended {
        /// Which of the two, for the log.
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

/// A [`LaunchError`] in a form that can be serialized.
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
