//! What the command line, `--engine auto`, `serve` and `doctor` need to know of an engine
//! before it is opened.

use std::error::Error;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use hotcell_image::Credentials;

use hotcell_domain::EngineId;

use crate::error::error_chain;
use crate::{Container, Engine, Garbage, SweepMode};

/// What to do when an engine fails that was found.
pub(crate) const ASK_DOCTOR: &str = "`hotcell doctor` tells what is missing and how to fix it";

/// One kind of engine. [`crate::ENGINES`] lists them all, in the order in which `auto` tries
/// them, and nobody else knows their names.
#[async_trait]
pub trait EngineKind: fmt::Debug + Send + Sync {
    /// The name that users write: `--engine NAME`.
    fn name(&self) -> &'static str;

    /// The heading of its diagnosis.
    fn title(&self) -> &'static str;

    /// What it is, in half a line for the help.
    fn summary(&self) -> &'static str;

    /// The image of containers whose caller and operator name none.
    fn default_image(&self) -> &'static str;

    /// Opens the engine and makes sure that it works. On `Err` nothing is left behind.
    async fn open(&self, setup: &EngineSetup) -> Result<Arc<dyn Engine>, EngineMissing>;

    /// Lists what it holds of a state directory. Nothing is changed, and a server may be using it.
    async fn look(&self, setup: &EngineSetup) -> Result<EngineView, EngineMissing>;

    /// Finds out whether `open` would work here, and what containers would lack. Leaves
    /// nothing behind.
    async fn diagnose(&self, setup: &EngineSetup) -> Diagnosis;
}

/// What engines are opened with.
#[derive(Debug, Clone)]
pub struct EngineSetup {
    /// The server's state directory.
    pub state: PathBuf,
    /// Creates the state directory, or refuses one that others can write to. An engine calls
    /// it before it writes there.
    pub prepare_state: fn(&Path) -> Result<(), Box<dyn Error + Send + Sync>>,
    /// Where unpacked images are.
    pub images: PathBuf,
    /// The program that becomes the launcher when it is started as one.
    pub launcher: PathBuf,
    /// The agent's static binary.
    pub agent: &'static [u8],
    /// The OCI runtime to ask for; absent: the engine's own choice.
    pub runtime: Option<String>,
    /// Refuse to create a container whose limits cannot all be enforced.
    pub require_limits: bool,
    /// Allow an unencrypted connection to an engine on another host.
    pub allow_plain_tcp: bool,
    /// The credentials of registries.
    pub credentials: Credentials,
}

/// What an engine holds of a state directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineView {
    /// Which engine this is.
    pub identity: EngineId,
    /// What [`Engine::list`] would list.
    pub containers: Vec<Container>,
    /// Workspaces that belong to no container.
    pub workspaces_unowned: Vec<String>,
}

/// Why an engine cannot be used, and what the operator can do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}; {fix}")]
pub struct EngineMissing {
    /// The cause.
    pub reason: String,
    /// The next step.
    pub fix: String,
}

impl EngineMissing {
    /// One whose cause is an error, told with all its sources.
    pub fn new(error: &(dyn Error + 'static), fix: impl Into<String>) -> Self {
        Self {
            reason: error_chain(error),
            fix: fix.into(),
        }
    }
}

/// What `doctor` tells of an engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnosis {
    /// Whether containers can be created with it.
    pub works: bool,
    /// What it is, or why it cannot be used.
    pub found: String,
    /// What containers lack; absent if they lack nothing.
    pub follows: Option<String>,
    /// What the operator can do about it.
    pub fix: Option<String>,
}

impl Diagnosis {
    /// An engine whose containers lack nothing.
    pub fn good(found: String) -> Self {
        Self {
            works: true,
            found,
            follows: None,
            fix: None,
        }
    }

    /// An engine that cannot be used.
    pub fn missing(missing: EngineMissing, follows: &str) -> Self {
        Self {
            works: false,
            found: missing.reason,
            follows: Some(follows.to_owned()),
            fix: Some(missing.fix),
        }
    }
}

/// Removes what an earlier process left. What stays does not keep an engine from being used.
pub(crate) async fn sweep(engine: &dyn Engine) {
    if let Err(error) = engine.sweep(Garbage::Containers, SweepMode::Remove).await {
        tracing::warn!(%error, "could not remove leftovers of an earlier run");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EngineError;

    #[test]
    fn a_missing_engine_tells_every_cause_and_the_next_step() {
        let error = EngineError::engine("start the launcher")(std::io::Error::other("EPERM"));
        let missing = EngineMissing::new(&error, "allow it");
        let told = "could not start the launcher: EPERM; allow it";
        assert_eq!(missing.to_string(), told);
    }
}
