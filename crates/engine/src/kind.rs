//! The properties of an engine that the command line, `--engine auto`, `serve` and `doctor` need
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

/// The advice for an engine that was found but fails.
pub(crate) const ASK_DOCTOR: &str = "`hotcell doctor` tells what is missing and how to fix it";

/// A kind of engine. [`crate::ENGINES`] lists all of them, in the order in which `auto` tries them;
/// no other code knows their names.
#[async_trait]
pub trait EngineKind: fmt::Debug + Send + Sync {
    /// The name on the command line: `--engine NAME`.
    fn name(&self) -> &'static str;

    /// The heading of its diagnosis.
    fn title(&self) -> &'static str;

    /// A short description for the help.
    fn summary(&self) -> &'static str;

    /// The default image if neither caller nor operator names one.
    fn default_image(&self) -> &'static str;

    /// Opens the engine and checks that it works. On `Err` nothing is left behind.
    async fn open(&self, setup: &EngineSetup) -> Result<Arc<dyn Engine>, EngineMissing>;

    /// Lists its objects of a state directory. Changes nothing; a server may be using it.
    async fn look(&self, setup: &EngineSetup) -> Result<EngineView, EngineMissing>;

    /// Tests whether `open` would work here, and what containers would lack. Leaves nothing behind.
    async fn diagnose(&self, setup: &EngineSetup) -> Diagnosis;
}

/// The setup that engines are opened with.
#[derive(Debug, Clone)]
pub struct EngineSetup {
    /// The server's state directory.
    pub state: PathBuf,
    /// Creates the state directory, or rejects one that others can write to. An engine calls it
    /// before it writes there.
    pub prepare_state: fn(&Path) -> Result<(), Box<dyn Error + Send + Sync>>,
    /// The directory of unpacked images.
    pub images: PathBuf,
    /// The program to start as the launcher.
    pub launcher: PathBuf,
    /// The agent's static binary.
    pub agent: &'static [u8],
    /// The OCI runtime to use; `None`: the engine's default.
    pub runtime: Option<String>,
    /// Refuse to create a container if one of its limits cannot be enforced.
    pub require_limits: bool,
    /// Allow an unencrypted connection to an engine on another host.
    pub allow_plain_tcp: bool,
    /// Credentials for registries.
    pub credentials: Credentials,
}

/// An engine's objects of a state directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineView {
    /// The engine's name and address.
    pub identity: EngineId,
    /// The containers that [`Engine::list`] would return.
    pub containers: Vec<Container>,
    /// Workspaces without a container.
    pub workspaces_unowned: Vec<String>,
}

/// Why an engine cannot be used, and what the operator can do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}; {fix}")]
pub struct EngineMissing {
    /// The cause.
    pub reason: String,
    /// How the operator can fix it.
    pub fix: String,
}

impl EngineMissing {
    /// Formats the error with all its sources as the reason.
    pub fn new(error: &(dyn Error + 'static), fix: impl Into<String>) -> Self {
        Self {
            reason: error_chain(error),
            fix: fix.into(),
        }
    }
}

/// The result of `doctor` for an engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnosis {
    /// Whether containers can be created with it.
    pub works: bool,
    /// A description of the engine, or why it cannot be used.
    pub found: String,
    /// What containers lack; `None` if nothing.
    pub follows: Option<String>,
    /// How the operator can fix it.
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

/// Removes leftovers of earlier processes. Failures do not prevent the engine from being used.
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
