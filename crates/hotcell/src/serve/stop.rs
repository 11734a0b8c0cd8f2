//! Being told to stop.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use hotcell_service::Service;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;

use super::systemd;

/// The signals to a server: those that end it, and SIGHUP, which has it reload.
pub(super) struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
    /// Notified when the configuration shall be read again.
    reload: Arc<Notify>,
    had_terminal: bool,
}

impl StopSignals {
    /// From here on they no longer end us by themselves.
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

    /// What is notified when the configuration shall be read again.
    pub(super) fn reload(&self) -> Arc<Notify> {
        Arc::clone(&self.reload)
    }

    /// Waits for the next one that ends us; passes requests to reload on meanwhile.
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

/// Whether we have a terminal that is still there. When it is closed, the kernel sends the same
/// signal as somebody who wants a reload, and then there is nobody left to stop us.
fn has_terminal() -> bool {
    std::fs::File::open("/dev/tty").is_ok()
}

/// Lets execs end for as long as `grace`, ends transient containers and keeps persistent
/// ones. One more signal, and it leaves everything as it is: the next server finds it.
/// Answers whether it came to its end.
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

/// The same after the client is gone. Clients that start a server close its stdin and, when
/// it takes them too long, send it a signal: then execs get no more time.
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
