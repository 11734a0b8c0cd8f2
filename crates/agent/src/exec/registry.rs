//! All execs of the agent, by id.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hotcell_agent_api::bounds::EXECS_MAX;
use hotcell_agent_api::v1::{ExecInfo, ExecResume, ExecStart, ExitCause};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities};
use tokio::task::JoinSet;

use super::error::ExecError;
use super::follow::Follower;
use super::input::Input;
use super::start::{Fingerprint, Fingerprints, Start};
use super::status::Status;
use super::stdio;
use super::supervise::ExecSupervisor;
use super::{Exec, ExecParts};
use crate::log;
use crate::process::{Launch, Table, tree};
use crate::sys::CStrings;

/// Running and finished execs.
pub struct Execs {
    table: Table,
    fingerprints: Fingerprints,
    can_switch_user: bool,
    /// A user as which no exec may run.
    reserved_uid: Option<u32>,
    /// Memory limit per process, where no cgroup enforces one.
    data_bytes_max: Option<u64>,
    entries: Mutex<ExecEntries>,
}

#[derive(Default)]
struct ExecEntries {
    by_id: HashMap<String, Arc<Exec>>,
    started: u64,
    is_closed: bool,
}

impl Execs {
    /// Creates an empty registry. Keepers are added to `table`; no exec may run as `reserved_uid`.
    pub fn new(table: Table, reserved_uid: Option<u32>) -> Self {
        Self {
            table,
            fingerprints: Fingerprints::new(),
            can_switch_user: can_switch_user(),
            reserved_uid,
            data_bytes_max: pass_on_data_limit(),
            entries: Mutex::default(),
        }
    }

    /// Whether execs may run as another user.
    pub fn can_switch_user(&self) -> bool {
        self.can_switch_user
    }

    /// Starts an exec and follows it. If it was already started by an identical request, follows it
    /// from the beginning. On `Err` nothing was started.
    pub fn start(&self, asked: &ExecStart) -> Result<Follower, ExecError> {
        let start = Start::parse(asked)?;
        let fingerprint = self.fingerprints.of(asked);
        let mut entries = self.lock();
        if let Some(exec) = entries.by_id.get(&start.exec_id) {
            if !exec.was_started_as(fingerprint) {
                return Err(ExecError::Exists);
            }
            return Follower::new(exec.clone(), 0);
        }
        if let Some(user) = &start.user
            && (!self.can_switch_user || self.reserved_uid == Some(user.uid.as_raw()))
        {
            return Err(ExecError::OtherUser);
        }
        entries.make_room()?;
        let exec = launch(
            &self.table,
            self.data_bytes_max,
            start,
            fingerprint,
            entries.started,
        )?;
        entries.started += 1;
        entries.by_id.insert(asked.exec_id.clone(), exec.clone());
        Follower::new(exec, 0)
    }

    /// Follows an existing exec.
    pub fn resume(&self, asked: &ExecResume) -> Result<Follower, ExecError> {
        Follower::new(self.get(&asked.exec_id)?, asked.after_seq)
    }

    pub fn get(&self, id: &str) -> Result<Arc<Exec>, ExecError> {
        self.lock()
            .by_id
            .get(id)
            .cloned()
            .ok_or(ExecError::NotFound)
    }

    /// All execs, oldest first.
    pub fn list(&self) -> Vec<ExecInfo> {
        let mut execs: Vec<_> = self.lock().by_id.values().cloned().collect();
        execs.sort_unstable_by_key(|exec| exec.serial);
        execs.iter().map(|exec| exec.info()).collect()
    }

    /// Drops a finished exec and its output. Background processes that it left keep running.
    pub fn forget(&self, id: &str) -> Result<(), ExecError> {
        let mut entries = self.lock();
        let exec = entries.by_id.get(id).ok_or(ExecError::NotFound)?;
        if exec.is_running() {
            return Err(ExecError::Running);
        }
        exec.forget();
        entries.by_id.remove(id);
        Ok(())
    }

    /// Ends every exec, including background processes of forgotten ones, and accepts no more.
    pub async fn shut_down(&self, grace: Duration) {
        let execs: Vec<_> = {
            let mut entries = self.lock();
            entries.is_closed = true;
            entries.by_id.values().cloned().collect()
        };
        let mut ends = JoinSet::new();
        for exec in execs {
            ends.spawn(async move { exec.end(ExitCause::Cancelled, grace).await });
        }
        for (keeper, gone) in self.table.keepers() {
            ends.spawn(async move { Ok(tree::end(keeper, gone, grace).await?) });
        }
        while let Some(end) = ends.join_next().await {
            if let Ok(Err(error)) = end {
                log::line(format_args!("an exec was not ended: {error}"));
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, ExecEntries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ExecEntries {
    /// Makes room for one more by dropping the oldest settled exec if necessary.
    fn make_room(&mut self) -> Result<(), ExecError> {
        if self.is_closed {
            return Err(ExecError::ShuttingDown);
        }
        if self.by_id.len() < EXECS_MAX {
            return Ok(());
        }
        let settled = self.by_id.iter().filter(|(_, exec)| exec.is_settled());
        let oldest = settled
            .min_by_key(|(_, exec)| exec.serial)
            .map(|(id, _)| id.clone());
        let exec = oldest
            .and_then(|id| self.by_id.remove(&id))
            .ok_or(ExecError::Full)?;
        exec.forget();
        Ok(())
    }
}

/// Takes the memory rlimit that the engine set for commands, and lifts it from the agent: if the
/// agent ran out of memory, it would take the whole container with it.
fn pass_on_data_limit() -> Option<u64> {
    let limit = getrlimit(Resource::Data);
    let ours = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    match setrlimit(Resource::Data, ours) {
        Ok(()) => limit.current,
        Err(_) => None,
    }
}

fn launch(
    table: &Table,
    data_bytes_max: Option<u64>,
    start: Start,
    fingerprint: Fingerprint,
    serial: u64,
) -> Result<Arc<Exec>, ExecError> {
    let opened = stdio::open(&start).map_err(ExecError::os("open the streams"))?;
    let launch = Launch {
        argv: CStrings::new(start.argv),
        env: CStrings::new(start.env),
        candidates: start.candidates,
        cwd: start.cwd,
        user: start.user,
        data_bytes_max,
        stdio: opened.child,
    };
    let (status, told) = Status::open().map_err(ExecError::os("open the streams"))?;
    let (keeper, gone) = table
        .start(&launch, told)
        .map_err(ExecError::os("start a process"))?;
    let has_terminal = opened.terminal.is_some();
    let exec = Exec::new(ExecParts {
        id: start.exec_id,
        fingerprint,
        serial,
        keeper,
        gone,
        input: Input::new(opened.input, has_terminal),
        terminal: opened.terminal,
    });
    let supervisor = ExecSupervisor {
        exec: exec.clone(),
        status,
        outputs: opened.outputs,
        has_terminal,
        timeout: start.timeout,
        grace: start.grace,
    };
    tokio::spawn(supervisor.run());
    Ok(exec)
}

fn can_switch_user() -> bool {
    let needed = CapabilitySet::SETUID | CapabilitySet::SETGID;
    capabilities(None).is_ok_and(|entries| entries.effective.contains(needed))
}
