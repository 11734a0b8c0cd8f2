//! Signals that we receive while a command runs for us: they are meant for the command.

use std::sync::atomic::{AtomicU8, Ordering};

use anyhow::{Context, Result};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The meaning of a signal.
pub(crate) enum SignalRequest {
    /// End the command; with the signal's number.
    Stop(u8),
    /// The terminal's size has changed.
    Resize,
}

/// The signals we listen for.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
    resize: Signal,
}

impl Signals {
    /// Begins to handle the signals, which no longer kill us.
    pub(crate) fn listen() -> Result<Self> {
        let on = |kind| signal(kind).context("listen for signals");
        Ok(Self {
            interrupt: on(SignalKind::interrupt())?,
            terminate: on(SignalKind::terminate())?,
            hangup: on(SignalKind::hangup())?,
            resize: on(SignalKind::window_change())?,
        })
    }

    pub(crate) async fn next(&mut self) -> SignalRequest {
        tokio::select! {
            _ = self.interrupt.recv() => SignalRequest::Stop(2),
            _ = self.terminate.recv() => SignalRequest::Stop(15),
            _ = self.hangup.recv() => SignalRequest::Stop(1),
            _ = self.resize.recv() => SignalRequest::Resize,
        }
    }
}

/// Which signal asked us to stop, if any.
#[derive(Default)]
pub(crate) struct Stop(AtomicU8);

impl Stop {
    /// Records the signal; returns whether it is the first.
    pub(crate) fn ask(&self, signal: u8) -> bool {
        self.0.swap(signal, Ordering::Relaxed) == 0
    }

    /// The last signal.
    pub(crate) fn by(&self) -> Option<u8> {
        Some(self.0.load(Ordering::Relaxed)).filter(|signal| *signal != 0)
    }
}
