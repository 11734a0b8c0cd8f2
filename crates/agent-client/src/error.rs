//! Why an agent did not do it.

use hotcell_agent_api::bounds::{
    BATCH_CODE_METADATA_KEY, BATCH_INDEX_METADATA_KEY, BATCH_OPERATIONS_MAX,
    BATCH_PARTIAL_METADATA_KEY, ETAG_METADATA_KEY, PROTOCOL_VERSION_MAX, PROTOCOL_VERSION_MIN,
};
use tonic::{Code, Status};

use crate::Feature;

/// How much of a container's words we repeat.
pub(crate) const MESSAGE_CHARS_MAX: usize = 512;

/// The longest etag; ours are shorter.
pub(crate) const ETAG_BYTES_MAX: usize = 64;

/// Why a call to an agent failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AgentError {
    /// The agent understood and said no.
    #[error("{message}")]
    Refused {
        /// What kind of no.
        refusal: AgentRefusal,
        /// The agent's sentence, shortened and without control characters.
        message: String,
    },
    /// The connection ended; the container may live on.
    #[error("the connection to the agent was lost")]
    Lost,
    /// The agent broke the protocol, so the container is not to be trusted.
    #[error("the agent broke the protocol: {0}")]
    Protocol(&'static str),
    /// The agent and this server have no version of the protocol in common.
    #[error(
        "the agent speaks protocol {oldest} to {newest}, this server \
         {PROTOCOL_VERSION_MIN} to {PROTOCOL_VERSION_MAX}"
    )]
    Version {
        /// The oldest that the agent speaks.
        oldest: u32,
        /// The newest that the agent speaks.
        newest: u32,
    },
    /// The agent is from before this feature; everything else it still serves.
    #[error("the agent of this container is too old for {feature}")]
    TooOld {
        /// What it lacks.
        feature: Feature,
    },
}

/// Kinds of refusal, sorted by what a caller can do about them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentRefusal {
    /// The request cannot be right.
    InvalidArgument,
    /// No such exec, file or directory.
    NotFound,
    /// The exec or the file exists already.
    AlreadyExists,
    /// An etag did not match, or the state does not allow it.
    Conflict {
        /// The file's etag as it is now, if that was the reason and there is a file.
        current_etag: Option<String>,
    },
    /// The path leaves the root or the kernel forbids it.
    Denied,
    /// A bound, the disk or the process table.
    Exhausted,
    /// A follower was replaced by another, or something was undone.
    Aborted,
    /// An operation of a batch failed or cannot be right, and the batch was not done.
    Batch {
        /// Which operation, counted from 0.
        index: usize,
        /// Whether nothing was changed; else the message says what is left where.
        is_undone: bool,
        /// What kind of no it was to that operation.
        refusal: Box<AgentRefusal>,
    },
    /// Anything else.
    Internal,
}

impl AgentError {
    /// Whether the agent said that the thing does not exist.
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
            // What the client library says of a message that is too large; an agent of
            // ours never does.
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
            // Status is also how the client library tells of a broken connection:
            // then there is a source, while an agent's own words have none.
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

/// What an operation of a batch failed of.
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

/// An etag as agents make them; the container chooses which, but not how it looks.
pub(crate) fn parse_etag(etag: String) -> Result<String, AgentError> {
    let is_legal = (1..=ETAG_BYTES_MAX).contains(&etag.len())
        && etag.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_legal
        .then_some(etag)
        .ok_or(AgentError::Protocol("an etag is not a hexadecimal number"))
}

/// The first characters of a container's words, with nothing in them that a terminal
/// or a log would obey.
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
