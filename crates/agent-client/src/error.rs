//! Why a call to an agent failed.

use hotcell_agent_api::bounds::{
    BATCH_CODE_METADATA_KEY, BATCH_INDEX_METADATA_KEY, BATCH_OPERATIONS_MAX,
    BATCH_PARTIAL_METADATA_KEY, ETAG_METADATA_KEY, PROTOCOL_VERSION_MAX, PROTOCOL_VERSION_MIN,
};
use tonic::{Code, Status};

use crate::Feature;

/// How much of a container's message we repeat.
pub(crate) const MESSAGE_CHARS_MAX: usize = 512;

/// The longest etag; ours are shorter.
pub(crate) const ETAG_BYTES_MAX: usize = 64;

/// Why a call to an agent failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AgentError {
    /// The agent refused the request.
    #[error("{message}")]
    Refused {
        /// The kind of refusal.
        refusal: AgentRefusal,
        /// The agent's message, shortened and without control characters.
        message: String,
    },
    /// The connection was lost; the container may still run.
    #[error("the connection to the agent was lost")]
    Lost,
    /// The agent violated the protocol, so the container is compromised or broken.
    #[error("the agent broke the protocol: {0}")]
    Protocol(&'static str),
    /// The agent and this server have no protocol version in common.
    #[error(
        "the agent speaks protocol {oldest} to {newest}, this server \
         {PROTOCOL_VERSION_MIN} to {PROTOCOL_VERSION_MAX}"
    )]
    Version {
        /// The oldest version that the agent supports.
        oldest: u32,
        /// The newest version that the agent supports.
        newest: u32,
    },
    /// The agent is older than this feature; it still serves everything else.
    #[error("the agent of this container is too old for {feature}")]
    TooOld {
        /// The feature that it lacks.
        feature: Feature,
    },
}

/// Kinds of refusal, grouped by what a caller can do about them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentRefusal {
    /// The request is invalid.
    InvalidArgument,
    /// No such exec, file or directory.
    NotFound,
    /// The exec or the file exists already.
    AlreadyExists,
    /// An etag did not match, or the state does not allow the operation.
    Conflict {
        /// The file's current etag, if an etag did not match and the file exists.
        current_etag: Option<String>,
    },
    /// The path leaves the root, or the kernel denies access.
    Denied,
    /// A bound was reached, or the disk or the process table is full.
    Exhausted,
    /// Another follower took over, or the operation was undone.
    Aborted,
    /// An operation of a batch failed or is invalid, and the batch was not applied.
    Batch {
        /// The index of the operation, from 0.
        index: usize,
        /// True if nothing was changed. Otherwise the message names the directory with the
        /// displaced files.
        is_undone: bool,
        /// Why that operation was refused.
        refusal: Box<AgentRefusal>,
    },
    /// Anything else.
    Internal,
}

impl AgentError {
    /// Whether the agent answered that the exec or file does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(
            self,
            Self::Refused {
                refusal: AgentRefusal::NotFound,
                ..
            }
        )
    }
}

impl From<Status> for AgentError {
    fn from(status: Status) -> Self {
        if let Some(index) = number(&status, BATCH_INDEX_METADATA_KEY) {
            return of_batch(index, &status);
        }
        let refusal = match status.code() {
            Code::InvalidArgument => AgentRefusal::InvalidArgument,
            // The client library's own error for a message that is too large; our agent never sends
            // this code.
            Code::OutOfRange => return Self::Protocol("it sent a message over the bound"),
            Code::NotFound => AgentRefusal::NotFound,
            Code::AlreadyExists => AgentRefusal::AlreadyExists,
            Code::FailedPrecondition => AgentRefusal::Conflict {
                current_etag: current_etag(&status),
            },
            Code::PermissionDenied => AgentRefusal::Denied,
            Code::ResourceExhausted => AgentRefusal::Exhausted,
            Code::Aborted => AgentRefusal::Aborted,
            Code::Unavailable | Code::Cancelled => return Self::Lost,
            // The client library also reports a broken connection as a status. Then it has a
            // source, which a status sent by an agent never has.
            Code::Unknown | Code::Internal if std::error::Error::source(&status).is_some() => {
                return Self::Lost;
            }
            Code::Ok
            | Code::Unknown
            | Code::Internal
            | Code::DeadlineExceeded
            | Code::Unimplemented
            | Code::DataLoss
            | Code::Unauthenticated => AgentRefusal::Internal,
        };
        Self::Refused {
            refusal,
            message: printable(status.message()),
        }
    }
}

