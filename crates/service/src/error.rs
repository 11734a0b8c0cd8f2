//! Why the service did not do it, sorted by what the caller can do about it.
//!
//! What a model reads of these is decided in `mcp`. A `source` is for the operator.

use hotcell_agent_client::AgentError;
use hotcell_domain::{OverQuota, PolicyError};
use hotcell_engine::{EngineError, ImageFault, error_chain};
use hotcell_store::StoreError;

type Source = Box<dyn std::error::Error + Send + Sync>;

/// Why something was not done.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// The request cannot be right.
    #[error("{reason}")]
    Invalid {
        /// What is wrong with which argument.
        reason: String,
    },
    /// There is no such thing, or it belongs to somebody else.
    #[error("there is no {what} {name}")]
    NotFound {
        /// `container`, `exec`, `file`, `image`.
        what: &'static str,
        /// As the caller named it.
        name: String,
    },
    /// It is there already.
    #[error("{what} {name} exists already")]
    AlreadyExists {
        /// `alias`, `file`.
        what: &'static str,
        /// As the caller named it.
        name: String,
    },
    /// It is not as the caller thought.
    #[error("{reason}")]
    Conflict {
        /// How it is.
        reason: String,
        /// The file's etag as it is now, if that was the reason and there is a file.
        current_etag: Option<String>,
    },
    /// The container's boundary, or a registry.
    #[error("{reason}")]
    Denied {
        /// What forbids it.
        reason: String,
    },
    /// A rule of the operator's. It was told to the operator.
    #[error(transparent)]
    Refused(PolicyError),
    /// A bound, the disk, the process table.
    #[error("{reason}")]
    Exhausted {
        /// Which, and how large it is.
        reason: String,
    },
    /// The caller's principal has as much as it may have.
    #[error(transparent)]
    OverQuota(OverQuota),
    /// An operation of a batch failed, so the batch was not done.
    #[error("operation {}: {cause}", index + 1)]
    Batch {
        /// Which operation, counted from 0.
        index: usize,
        /// Whether nothing was changed; else the cause says what is left where.
        is_undone: bool,
        /// Why.
        cause: Box<ServiceError>,
    },
    /// It took too long.
    #[error("{reason}")]
    Deadline {
        /// What did.
        reason: String,
    },
    /// The engine, the container or this server is not there now.
    #[error("{reason}")]
    Unavailable {
        /// What is not there.
        reason: String,
        /// Why.
        source: Option<Source>,
    },
    /// Not now, and to wait does not help: a container that is kept but does not run here,
    /// a registry that cannot be reached.
    #[error("{reason}")]
    Halted {
        /// Why not.
        reason: String,
        /// Who can do what about it.
        hint: &'static str,
    },
    /// It should have worked.
    #[error("could not {step}")]
    Internal {
        /// What was being done.
        step: &'static str,
        /// Why it failed.
        source: Source,
    },
}

impl ServiceError {
    /// This server stops.
    pub(crate) fn stopping() -> Self {
        Self::Unavailable {
            reason: "the server is stopping".to_owned(),
            source: None,
        }
    }

    /// The container's agent is of another version and cannot do it, now or later.
    pub(crate) fn agent_too_old(error: &AgentError) -> Self {
        Self::Halted {
            reason: error.to_string(),
            hint: "`kill` the container and `spawn` another, which gets this server's agent (`fs_export` and `fs_import` carry its files over); a persistent one gets it too, and keeps its workspace, when the operator restarts it",
        }
    }

    /// There is no such container, whoever asks.
    pub(crate) fn no_container(name: &impl ToString) -> Self {
        Self::NotFound {
            what: "container",
            name: name.to_string(),
        }
    }

    /// The same for somebody else who waited for the same thing. The cause stays with the
    /// first.
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

/// Whether another image, another time or another operator helps. The cause is told to the
/// operator here, because most of these carry none.
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
