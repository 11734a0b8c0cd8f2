//! All execs of the agent, by id.

use std::collections::{HashMap, HashSet};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hotcell_agent_api::bounds::EXECS_MAX;
use hotcell_agent_api::v1::{ExecInfo, ExecResume, ExecStart, ExitCause, WarmUpRequest};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::error::ExecError;
use super::follow::Follower;
use super::input::Input;
use super::start::{Fingerprint, Fingerprints, Start, StartError};
use super::status::Status;
use super::stdio::{self, Opened};
use super::supervise::ExecSupervisor;
use super::{Exec, ExecParts};
use crate::files::{Files, PendingCleanup};
use crate::log;
use crate::process::{Launch, Table, tree};
use crate::sys::CStrings;
use crate::warm::{Running, Warm};

/// Running and finished execs.
pub struct Execs {
    table: Table,
    fingerprints: Fingerprints,
    can_switch_user: bool,
    /// The user that no exec may run as.
    reserved_uid: Option<u32>,
    /// Memory limit per process, where no cgroup enforces one.
    data_bytes_max: Option<u64>,
    warm: Warm,
    files: Files,
    entries: Mutex<ExecEntries>,
    /// Notified when an id is no longer in `beginning`.
    begun: Notify,
}

#[derive(Default)]
struct ExecEntries {
    by_id: HashMap<String, Arc<Exec>>,
    /// Ids of execs that are being started, perhaps in a spare.
    beginning: HashSet<String>,
    started: u64,
    is_closed: bool,
}

/// What an exec consists of beside its command.
struct Work {
    fingerprint: Fingerprint,
    opened: Opened,
    /// A spare that runs it already.
    process: Option<Running>,
    cleanup: Option<PendingCleanup>,
}

impl Execs {
    /// Creates an empty registry. Keepers are added to `table`; no exec may run as `reserved_uid`;
    /// execs may write to `root`, which `files` serves.
    pub fn new(table: Table, reserved_uid: Option<u32>, root: &str, files: Files) -> Self {
        let data_bytes_max = pass_on_data_limit();
        Self {
            warm: Warm::new(table.clone(), data_bytes_max, root),
            table,
            fingerprints: Fingerprints::new(),
            can_switch_user: can_switch_user(),
            reserved_uid,
            data_bytes_max,
            files,
            entries: Mutex::default(),
            begun: Notify::new(),
        }
    }

    /// Whether execs may run as another user.
    pub fn can_switch_user(&self) -> bool {
        self.can_switch_user
    }

    /// Starts an exec and follows it. If it was already started by an identical request, follows it
    /// from the beginning. On `Err` nothing was started.
    ///
    /// Must not be dropped before it has returned: the exec may be running by then.
    pub async fn start(&self, asked: &ExecStart) -> Result<Follower, ExecError> {
        let start = Start::parse(asked)?;
        let fingerprint = self.fingerprints.of(asked);
        let entry = loop {
            let mut begun = pin!(self.begun.notified());
            begun.as_mut().enable();
            match self.enter(&start, fingerprint)? {
                Entry::Existing(follower) => return Ok(follower),
                Entry::Beginning => begun.await,
                Entry::New(entry) => break entry,
            }
        };
        let begun = async {
            let cleanup = self.begin_cleanup(asked).await?;
            self.begin(start, fingerprint, cleanup).await
        };
        let begun = begun.await;
        drop(entry);
        begun
    }

