//! Opens the engine in the background.

use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use anyhow::{Context, Result};
use hotcell_engine::{Embedded, EmbeddedConfig, EngineError};
use hotcell_service::ServiceError;

use crate::cli::ContainerArgs;
use crate::state;

/// An engine that is being opened by another thread.
pub(crate) struct StartingEngine {
    home: PathBuf,
    thread: JoinHandle<Result<Embedded, EngineError>>,
}

impl StartingEngine {
    /// Begins to open the engine, after making sure that the state directory is ours alone.
    pub(crate) fn start(arguments: &ContainerArgs) -> Result<Self> {
        let directory = state::directory(arguments.state.state_dir.clone())?;
        state::prepare(&directory)?;
        let home = directory.join("run");
        let config = EmbeddedConfig {
            home: home.clone(),
            tree: directory.join("tree"),
            launcher: PathBuf::from("/proc/self/exe"),
            cgroups: true,
            agent: hotcell_agent_image::AGENT,
            require_limits: arguments.require_limits,
        };
        let thread = std::thread::Builder::new()
            .name("hotcell-engine".to_owned())
            .spawn(move || Embedded::open(config))
            .context("start a thread")?;
        Ok(Self { home, thread })
    }

    /// The directory of its containers. It exists once the engine is ready.
    pub(crate) fn home(&self) -> &Path {
        &self.home
    }

    /// Waits until the engine can be used.
    pub(crate) fn ready(self) -> Result<Embedded, ServiceError> {
        let opened = self.thread.join().map_err(|_| ServiceError::Internal {
            step: "open the engine",
            source: "its thread panicked".into(),
        })?;
        Ok(opened?)
    }
}
