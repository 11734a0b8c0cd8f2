//! One container's egress, for as long as its agent lives.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use hotcell_domain::{Env, ExecId};
use hotcell_egress::{Guest, ProfileName};
use hotcell_store::ContainerRow;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::owner::Owner;
use super::report::{EgressReport, Mark};
use super::variables;
use crate::connection::Connection;
use crate::environment::Environment;
use crate::tunnels::TunnelTable;

/// How long an exec waits until names can be looked up; then it runs without.
const READY_TIMEOUT: Duration = Duration::from_secs(10);

/// Execs whose reports a container remembers.
const EXECS_MAX: usize = 1024;

/// One container's egress.
pub(crate) struct ContainerEgress {
    profile: ProfileName,
    /// Set by the owner once there is a broker.
    guest: OnceLock<Arc<Guest>>,
    /// The variables with which programs trust the server, once names can be looked up or that has failed.
    ready: watch::Sender<Option<Env>>,
    task: Mutex<Option<AbortHandle>>,
    execs: Mutex<VecDeque<ExecEgress>>,
}

struct ExecEgress {
    exec: ExecId,
    state: ExecState,
}

enum ExecState {
    Running(Mark),
    Ended(Option<EgressReport>),
}

impl ContainerEgress {
    /// The egress of a container, if it has a profile. Nothing listens yet.
    pub(crate) fn of(row: &ContainerRow) -> Option<Arc<Self>> {
        let profile = ProfileName::parse(row.egress.as_ref()?.as_str()).ok()?;
        Some(Arc::new(Self {
            profile,
            guest: OnceLock::new(),
            ready: watch::Sender::new(None),
            task: Mutex::default(),
            execs: Mutex::default(),
        }))
    }

    /// Starts the task that listens, answers and serves until [`ContainerEgress::end`].
    pub(crate) fn start(
        self: &Arc<Self>,
        environment: &Arc<Environment>,
        row: &ContainerRow,
        connection: Arc<Connection>,
        tunnels: Arc<TunnelTable>,
    ) {
        let owner = Owner::new(self, environment, row, connection, tunnels);
        let task = environment.tasks.spawn(owner.run());
        *self.task.lock().unwrap_or_else(PoisonError::into_inner) = Some(task.abort_handle());
    }

    /// Ends all connections.
    pub(crate) fn end(&self) {
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(task) = task.take() {
            task.abort();
        }
    }

    /// Notes that an exec begins, and returns its variables, once names can be looked up.
    pub(crate) async fn begin(&self, exec: &ExecId) -> Env {
        let env = self.variables().await;
        let mut execs = self.execs();
        let is_known = execs.iter().any(|known| known.exec == *exec);
        if let Some(guest) = self.guest.get().filter(|_| !is_known) {
            if execs.len() >= EXECS_MAX {
                execs.pop_front();
            }
            execs.push_back(ExecEgress {
                exec: exec.clone(),
                state: ExecState::Running(Mark::now(guest)),
            });
        }
        env
    }

    /// The variables of processes, once names can be looked up.
    pub(crate) async fn variables(&self) -> Env {
        let mut ready = self.ready.subscribe();
        let ready = tokio::time::timeout(READY_TIMEOUT, ready.wait_for(Option::is_some)).await;
        let ready = ready.ok().and_then(Result::ok);
        let trust = ready.and_then(|env| env.clone()).unwrap_or_default();
        let profile = self.guest.get().and_then(|guest| guest.profile());
        variables::of_exec(profile.as_deref(), &trust)
    }

    /// Notes that an exec has ended: what happens later is not its own.
    pub(crate) fn finish(&self, exec: &ExecId) {
        let mut execs = self.execs();
        let Some(index) = execs.iter().position(|known| known.exec == *exec) else {
            return;
        };
        match self.report_of(&execs[index]) {
            None => drop(execs.remove(index)),
            report => execs[index].state = ExecState::Ended(report),
        }
    }

    /// What happened while an exec ran, if there is something to tell.
    pub(crate) fn report(&self, exec: &ExecId) -> Option<EgressReport> {
        let execs = self.execs();
        let known = execs.iter().find(|known| known.exec == *exec)?;
        self.report_of(known)
    }

    fn report_of(&self, exec: &ExecEgress) -> Option<EgressReport> {
        match &exec.state {
            ExecState::Running(mark) => mark.report(self.guest.get()?),
            ExecState::Ended(report) => report.clone(),
        }
    }

    pub(super) fn profile(&self) -> &ProfileName {
        &self.profile
    }

    /// What decides for it, once there is a broker.
    pub(super) fn guest(&self) -> Option<Arc<Guest>> {
        self.guest.get().cloned()
    }

    /// Sets the guest, the first time.
    pub(super) fn set_guest(&self, guest: &Arc<Guest>) {
        let _ = self.guest.set(Arc::clone(guest));
    }

    /// Lets execs begin.
    pub(super) fn set_ready(&self, env: Env) {
        self.ready.send_replace(Some(env));
    }

    pub(super) fn is_ready(&self) -> bool {
        self.ready.borrow().is_some()
    }

    fn execs(&self) -> MutexGuard<'_, VecDeque<ExecEgress>> {
        self.execs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
