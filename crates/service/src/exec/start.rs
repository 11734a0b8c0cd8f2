//! Starts execs.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use hotcell_agent_client::Cleanup;
use hotcell_domain::{Caller, ContainerRef, ExecId, Name, PolicyError, Principal};
use hotcell_store::{ExecInsert, ExecRow};
use tokio::sync::{mpsc, oneshot};

use super::command;
use super::live::LiveExec;
use super::table::{COMMANDS_BYTES_MAX, ExecTable, TableInner, queue_key_of};
use super::{Message, Start};
use crate::{Action, Service, ServiceError, trace};

impl Service {
    /// Records an exec and starts it as soon as there is a slot, or returns the exec that was
    /// started with the same key. Once it returns `Ok`, the exec will run even if this server dies.
    /// Dropping the future does not undo it.
    pub async fn exec_start(
        &self,
        caller: &Caller,
        target: &ContainerRef,
        request: Start,
    ) -> Result<ExecId, ServiceError> {
        let (mut operation, inner) = self.begin(caller, Action::ExecStart, target);
        operation.note(|arguments| command::note(&request.command, arguments));
        let start = async {
            inner.accepting()?;
            let container = inner.running_container(caller, target).await?;
            inner.environment.has_room()?;
            inner.may_start(&container).await?;
            container.execs().start(caller, request).await
        };
        let (id, mut operation) = operation.open(start).await?;
        operation.created(&id);
        operation.end().written().await?;
        Ok(id)
    }
}

impl ExecTable {
    pub(crate) async fn start(
        &self,
        caller: &Caller,
        request: Start,
    ) -> Result<ExecId, ServiceError> {
        let shared = &self.0;
        shared.check(&request)?;
        if !shared.reserve(&request.command) {
            return shared.same_key(&caller.principal, request.key.as_ref(), shared.full());
        }
        let abandonment = request.abandonment.clone().unless(request.key.is_some());
        let row = shared.row(caller, request);
        let exec = LiveExec::new(row.clone(), Arc::downgrade(shared), None, abandonment);
        shared.note_and_queue(caller, row, Arc::new(exec)).await
    }

    /// Like [`Service::exec_start`], for an exec without a key that starts once `staged` is done; it
    /// is recorded meanwhile, and cancelled if that fails. With `cleanup`, the agent cleans up after
    /// it.
    pub(crate) async fn start_when<T>(
        &self,
        caller: &Caller,
        request: Start,
        cleanup: Option<Cleanup>,
        staged: impl Future<Output = Result<T, ServiceError>>,
    ) -> Result<(T, Arc<LiveExec>), ServiceError> {
        let (open, gate) = oneshot::channel();
        let make = |exec: LiveExec| exec.with_cleanup(cleanup).behind(gate);
        let started = self.start_unkeyed(caller, request, None, make);
        let staged = async {
            let done = staged.await?;
            // Nobody waits if it could not be recorded.
            let _ = open.send(());
            Ok::<_, ServiceError>(done)
        };
        let (staged, started) = tokio::join!(staged, started);
        Ok((staged?, started?))
    }

    /// Like [`Service::exec_start`], for an exec whose output goes to `stream`.
    pub(super) async fn start_streamed(
        &self,
        caller: &Caller,
        request: Start,
        stream: mpsc::Sender<Message>,
    ) -> Result<Arc<LiveExec>, ServiceError> {
        self.start_unkeyed(caller, request, Some(stream), |exec| exec)
            .await
    }

    /// Starts an exec that no key names, and hands it out.
    async fn start_unkeyed(
        &self,
        caller: &Caller,
        request: Start,
        stream: Option<mpsc::Sender<Message>>,
        make: impl FnOnce(LiveExec) -> LiveExec,
    ) -> Result<Arc<LiveExec>, ServiceError> {
        let shared = &self.0;
        shared.check(&request)?;
        if !shared.reserve(&request.command) {
            return Err(shared.full());
        }
        let abandonment = request.abandonment.clone().unless(request.key.is_some());
        let row = shared.row(caller, request);
        let exec = LiveExec::new(row.clone(), Arc::downgrade(shared), stream, abandonment);
        let exec = Arc::new(make(exec));
        let noted = shared.note_and_queue(caller, row, Arc::clone(&exec));
        noted.await.map(|_| exec)
    }
}

