//! Waiting for a container to exit: one watcher per container notifies everybody who waits.
//!
//! If the container's first process runs on this host, a pidfd tells at once. Otherwise the engine
//! is asked to wait; because it may forget to answer, and a connection may die unnoticed, the
//! watcher also inspects the container from time to time.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use bollard::models::ContainerInspectResponse;
use bollard::query_parameters::WaitContainerOptionsBuilder;
use futures_util::StreamExt as _;
use hotcell_domain::{ContainerId, Phase};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::io::unix::AsyncFd;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::create::DockerInner;
use super::{inspect, names, usage};
use crate::EngineError;

/// How long to rely on the engine's wait before inspecting the container.
const LOOK_INTERVAL: Duration = Duration::from_secs(30);

/// How long the engine may take to notice an exit that the kernel reported. A busy one takes
/// seconds.
const NOTICE_TIMEOUT: Duration = Duration::from_secs(20);

/// How long a killed container may take to exit.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);

/// The pause after the engine did not answer.
const AWAY_PAUSE: Duration = Duration::from_secs(1);

/// The state of a container, as far as waiting tasks need it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Runs,
    /// It exited by itself: the last bytes of its streams may still arrive.
    Ended,
    /// We destroyed it: nobody reads its streams any more.
    Destroyed,
}

/// A container that a task waits for. The watcher ends when all of these are dropped.
#[derive(Debug)]
pub(super) struct Watch {
    state: watch::Sender<State>,
    task: Mutex<Option<AbortHandle>>,
}

/// The containers that are watched.
#[derive(Debug, Default)]
pub(super) struct Watches {
    known: Mutex<HashMap<ContainerId, Weak<Watch>>>,
}

impl Watch {
    /// Waits for the exit; returns whether it ended by itself or was destroyed.
    pub(super) async fn ended(&self) -> State {
        let mut state = self.state.subscribe();
        let ended = state.wait_for(|state| *state != State::Runs).await;
        // We hold the sender, so the channel is open.
        ended.map_or(State::Ended, |state| *state)
    }

    fn end(&self, how: State) {
        self.state.send_if_modified(|state| {
            let runs = *state == State::Runs;
            *state = if runs { how } else { *state };
            runs
        });
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let task = self.task.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(task) = task {
            task.abort();
        }
    }
}

impl Watches {
    /// The watch of a container, and whether it is new and needs a watcher.
    fn of(&self, id: &ContainerId) -> (Arc<Watch>, bool) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(watch) = known.get(id).and_then(Weak::upgrade) {
            return (watch, false);
        }
        known.retain(|_, watch| watch.strong_count() > 0);
        let watch = Arc::new(Watch {
            state: watch::Sender::new(State::Runs),
            task: Mutex::default(),
        });
        known.insert(id.clone(), Arc::downgrade(&watch));
        (watch, true)
    }

    /// Notifies everybody that a container was destroyed.
    pub(super) fn destroyed(&self, id: &ContainerId) {
        self.end(id, State::Destroyed);
    }

    /// Notifies everybody that a container has exited. Later callers wait for the exit of the next
    /// start.
    pub(super) fn ended(&self, id: &ContainerId) {
        self.end(id, State::Ended);
    }

    fn end(&self, id: &ContainerId, how: State) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(watch) = known.remove(id).and_then(|watch| watch.upgrade()) {
            watch.end(how);
        }
    }
}

impl DockerInner {
    /// Watches a container, sharing a watcher that already exists.
    pub(super) fn watch(self: &Arc<Self>, id: &ContainerId) -> Arc<Watch> {
        let (watch, is_new) = self.watches().of(id);
        if is_new {
            let (inner, id, ended) = (Arc::clone(self), id.clone(), Arc::downgrade(&watch));
            let task = tokio::spawn(async move {
                inner.until_ended(&id).await;
                if let Some(watch) = ended.upgrade() {
                    watch.end(State::Ended);
                }
            });
            let mut kept = watch.task.lock().unwrap_or_else(PoisonError::into_inner);
            *kept = Some(task.abort_handle());
        }
        watch
    }

    async fn until_ended(&self, id: &ContainerId) {
        loop {
            match self.await_end(id).await {
                Ok(()) | Err(EngineError::NotFound { .. }) => return,
                Err(error) => {
                    tracing::debug!(container.id = %id, %error, "a container is not watched");
                    tokio::time::sleep(AWAY_PAUSE).await;
                }
            }
        }
    }