/// Reads which operation of a batch failed, and why.
fn of_batch(index: usize, status: &Status) -> AgentError {
    let code = number(status, BATCH_CODE_METADATA_KEY).and_then(|code| i32::try_from(code).ok());
    let mut own = Status::new(Code::from(code.unwrap_or(-1)), status.message());
    if let Some(etag) = status.metadata().get(ETAG_METADATA_KEY) {
        own.metadata_mut().insert(ETAG_METADATA_KEY, etag.clone());
    }
    if index >= BATCH_OPERATIONS_MAX {
        return AgentError::Protocol("a batch failed of an operation it does not have");
    }
    match AgentError::from(own) {
        AgentError::Refused { refusal, message } => AgentError::Refused {
            refusal: AgentRefusal::Batch {
                index,
                is_undone: status.metadata().get(BATCH_PARTIAL_METADATA_KEY).is_none(),
                refusal: Box::new(refusal),
            },
            message,
        },
        other @ (AgentError::Lost
        | AgentError::Protocol(_)
        | AgentError::Version { .. }
        | AgentError::TooOld { .. }) => other,
    }
}

fn number(status: &Status, key: &'static str) -> Option<usize> {
    status.metadata().get(key)?.to_str().ok()?.parse().ok()
}

fn current_etag(status: &Status) -> Option<String> {
    let etag = status.metadata().get(ETAG_METADATA_KEY)?.to_str().ok()?;
    parse_etag(etag.to_owned()).ok()
}

/// Checks the format of an etag: the container chooses its value, but not its characters.
pub(crate) fn parse_etag(etag: String) -> Result<String, AgentError> {
    let is_legal = (1..=ETAG_BYTES_MAX).contains(&etag.len())
        && etag.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_legal
        .then_some(etag)
        .ok_or(AgentError::Protocol("an etag is not a hexadecimal number"))
}

/// The first characters of a container's message, without anything that a terminal or a log would
/// interpret.
pub(crate) fn printable(text: &str) -> String {
    text.chars()
        .take(MESSAGE_CHARS_MAX)
        .map(|c| {
            if c.is_control() {
                char::REPLACEMENT_CHARACTER
            } else {
                c
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_containers_words_reach_nobody_s_terminal_raw() {
        let status = Status::not_found("\x1b]0;owned\x07".repeat(1000));
        let AgentError::Refused { message, .. } = AgentError::from(status) else {
            panic!("a refusal");
        };
        assert!(!message.contains('\x1b'));
        assert_eq!(message.chars().count(), MESSAGE_CHARS_MAX);
    }

    #[test]
    fn a_failed_batch_tells_which_operation_and_what_kind_of_no() {
        let mut status = Status::aborted("gone");
        let metadata = status.metadata_mut();
        metadata.insert(BATCH_INDEX_METADATA_KEY, 3.into());
        metadata.insert(BATCH_CODE_METADATA_KEY, (Code::NotFound as i32).into());
        let refusal = AgentRefusal::Batch {
            index: 3,
            is_undone: true,
            refusal: Box::new(AgentRefusal::NotFound),
        };
        let message = "gone".to_owned();
        assert_eq!(
            AgentError::from(status.clone()),
            AgentError::Refused { refusal, message }
        );
        status
            .metadata_mut()
            .insert(BATCH_INDEX_METADATA_KEY, u64::MAX.into());
        let lie = AgentError::from(status);
        assert!(matches!(lie, AgentError::Protocol(_)), "{lie:?}");
    }

    #[test]
    fn a_conflict_tells_the_current_etag() {
        let mut status = Status::failed_precondition("changed");
        status
            .metadata_mut()
            .insert(ETAG_METADATA_KEY, "abc".parse().unwrap());
        assert_eq!(
            AgentError::from(status),
            AgentError::Refused {
                refusal: AgentRefusal::Conflict {
                    current_etag: Some("abc".into())
                },
                message: "changed".into()
            }
        );
    }
}