impl TableInner {
    fn check(&self, request: &Start) -> Result<(), ServiceError> {
        if self.closing.borrow().is_some() {
            return Err(ServiceError::no_container(&self.container));
        }
        let may_be_root = self.allow_root && self.environment.settings().policy.allow_root;
        if request.command.as_root && !may_be_root {
            return Err(ServiceError::Refused(PolicyError::Root));
        }
        command::check(&request.command, &self.env)
    }

    fn row(&self, caller: &Caller, request: Start) -> ExecRow {
        let environment = &self.environment;
        let (now, random) = (environment.clock.unix_ms(), environment.random.bytes());
        let mut ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        let (id, created_unix_ms) = ids.next(now, random);
        ExecRow {
            id,
            container: self.container.clone(),
            principal: caller.principal.clone(),
            key: request.key,
            command: request.command,
            created_unix_ms,
            oom_kills_before: self.oom_kills.load(Ordering::Relaxed),
            ended_unix_ms: None,
            end: None,
        }
    }

    async fn note_and_queue(
        self: &Arc<Self>,
        caller: &Caller,
        row: ExecRow,
        exec: Arc<LiveExec>,
    ) -> Result<ExecId, ServiceError> {
        let quota = self.environment.quota_of(&caller.principal);
        if let Err(excess) = self.environment.execs.insert(&exec, &quota) {
            self.give_back();
            self.drop_command(&exec.command);
            let excess = ServiceError::OverQuota(excess);
            return self.same_key(&caller.principal, row.key.as_ref(), excess);
        }
        // In a task of its own: an exec that is recorded must also be queued, even if the caller
        // goes away.
        let work = Arc::clone(self).note(queue_key_of(caller), row, exec);
        let work = trace::carried(work);
        let done = self.environment.tasks.spawn(work).await;
        done.ok()
            .flatten()
            .unwrap_or_else(|| Err(ServiceError::stopping()))
    }

    async fn note(
        self: Arc<Self>,
        turn: (Principal, Option<Name>),
        row: ExecRow,
        exec: Arc<LiveExec>,
    ) -> Result<ExecId, ServiceError> {
        let environment = &self.environment;
        let lifetime = environment.settings().key_lifetime.as_millis();
        let lifetime = u64::try_from(lifetime).unwrap_or(u64::MAX);
        let since = row.created_unix_ms.saturating_sub(lifetime);
        match environment.store.insert_exec(row, since).await {
            Ok(ExecInsert::New) => {}
            not_new => {
                self.give_back();
                self.drop_command(&exec.command);
                environment.execs.remove(&exec.id);
                return match not_new {
                    Ok(ExecInsert::Existing(before)) => Ok(before.id),
                    Ok(ExecInsert::New) => Ok(exec.id.clone()),
                    Err(error) => Err(error.into()),
                };
            }
        }
        environment.metrics.exec_started();
        let id = exec.id.clone();
        self.enqueue(turn, exec);
        Ok(id)
    }

    /// Returns the live exec that was started with this key: a repeated request succeeds even if
    /// the queue is full. If there is none, fails with `refusal`.
    fn same_key(
        &self,
        principal: &Principal,
        key: Option<&Name>,
        refusal: ServiceError,
    ) -> Result<ExecId, ServiceError> {
        let live = self.live_execs().into_iter();
        let mut same = live.filter(|exec| exec.key.as_ref() == key && exec.principal == *principal);
        if key.is_some()
            && let Some(exec) = same.next()
        {
            return Ok(exec.id.clone());
        }
        Err(refusal)
    }

    fn full(&self) -> ServiceError {
        let settings = self.environment.settings();
        ServiceError::Exhausted {
            reason: format!(
                "the exec queue of this container is full ({} may run and {} wait, with at most {} MiB of arguments and input); wait for one to finish or cancel one",
                settings.execs_running_max,
                settings.execs_queued_max,
                COMMANDS_BYTES_MAX >> 20,
            ),
        }
    }
}
