//! `hotcell serve`: connects the parts, and starts and stops them in order.
//!
//! ```text
//! port ─▶ state directory ─▶ engine ─▶ service (reconcile, begin to warm) ─▶ socket ─▶ accept
//! signal, or the client on stdio is gone ─▶ accept no more ─▶ drain ─▶ cut clients off
//! ```

mod address;
mod audit;
mod backend;
mod bridge;
mod engine;
mod forward;
mod http;
mod identity;
mod reload;
mod settings;
mod state_directory;
mod stdio;
mod stop;
mod systemd;
mod traces;
mod warm;

use std::net::TcpListener;
use std::process::ExitCode;

use anyhow::{Context, Result};

pub(crate) use self::audit::anchor_of;
use self::stop::StopSignals;
use crate::cli::{ServeArgs, Transport};
use crate::config::Config;

/// Serves until told to stop.
pub(crate) fn serve(arguments: &ServeArgs, config: &Config) -> Result<ExitCode> {
    config.log();
    // Before there is a second thread, because it changes the environment.
    let inherited = systemd::inherited_listener()?;
    // One per core by default. Disk I/O runs on other threads.
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    if let Some(count) = arguments.server.worker_threads {
        builder.worker_threads(count);
    }
    let runtime = builder
        .enable_all()
        .build()
        .context("start the async runtime")?;
    let outcome = runtime.block_on(serve_transport(arguments, config, inherited));
    // A read of our stdin cannot be interrupted; do not wait for it.
    runtime.shutdown_background();
    Ok(if outcome? {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Serves the configured transport; returns whether it drained completely.
async fn serve_transport(
    arguments: &ServeArgs,
    config: &Config,
    inherited: Option<TcpListener>,
) -> Result<bool> {
    let stops = StopSignals::listen()?;
    match arguments.server.transport {
        Transport::Stdio => stdio::serve(arguments, config, stops).await,
        Transport::StreamableHttp | Transport::Sse => {
            http::serve(arguments, config, inherited, stops).await
        }
    }
}
