//! Opens the engine that the operator chose.

use std::path::Path;

use anyhow::Result;
use hotcell_engine::{ENGINES, EngineSetup};

use crate::cli::ServeArgs;
use crate::engines::{self, OpenedEngine};

/// Opens the engine and makes sure that it works.
pub(super) async fn open(arguments: &ServeArgs, state: &Path) -> Result<OpenedEngine> {
    let setup = EngineSetup {
        runtime: arguments.selection.runtime.clone(),
        require_limits: arguments.selection.require_limits,
        allow_plain_tcp: arguments.access.allow_plain_tcp,
        credentials: arguments.images.credentials()?,
        ..engines::setup(state)
    };
    engines::open(arguments.selection.engine, ENGINES, &setup).await
}