    /// Checks that an exec may start, and keeps others from starting the same one.
    fn enter(&self, start: &Start, fingerprint: Fingerprint) -> Result<Entry<'_>, ExecError> {
        let mut entries = self.lock();
        if let Some(exec) = entries.by_id.get(&start.exec_id) {
            if !exec.was_started_as(fingerprint) {
                return Err(ExecError::Exists);
            }
            return Follower::new(exec.clone(), 0).map(Entry::Existing);
        }
        if let Some(user) = &start.user
            && (!self.can_switch_user || self.reserved_uid == Some(user.uid.as_raw()))
        {
            return Err(ExecError::OtherUser);
        }
        entries.make_room()?;
        if !entries.beginning.insert(start.exec_id.clone()) {
            return Ok(Entry::Beginning);
        }
        Ok(Entry::New(NewEntry {
            execs: self,
            id: start.exec_id.clone(),
        }))
    }

    async fn begin_cleanup(&self, asked: &ExecStart) -> Result<Option<PendingCleanup>, ExecError> {
        let Some(cleanup) = asked.cleanup.clone() else {
            return Ok(None);
        };
        let begun = self.files.begin_cleanup(cleanup).await;
        begun.map(Some).map_err(|_| StartError::Cleanup.into())
    }

    /// Starts an exec, in a warm interpreter if the request allows it and one is ready.
    async fn begin(
        &self,
        start: Start,
        fingerprint: Fingerprint,
        cleanup: Option<PendingCleanup>,
    ) -> Result<Follower, ExecError> {
        let opened = stdio::open(&start).map_err(ExecError::os("open the streams"))?;
        let child = &opened.child;
        let mut process = None;
        if start.warm_python {
            let stdio = [&child.stdin, &child.stdout, &child.stderr];
            process = self.warm.begin(&start, stdio).await;
        }
        let work = Work {
            fingerprint,
            opened,
            process,
            cleanup,
        };
        self.register(start, work)
    }

    fn register(&self, start: Start, work: Work) -> Result<Follower, ExecError> {
        let mut entries = self.lock();
        if let Err(error) = entries.make_room() {
            if let Some(process) = work.process {
                tokio::spawn(tree::kill(process.keeper, process.gone));
            }
            return Err(error);
        }
        let exec = self.launch(start, entries.started, work)?;
        entries.started += 1;
        entries.by_id.insert(exec.id.clone(), exec.clone());
        Follower::new(exec, 0)
    }

    /// Warms up an interpreter for execs with this program and environment.
    pub fn warm_up(&self, asked: WarmUpRequest) -> Result<(), ExecError> {
        let start = Start::parse(&ExecStart {
            exec_id: "-".to_owned(),
            argv: vec![asked.program, ".py".into()],
            env: asked.env,
            cwd: "/".into(),
            ..ExecStart::default()
        })?;
        self.warm.warm_up(&start);
        Ok(())
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
        self.lock().is_closed = true;
        self.warm.close();
        self.end_all(grace).await;
    }

    /// Whether any process of an exec runs, including background processes of ended execs.
    pub fn is_busy(&self) -> bool {
        !self.table.keepers().is_empty()
    }

    /// Ends every exec, including background processes of forgotten ones.
    pub async fn end_all(&self, grace: Duration) {
        let execs: Vec<_> = self.lock().by_id.values().cloned().collect();
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

    /// Starts the process, unless it runs already, and its supervisor.
    fn launch(&self, start: Start, serial: u64, work: Work) -> Result<Arc<Exec>, ExecError> {
        let Work {
            fingerprint,
            opened,
            process,
            cleanup,
        } = work;
        let (has_terminal, child) = (opened.terminal.is_some(), opened.child);
        let Running {
            keeper,
            gone,
            status,
        } = match process {
            Some(process) => process,
            None => self.fork(&Launch {
                argv: CStrings::new(start.argv),
                env: CStrings::new(start.env),
                candidates: start.candidates,
                cwd: start.cwd,
                user: start.user,
                data_bytes_max: self.data_bytes_max,
                stdio: child,
            })?,
        };
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
            cleanup,
        };
        tokio::spawn(supervisor.run());
        if let Some(input) = start.input {
            let exec = exec.clone();
            // Fails if nobody reads it any more: whoever starts an exec does not wait for that.
            tokio::spawn(async move { exec.input.write(0, &input, true).await.map(drop) });
        }
        Ok(exec)
    }

    fn fork(&self, launch: &Launch) -> Result<Running, ExecError> {
        self.warm.interrupt();
        let (status, told) = Status::open().map_err(ExecError::os("open the streams"))?;
        let (keeper, gone) = self
            .table
            .start(launch, told)
            .map_err(ExecError::os("start a process"))?;
        Ok(Running {
            keeper,
            gone,
            status,
        })
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

/// The result of looking up the exec of a `start` request.
enum Entry<'a> {
    Existing(Follower),
    /// Another call is starting the same exec.
    Beginning,
    New(NewEntry<'a>),
}

/// Prevents concurrent starts of the same exec.
struct NewEntry<'a> {
    execs: &'a Execs,
    id: String,
}

impl Drop for NewEntry<'_> {
    fn drop(&mut self) {
        self.execs.lock().beginning.remove(&self.id);
        self.execs.begun.notify_waiters();
    }
}

fn can_switch_user() -> bool {
    let needed = CapabilitySet::SETUID | CapabilitySet::SETGID;
    capabilities(None).is_ok_and(|entries| entries.effective.contains(needed))
}
