//! Being told to stop.

use std::time::Duration;

use anyhow::{Context, Result};
use hotcell_service::Service;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::systemd;

/// The signals that end a server.
pub(super) struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl StopSignals {
    /// From here on they no longer end us by themselves.
    pub(super) fn listen() -> Result<Self> {
        let on = |kind| signal(kind).context("listen for signals");
        Ok(Self {
            interrupt: on(SignalKind::interrupt())?,
            terminate: on(SignalKind::terminate())?,
            hangup: on(SignalKind::hangup())?,
        })
    }

    /// Waits for the next one.
    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }
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
