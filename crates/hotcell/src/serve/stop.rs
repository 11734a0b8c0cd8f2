//! Signals that stop or reload the server.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use hotcell_service::Service;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;

use super::systemd;

/// The signals to a server: those that end it, and SIGHUP, which reloads the configuration.
pub(super) struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
    /// Notified when the configuration must be read again.
    reload: Arc<Notify>,
    had_terminal: bool,
}

impl StopSignals {
    /// Begins to handle the signals, which no longer end us by default.
    pub(super) fn listen() -> Result<Self> {
        let on = |kind| signal(kind).context("listen for signals");
        Ok(Self {
            interrupt: on(SignalKind::interrupt())?,
            terminate: on(SignalKind::terminate())?,
            hangup: on(SignalKind::hangup())?,
            reload: Arc::default(),
            had_terminal: has_terminal(),
        })
    }

    /// Notified when the configuration must be read again.
    pub(super) fn reload(&self) -> Arc<Notify> {
        Arc::clone(&self.reload)
    }

    /// Waits for the next signal that ends us; forwards reload requests meanwhile.
    pub(super) async fn next(&mut self) {
        loop {
            tokio::select! {
                _ = self.interrupt.recv() => return,
                _ = self.terminate.recv() => return,
                _ = self.hangup.recv() => {
                    if self.had_terminal && !has_terminal() {
                        return;
                    }
                    self.reload.notify_one();
                }
            }
        }
    }
}

/// Whether we have a terminal that still exists. When it closes, the kernel sends SIGHUP, too, and
/// then nobody is left to stop us.
fn has_terminal() -> bool {
    std::fs::File::open("/dev/tty").is_ok()
}

/// Waits up to `grace` for execs to end, ends transient containers and keeps persistent ones. A
/// further signal stops this and leaves everything as it is: the next server finds it. Returns
/// whether it finished.
pub(super) async fn drain(service: &Service, grace: Duration, stops: &mut StopSignals) -> bool {
    systemd::tell_stopping(grace);
    tracing::info!(
        grace_s = grace.as_secs(),
        "stopping; one more signal quits at once"
    );
    tokio::select! {
        () = service.stop(grace) => true,
        () = stops.next() => {
            tracing::warn!("quit at once; what runs goes on, and the next server finds it");
            false
        }
    }
}

/// Like [`drain`], after the client is gone. Clients that start a server close its stdin and, if it
/// takes them too long, send it a signal: then execs get no more time.
pub(super) async fn drain_without_client(
    service: &Service,
    grace: Duration,
    stops: &mut StopSignals,
) -> bool {
    tracing::info!(grace_s = grace.as_secs(), "stopping; a signal shortens it");
    tokio::select! {
        () = service.stop(grace) => true,
        () = stops.next() => drain(service, Duration::ZERO, stops).await,
    }
}
