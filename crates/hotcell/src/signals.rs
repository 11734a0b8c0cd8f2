//! Signals to us while a command runs on our behalf: whoever sends them means the command.

use std::sync::atomic::{AtomicU8, Ordering};

use anyhow::{Context, Result};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// What a signal to us asks for.
pub(crate) enum SignalRequest {
    /// To end; the number of the signal.
    Stop(u8),
    /// To look at the terminal's size again.
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
    /// From here on they no longer end us.
    pub(crate) fn listen() -> Result<Self> {
        let on = |kind| signal(kind).context("listen for signals");
        Ok(Self {
            interrupt: on(SignalKind::interrupt())?,
            terminate: on(SignalKind::terminate())?,
            hangup: on(SignalKind::hangup())?,
            resize: on(SignalKind::window_change())?,
        })
    }

    /// Waits for one.
    pub(crate) async fn next(&mut self) -> SignalRequest {
        tokio::select! {
            _ = self.interrupt.recv() => SignalRequest::Stop(2),
            _ = self.terminate.recv() => SignalRequest::Stop(15),
            _ = self.hangup.recv() => SignalRequest::Stop(1),
            _ = self.resize.recv() => SignalRequest::Resize,
        }
    }
}

/// Which signal asked us to stop, if one did.
#[derive(Default)]
pub(crate) struct Stop(AtomicU8);

impl Stop {
    /// Notes the signal; answers whether it is the first. Who asks twice is in a hurry.
    pub(crate) fn ask(&self, signal: u8) -> bool {
        self.0.swap(signal, Ordering::Relaxed) == 0
    }

    /// The last one that asked.
    pub(crate) fn by(&self) -> Option<u8> {
        Some(self.0.load(Ordering::Relaxed)).filter(|signal| *signal != 0)
    }
}
