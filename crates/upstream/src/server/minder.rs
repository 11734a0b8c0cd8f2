//! Looks after a running server: notices its crash, follows its tools, stops it when nobody uses it.

use std::sync::{Arc, Weak};
use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, sleep_until};
use tokio_util::task::AbortOnDropHandle;

use super::{Running, Server};
use crate::bounds::{BACKOFF_FORGOTTEN_AFTER, RELIST_PAUSE};
use crate::connection::{Connection, Request, RequestError};
use crate::handshake::Hello;
use crate::health::Event;
use crate::rpc::{Failure, Params};

/// Starts the task; it ends with the connection.
pub(super) fn mind(server: &Arc<Server>, running: &Running) {
    let minder = Minder {
        server: Arc::downgrade(server),
        connection: Arc::clone(&running.connection),
        running: running.clone(),
        idle: server.entry.timeouts.idle,
    };
    tokio::spawn(minder.run());
}

struct Minder {
    server: Weak<Server>,
    connection: Arc<Connection>,
    running: Running,
    idle: Duration,
}

impl Minder {
    async fn run(self) {
        let following = AbortOnDropHandle::new(tokio::spawn(follow(
            Arc::clone(&self.connection),
            Arc::clone(&self.running.hello),
        )));
        let mut changed = self.connection.peer.tools_changed();
        let mut idle_at = Instant::now() + self.idle;
        loop {
            tokio::select! {
                why = self.connection.peer.closed() => {
                    self.ended(&why);
                    return;
                }
                _ = changed.changed() => {
                    self.list_again().await;
                    // A server that changes all the time is listed once in a while.
                    tokio::time::sleep(RELIST_PAUSE).await;
                }
                () = sleep_until(idle_at) => match self.unused_for(!following.is_finished()) {
                    None => return,
                    Some(unused) if unused >= self.idle => {
                        self.stop_idle().await;
                        return;
                    }
                    Some(unused) => idle_at = Instant::now() + (self.idle.saturating_sub(unused)),
                },
            }
        }
    }

    /// None when the server is not there any more.
    fn unused_for(&self, is_followed: bool) -> Option<Duration> {
        let server = self.server.upgrade()?;
        let followed = usize::from(is_followed && self.connection.is_stateless());
        let is_busy = self.connection.peer.in_flight() > followed;
        Some(if is_busy {
            Duration::ZERO
        } else {
            server.idle_for()
        })
    }

    async fn list_again(&self) {
        let Some(server) = self.server.upgrade() else {
            return;
        };
        if let Err(error) = server.list(&self.connection, &self.running.hello).await {
            tracing::warn!(upstream = %server.name(), %error, "could not list the changed tools of an MCP server");
        }
    }

    async fn stop_idle(&self) {
        if let Some(server) = self.server.upgrade() {
            // A call that comes now starts another one.
            server.lock().running = None;
            server.lock().backoff.forget();
            tracing::info!(upstream = %server.name(), "stopped an MCP server that nobody uses");
            server.tell(&Event::Stopped);
        }
        self.connection.link.stop().await;
    }

    /// The connection has ended, and we did not end it.
    fn ended(&self, why: &str) {
        let Some(server) = self.server.upgrade() else {
            return;
        };
        let mut state = server.lock();
        let is_current = |running: &Running| Arc::ptr_eq(&running.connection, &self.connection);
        if !state.running.as_ref().is_some_and(is_current) {
            return;
        }
        state.running = None;
        if self.running.since.elapsed() > BACKOFF_FORGOTTEN_AFTER {
            state.backoff.forget();
        }
        state.backoff.failed(why);
        drop(state);
        tracing::warn!(upstream = %server.name(), reason = why, "an MCP server ended");
        server.tell(&Event::Failed {
            reason: why.to_owned(),
        });
    }
}

/// How long one subscription lasts, and the pause before the next.
const SUBSCRIPTION_TIMEOUT: Duration = Duration::from_hours(1);
const FOLLOW_PAUSE: Duration = Duration::from_secs(30);

/// Has the server say when its tools change, where it has to be asked for that. Ends if it will not.
async fn follow(connection: Arc<Connection>, hello: Arc<Hello>) {
    if !hello.tells_changes {
        return;
    }
    loop {
        if connection.is_stateless() {
            let notifications = Some(json!({ "toolsListChanged": true }));
            let request = Request {
                method: "subscriptions/listen",
                params: Params {
                    notifications,
                    ..Params::default()
                },
                progress: None,
                timeout: SUBSCRIPTION_TIMEOUT,
            };
            let answer = connection.request(request).await;
            if let Err(RequestError::Failed(Failure::Rpc(_) | Failure::Refused(_))) = answer {
                return;
            }
        } else {
            connection.link.listen().await;
        }
        tokio::time::sleep(FOLLOW_PAUSE).await;
    }
}
