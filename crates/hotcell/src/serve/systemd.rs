//! systemd, or another service manager that speaks its protocol.
//!
//! It can pass us the socket to listen on (`LISTEN_FDS`), and we notify it when we are ready, alive
//! and stopping (`NOTIFY_SOCKET`, `WATCHDOG_USEC`). Without it, these functions do nothing.

use std::net::TcpListener;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use hotcell_service::Service;
use listenfd::ListenFd;
use sd_notify::NotifyState;

/// Watchdog messages per interval: systemd kills us if none arrives, so a late one must not matter.
const WATCHDOG_MESSAGES_PER_INTERVAL: u32 = 3;

/// How long stopping may take beyond the grace period of execs.
const STOP_MARGIN: Duration = Duration::from_secs(45);

/// The socket that a service manager opened for us, if it did (socket activation).
///
/// Call it before a second thread exists: it removes the variables from the environment.
pub(super) fn inherited_listener() -> Result<Option<TcpListener>> {
    let mut sockets = ListenFd::from_env();
    match sockets.len() {
        0 => return Ok(None),
        1 => {}
        count => bail!("the service manager passed {count} sockets; hotcell needs one, for HTTP"),
    }
    let listener = sockets
        .take_tcp_listener(0)
        .context("the service manager's socket is not a TCP socket")?;
    if let Some(listener) = &listener {
        listener
            .set_nonblocking(true)
            .context("use the service manager's socket")?;
        tracing::info!("using the service manager's socket; --host and --port do not apply");
    }
    Ok(listener)
}

/// Notifies that clients can connect.
pub(super) fn tell_ready(status: &str) {
    tell(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// Notifies that we drain: execs have `grace` to finish, so systemd must wait longer than that.
pub(super) fn tell_stopping(grace: Duration) {
    let longest = u32::try_from((grace + STOP_MARGIN).as_micros()).unwrap_or(u32::MAX);
    tell(&[
        NotifyState::Stopping,
        NotifyState::ExtendTimeoutUsec(longest),
    ]);
}

/// Feeds the watchdog as long as the service answers. If it does not, systemd restarts us;
/// containers and their execs keep running meanwhile.
pub(super) fn keep_watchdog_fed(service: Service) {
    let Some(interval) = sd_notify::watchdog_enabled() else {
        return;
    };
    tokio::spawn(async move {
        let mut ticks = tokio::time::interval(interval / WATCHDOG_MESSAGES_PER_INTERVAL);
        loop {
            ticks.tick().await;
            match service.responds().await {
                Ok(()) => tell(&[NotifyState::Watchdog]),
                Err(error) => tracing::error!(%error, "not well: the watchdog is not told"),
            }
        }
    });
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "could not notify the service manager");
    }
}
