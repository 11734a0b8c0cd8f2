//! What can go wrong in an engine, sorted by what the reader can do about it.

use std::sync::Arc;

use hotcell_domain::ContainerId;

/// Why an engine could not do it.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// There is no such container (any more).
    #[error("container {id} does not exist")]
    NotFound {
        /// Which.
        id: ContainerId,
    },
    /// The image is not on this host.
    #[error("image {image} is not on this host; pull it first")]
    NoImage {
        /// Which.
        image: String,
    },
    /// The engine cannot make such a container at all.
    #[error("this engine has no {what}")]
    Unsupported {
        /// What was asked for.
        what: String,
    },
    /// The host cannot enforce a limit that must be enforced.
    #[error("this host cannot limit {limit}; run `hotcell doctor` to see why")]
    Unlimited {
        /// Which limit.
        limit: &'static str,
    },
    /// Something ran out.
    #[error("engine is out of {resource}")]
    Exhausted {
        /// What.
        resource: &'static str,
    },
    /// The engine itself does not answer. It may be back for the next call.
    #[error("{engine} does not answer: {hint}")]
    Unavailable {
        /// Which engine.
        engine: &'static str,
        /// What the operator can do.
        hint: &'static str,
        /// How the call failed.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// An image cannot be had, or not be used.
    #[error("image {image} cannot be used: {reason}")]
    Image {
        /// Its reference, as it was asked for.
        image: String,
        /// What the reader can do about it.
        fault: ImageFault,
        /// Why not.
        reason: String,
        /// What the engine said, for the operator.
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
    /// Nobody waits for it any more, so it was not done.
    #[error("nobody waits for it any more")]
    Abandoned,
    /// The engine did not do a step; the cause is for the operator.
    #[error("could not {step}")]
    Engine {
        /// What was being done.
        step: &'static str,
        /// Why it failed.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// Why an image cannot be had, by what the reader can do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageFault {
    /// Its registry does not know it.
    Unknown,
    /// Its registry cannot be reached, or fails. The next try may do better.
    Unreachable,
    /// Its registry wants other credentials.
    Forbidden,
    /// It is broken, too large, or not for this host.
    Unusable,
}

impl EngineError {
    /// An error that several wait for, for one of them. All name the same cause.
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

/// An error with all its sources, as one line.
pub fn error_chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}