    async fn await_end(&self, id: &ContainerId) -> Result<(), EngineError> {
        let Some(found) = self.find_container(id).await? else {
            return Ok(());
        };
        if inspect::phase(found.state.as_ref()) != Phase::Running {
            return Ok(());
        }
        let process = self.client().host().may_be_local().then(|| process(&found));
        let Some(process) = process.flatten() else {
            return self.ask_for_end(id).await;
        };
        gone(process).await?;
        // The engine must have noticed the exit, too, before it is asked about the container again.
        let noticed = tokio::time::timeout(NOTICE_TIMEOUT, self.ask_for_end(id)).await;
        noticed.unwrap_or(Ok(()))
    }

    /// Waits until the engine reports that a killed container has exited.
    pub(super) async fn until_stopped(&self, id: &ContainerId) -> Result<(), EngineError> {
        let stopped = tokio::time::timeout(STOP_TIMEOUT, self.ask_for_end(id)).await;
        let step = "wait for the container's end";
        stopped.unwrap_or_else(|_| Err(EngineError::engine(step)("it does not end")))
    }

    /// Waits with the engine's own call.
    async fn ask_for_end(&self, id: &ContainerId) -> Result<(), EngineError> {
        let step = "wait for the container's end";
        let options = WaitContainerOptionsBuilder::default()
            .condition("not-running")
            .build();
        let api = self.client().api().await?;
        let mut waiting = Box::pin(api.wait_container(&names::of(id), Some(options)));
        loop {
            match tokio::time::timeout(LOOK_INTERVAL, waiting.next()).await {
                Ok(Some(Ok(_))) => return Ok(()),
                Ok(Some(Err(error))) => return self.ended_by(step, error),
                Ok(None) => return Err(self.client().cut(step).into()),
                Err(_) => match self.inspect(id).await {
                    Ok(found) if found.phase == Phase::Running => {}
                    other => return other.map(drop),
                },
            }
        }
    }

    /// Any exit code means that it has exited, and so does "no such container".
    fn ended_by(
        &self,
        step: &'static str,
        error: bollard::errors::Error,
    ) -> Result<(), EngineError> {
        use super::client::FaultKind;
        if matches!(
            error,
            bollard::errors::Error::DockerContainerWaitError { .. }
        ) {
            return Ok(());
        }
        let fault = self.client().fault(step, error);
        match fault.kind {
            FaultKind::Missing => Ok(()),
            FaultKind::Conflict | FaultKind::Away | FaultKind::Full | FaultKind::Refused => {
                Err(fault.into())
            }
        }
    }
}

/// A pidfd of the container's first process, if it runs on this host. Its cgroup is checked after
/// the pidfd is open, so that a reused PID cannot be mistaken for it.
fn process(found: &ContainerInspectResponse) -> Option<OwnedFd> {
    let (pid, id) = usage::process(found)?;
    let held = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
    usage::is_in_group(pid, id).then_some(held)
}

/// Waits until a process has ended.
async fn gone(process: OwnedFd) -> Result<(), EngineError> {
    let step = "watch the container";
    #[expect(
        deprecated,
        reason = "an `OwnedFd` is the same descriptor for all its life"
    )]
    let process = AsyncFd::new(process).map_err(EngineError::engine(step))?;
    let ended = process.readable().await;
    ended.map_err(EngineError::engine(step))?.retain_ready();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id() -> ContainerId {
        ContainerId::from_parts(1, [7; 10])
    }

    #[tokio::test]
    async fn everybody_who_watches_hears_the_first_end_only() {
        let watches = Watches::default();
        let ((one, is_new), (two, is_second)) = (watches.of(&id()), watches.of(&id()));
        assert!(is_new && !is_second && Arc::ptr_eq(&one, &two));
        watches.destroyed(&id());
        one.end(State::Ended);
        assert_eq!(one.ended().await, State::Destroyed);
        assert_eq!(two.ended().await, State::Destroyed);
        // A later caller watches the container that has the name then.
        assert!(watches.of(&id()).1);
    }

    #[test]
    fn a_watch_that_nobody_has_is_forgotten() {
        let watches = Watches::default();
        for n in 0..100 {
            drop(watches.of(&ContainerId::from_parts(n, [0; 10])));
        }
        let known = watches.known.lock().expect("not poisoned");
        assert!(known.len() <= 1, "{}", known.len());
    }
}
