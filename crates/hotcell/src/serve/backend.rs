//! The parts that every transport shares: one state directory, one engine, one service, and the
//! unix socket for clients on this machine.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use hotcell_codemode::CodeMode;
use hotcell_ledger::Ledger;
use hotcell_mcp::transport::Socket;
use hotcell_mcp::{Options, Server};
use hotcell_otlp::Exporter;
use hotcell_service::{Service, Settings, SystemClock, SystemRandom};
use hotcell_store::Store;
use hotcell_upstream::Upstreams;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use super::forward::PortForwarder;
use super::reload::{ReloadedParts, Reloader};
use super::stop::{self, StopSignals};
use super::{audit, engine, identity, settings, traces};
use crate::cli::ServeArgs;
use crate::config::Config;
use crate::{state, upstream};

/// A running server without its main transport (stdio or HTTP).
pub(super) struct Backend {
    pub(super) service: Service,
    /// The MCP server on top of the service.
    pub(super) server: Server,
    /// The audit log, if it is enabled.
    pub(super) ledger: Option<Ledger>,
    /// The connections of the unix socket.
    clients: TaskTracker,
    socket: JoinHandle<()>,
    /// The task that waits for SIGHUP.
    #[expect(dead_code, reason = "dropped, it ends")]
    reloading: AbortOnDropHandle<()>,
    cut_off: CancellationToken,
    /// Sends traces, if the operator configured a collector.
    traces: Option<Exporter>,
    /// The user's other MCP servers.
    upstreams: Upstreams,
}

impl Backend {
    /// Starts all parts. `url` is the URL of HTTP, if there is HTTP.
    pub(super) async fn start(
        arguments: &ServeArgs,
        config: &Config,
        directory: &Path,
        store: Store,
        url: Option<String>,
        stops: &StopSignals,
    ) -> Result<Self> {
        let opened = engine::open(arguments, directory).await?;
        let ledger = audit::open(&arguments.audit, directory, &store).await?;
        let traces = traces::start(&arguments.otel)?;
        let settings = Settings {
            ledger: ledger.clone(),
            traces: traces.clone(),
            ..settings::of_service(arguments, &config.tables, directory, &opened).await?
        };
        let service = Service::start(
            Arc::clone(&opened.engine),
            store,
            settings,
            Arc::new(SystemClock),
            Arc::new(SystemRandom),
        )
        .await
        .context("take over the state directory")?;
        let servers = upstream::settings(&arguments.discovery, &config.tables);
        let upstreams = upstream::open(servers, directory)?;
        let rules = arguments.codemode.settings(&config.tables.rules);
        let codemode = CodeMode::new(Arc::new(upstreams.clone()), rules);
        let parts = ReloadedParts {
            service: service.clone(),
            engine: Arc::new(opened),
            directory: directory.to_owned(),
            upstreams: upstreams.clone(),
            codemode: codemode.clone(),
        };
        let reloader = Reloader::new(parts, config.clone());
        let options = Options {
            codemode,
            reload: Some(reloader.on_request()),
            ..settings::of_protocol(arguments, url)
        };
        let server = Server::new(service.clone(), options);
        let path = state::socket(directory);
        let socket =
            Socket::bind(&path).with_context(|| format!("listen on {}", path.display()))?;
        let (clients, cut_off) = (socket.clients(), CancellationToken::new());
        let serving = socket.serve(
            server.clone(),
            PortForwarder::new(service.clone()),
            identity::of_socket,
            cut_off.clone(),
        );
        let socket = tokio::spawn(serving);
        let reloading = tokio::spawn(reloader.on_signal(stops.reload()));
        Ok(Self {
            service,
            server,
            ledger,
            reloading: AbortOnDropHandle::new(reloading),
            traces,
            upstreams,
            clients,
            socket,
            cut_off,
        })
    }

    /// Waits until the socket has no clients.
    pub(super) async fn no_clients(&self) {
        self.clients.close();
        self.clients.wait().await;
    }

    /// Drains, then closes remaining connections. Returns whether it drained completely.
    pub(super) async fn stop(self, arguments: &ServeArgs, stops: &mut StopSignals) -> bool {
        let is_drained = stop::drain(&self.service, arguments.server.drain_grace_s, stops).await;
        self.cut_off(is_drained).await
    }

    /// Like [`Backend::stop`], after the client on stdio is gone.
    pub(super) async fn stop_without_client(
        self,
        arguments: &ServeArgs,
        stops: &mut StopSignals,
    ) -> bool {
        let grace = arguments.server.drain_grace_s;
        let is_drained = stop::drain_without_client(&self.service, grace, stops).await;
        self.cut_off(is_drained).await
    }

    async fn cut_off(self, is_drained: bool) -> bool {
        self.cut_off.cancel();
        self.upstreams.stop().await;
        if is_drained {
            // The socket's task ends by itself once it is told to.
            let _ = self.socket.await;
            traces::flush(self.traces).await;
            tracing::info!("stopped");
        }
        is_drained
    }
}
