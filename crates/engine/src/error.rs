//! Errors of engines, grouped by what the reader can do about them.

use std::sync::Arc;

use hotcell_domain::ContainerId;

/// Why a call to an engine failed.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The container does not exist (any more).
    #[error("container {id} does not exist")]
    NotFound {
        /// The container that was named.
        id: ContainerId,
    },
    /// The image is not on this host.
    #[error("image {image} is not on this host; pull it first")]
    NoImage {
        /// The image that was named.
        image: String,
    },
    /// The engine does not support such a container.
    #[error("this engine has no {what}")]
    Unsupported {
        /// The unsupported feature.
        what: String,
    },
    /// The host cannot enforce a limit that must be enforced.
    #[error("this host cannot limit {limit}; run `hotcell doctor` to see why")]
    Unlimited {
        /// The name of the limit.
        limit: &'static str,
    },
    /// A resource is used up.
    #[error("engine is out of {resource}")]
    Exhausted {
        /// The name of the resource.
        resource: &'static str,
    },
    /// The engine itself does not answer. It may be back for the next call.
    #[error("{engine} does not answer: {hint}")]
    Unavailable {
        /// The engine's name.
        engine: &'static str,
        /// How the operator can fix it.
        hint: &'static str,
        /// The error of the call.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// An image cannot be obtained or used.
    #[error("image {image} cannot be used: {reason}")]
    Image {
        /// The reference, as it was requested.
        image: String,
        /// Classifies the cause by what the reader can do.
        fault: ImageFault,
        /// The cause, for the caller.
        reason: String,
        /// The engine's error, for the operator.
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
    /// Nobody waits for the result any more, so the work was stopped.
    #[error("nobody waits for it any more")]
    Abandoned,
    /// A step failed; the cause is for the operator.
    #[error("could not {step}")]
    Engine {
        /// Completes "could not …".
        step: &'static str,
        /// The cause.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// Why an image cannot be used, by what the reader can do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageFault {
    /// Its registry does not have it.
    Unknown,
    /// Its registry cannot be reached, or fails. A retry may succeed.
    Unreachable,
    /// Its registry requires other credentials.
    Forbidden,
    /// It is broken, too large, or not for this host.
    Unusable,
}

impl EngineError {
    /// A copy of an error for one of several callers that wait for the same result.
    pub(crate) fn shared(error: Arc<Self>) -> Self {
        match &*error {
            Self::NoImage { image } => Self::NoImage {
                image: image.clone(),
            },
            Self::Unsupported { what } => Self::Unsupported { what: what.clone() },
            Self::Exhausted { resource } => Self::Exhausted { resource },
            Self::Abandoned => Self::Abandoned,
            Self::Unavailable { engine, hint, .. } => Self::Unavailable {
                engine,
                hint,
                source: Box::new(error),
            },
            Self::Image {
                image,
                fault,
                reason,
                ..
            } => Self::Image {
                image: image.clone(),
                fault: *fault,
                reason: reason.clone(),
                source: Some(Box::new(error)),
            },
            Self::Engine { step, .. } => Self::Engine {
                step,
                source: Box::new(error),
            },
            Self::NotFound { .. } | Self::Unlimited { .. } => Self::engine("pull the image")(error),
        }
    }

    /// Wraps the cause of a failed step, for `map_err`.
    pub fn engine<E>(step: &'static str) -> impl FnOnce(E) -> Self
    where
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        move |source| Self::Engine {
            step,
            source: source.into(),
        }
    }
}

/// Formats an error with all its sources in one line.
pub fn error_chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}
