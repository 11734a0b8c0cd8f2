//! What can go wrong in an engine, sorted by what the reader can do about it.

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
        /// Why not.
        reason: String,
        /// What the engine said, for the operator.
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
    /// The engine did not do a step; the cause is for the operator.
    #[error("could not {step}")]
    Engine {
        /// What was being done.
        step: &'static str,
        /// Why it failed.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl EngineError {
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
