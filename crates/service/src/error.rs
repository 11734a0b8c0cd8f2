//! The errors of the service, grouped by what the caller can do about them.
//!
//! `mcp` decides what a model reads of them. A `source` is for the operator.

use hotcell_agent_client::AgentError;
use hotcell_domain::{OverQuota, PolicyError};
use hotcell_engine::{EngineError, ImageFault, error_chain};
use hotcell_store::StoreError;

type Source = Box<dyn std::error::Error + Send + Sync>;

/// Why an operation failed.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// The request is invalid.
    #[error("{reason}")]
    Invalid {
        /// Names the argument and what is wrong with it.
        reason: String,
    },
    /// It does not exist, or belongs to another principal.
    #[error("there is no {what} {name}")]
    NotFound {
        /// `container`, `exec`, `file`, `image`.
        what: &'static str,
        /// The name that the caller used.
        name: String,
    },
    /// The name is taken.
    #[error("{what} {name} exists already")]
    AlreadyExists {
        /// `alias`, `file`.
        what: &'static str,
        /// The name that the caller used.
        name: String,
    },
    /// The current state does not allow it.
    #[error("{reason}")]
    Conflict {
        /// Describes the current state.
        reason: String,
        /// The file's current etag, if an etag did not match and the file exists.
        current_etag: Option<String>,
    },
    /// The container's boundary or a registry forbids it.
    #[error("{reason}")]
    Denied {
        /// Names what forbids it.
        reason: String,
    },
    /// A policy rule forbids it. The denial has been logged for the operator.
    #[error(transparent)]
    Refused(PolicyError),
    /// A limit is reached: a bound, the disk, the process table.
    #[error("{reason}")]
    Exhausted {
        /// Names the limit and its size.
        reason: String,
    },
    /// The caller's principal has used up a quota.
    #[error(transparent)]
    OverQuota(OverQuota),
    /// An operation of a batch failed, so the batch was not applied.
    #[error("operation {}: {cause}", index + 1)]
    Batch {
        /// The index of the operation, from 0.
        index: usize,
        /// Whether nothing was changed; if not, the cause says what is left and where.
        is_undone: bool,
        /// The error of that operation.
        cause: Box<ServiceError>,
    },
    /// A timeout.
    #[error("{reason}")]
    Deadline {
        /// Names what took too long.
        reason: String,
    },
    /// The engine, the container or this server is not available now.
    #[error("{reason}")]
    Unavailable {
        /// Names what is not available.
        reason: String,
        /// The cause, for the operator.
        source: Option<Source>,
    },
    /// Not available, and waiting does not help: a container that is kept but does not run here, a
    /// registry that cannot be reached.
    #[error("{reason}")]
    Halted {
        /// Explains why.
        reason: String,
        /// Who can do what about it.
        hint: &'static str,
    },
    /// An error of the server or the host.
    #[error("could not {step}")]
    Internal {
        /// Completes "could not …".
        step: &'static str,
        /// The cause, for the operator.
        source: Source,
    },
}

impl ServiceError {
    /// The error while this server stops.
    pub(crate) fn stopping() -> Self {
        Self::Unavailable {
            reason: "the server is stopping".to_owned(),
            source: None,
        }
    }

    /// The container's agent is too old for this operation.
    pub(crate) fn agent_too_old(error: &AgentError) -> Self {
        Self::Halted {
            reason: error.to_string(),
            hint: "`kill` the container and `spawn` another, which gets this server's agent (`fs_export` and `fs_import` carry its files over); a persistent one gets it too, and keeps its workspace, when the operator restarts it",
        }
    }

    /// The error for a container that does not exist or belongs to another principal.
    pub(crate) fn no_container(name: &impl ToString) -> Self {
        Self::NotFound {
            what: "container",
            name: name.to_string(),
        }
    }

    /// A copy for another caller that waited for the same thing. Only the first one gets the
    /// source.
    pub(crate) fn again(&self) -> Self {
        match self {
            Self::Invalid { reason } => Self::Invalid {
                reason: reason.clone(),
            },
            Self::NotFound { what, name } => Self::NotFound {
                what,
                name: name.clone(),
            },
            Self::AlreadyExists { what, name } => Self::AlreadyExists {
                what,
                name: name.clone(),
            },
            Self::Conflict {
                reason,
                current_etag,
            } => Self::Conflict {
                reason: reason.clone(),
                current_etag: current_etag.clone(),
            },
            Self::Denied { reason } => Self::Denied {
                reason: reason.clone(),
            },
            Self::Refused(refusal) => Self::Refused(refusal.clone()),
            Self::OverQuota(excess) => Self::OverQuota(excess.clone()),
            Self::Exhausted { reason } => Self::Exhausted {
                reason: reason.clone(),
            },
            Self::Batch {
                index,
                is_undone,
                cause,
            } => Self::Batch {
                index: *index,
                is_undone: *is_undone,
                cause: Box::new(cause.again()),
            },
            Self::Deadline { reason } => Self::Deadline {
                reason: reason.clone(),
            },
            Self::Unavailable { reason, .. } => Self::Unavailable {
                reason: reason.clone(),
                source: None,
            },
            Self::Halted { reason, hint } => Self::Halted {
                reason: reason.clone(),
                hint,
            },
            Self::Internal { step, source } => Self::Internal {
                step,
                source: error_chain(&**source).into(),
            },
        }
    }
}

impl From<StoreError> for ServiceError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::AliasTaken => Self::AlreadyExists {
                what: "alias",
                name: String::new(),
            },
            StoreError::Full => Self::Exhausted {
                reason: error.to_string(),
            },
            StoreError::Unavailable => Self::Unavailable {
                reason: error.to_string(),
                source: None,
            },
            StoreError::Failed { step, source } => Self::Internal { step, source },
        }
    }
}

impl From<EngineError> for ServiceError {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::NotFound { id } => Self::no_container(&id),
            EngineError::NoImage { image } => Self::NotFound {
                what: "image",
                name: image,
            },
            EngineError::Unavailable { .. } => Self::Unavailable {
                reason: error.to_string(),
                source: Some(Box::new(error)),
            },
            EngineError::Unsupported { .. } => Self::Invalid {
                reason: error.to_string(),
            },
            EngineError::Image { fault, .. } => of_image(fault, error),
            EngineError::Unlimited { .. } | EngineError::Abandoned => Self::Unavailable {
                reason: error.to_string(),
                source: None,
            },
            EngineError::Exhausted { .. } => Self::Exhausted {
                reason: error.to_string(),
            },
            EngineError::Engine { step, source } => Self::Internal { step, source },
        }
    }
}

/// Chooses the error by what helps: another image, another time, or the operator. The cause is
/// logged here, because most of these errors carry none.
fn of_image(fault: ImageFault, error: EngineError) -> ServiceError {
    let reason = error.to_string();
    let EngineError::Image { image, source, .. } = error else {
        return ServiceError::Invalid { reason };
    };
    if let Some(cause) = source {
        tracing::warn!(%image, cause = error_chain(&*cause), "an image cannot be had");
    }
    match fault {
        ImageFault::Unknown => ServiceError::NotFound {
            what: "image",
            name: image,
        },
        ImageFault::Unusable => ServiceError::Invalid { reason },
        ImageFault::Unreachable => ServiceError::Halted {
            reason,
            hint: "leave `image` out for the default one, name an image that is on this host already, or ask the operator to pull it or to see to the registry",
        },
        ImageFault::Forbidden => ServiceError::Denied { reason },
    }
}
