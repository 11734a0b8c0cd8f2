//! The guard of all operations that are executed for a caller.
//!
//! ```text
//! Service::spawn, file_read, … ─▶ begin(caller, action, target) ─▶ work in a span ─▶ outcome, bytes, duration
//!                                                                       └─ dropped on the way: abandoned
//! ```
//!
//! [`Service`](crate::Service) reaches its inside through [`Guarded`], which hands it out together with an
//! [`Operation`]: a public method that forgets to begin one does not compile. What does not act
//! for a caller says so by [`Guarded::without_operation`], and a test lists every such place.
//! Each operation ends once, in [`Operation::finish`]: metrics and the operator's log are
//! written there, and the ledger hears of it. What leaves an event is not begun while there can
//! be none, and answered once the event is written.

mod record;

use std::fmt::Display;
use std::future::Future;
use std::sync::Arc;

use hotcell_domain::{Caller, Name, PolicyError};
use hotcell_ledger::Arguments;
use tokio::time::Instant;
use tracing::{Instrument as _, Span};

use crate::environment::Environment;
use crate::trace::{self, OperationSpan};
use crate::{Inner, ServiceError};

use record::{Ending, Record};
pub(crate) use record::{Recording, exec_complete};

/// The log target of policy denials, for operators who filter for them.
const POLICY_TARGET: &str = "hotcell::policy";

/// The actions that a caller can request. If there is a tool for an action, both have the same
/// name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each is named like its tool or its method")]
pub enum Action {
    Spawn,
    Attach,
    Kill,
    ListContainers,
    ShowContainer,
    ExecStart,
    ExecPoll,
    ExecWait,
    ExecInput,
    ExecCancel,
    ListExecs,
    FsRead,
    FsWrite,
    FsDelete,
    FsStat,
    FsList,
    FsBatch,
    FsImport,
    FsExport,
    ExecuteCode,
    RunPython,
    McpCall,
    Memory,
    EgressAnswer,
    SystemStatus,
    Metrics,
    Reconcile,
    GarbageCollect,
    Reload,
}

/// How an operation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Ok,
    /// Forbidden by policy, a permission or the container's boundary.
    Denied,
    Failed,
    /// The caller went away before it was done.
    Abandoned,
}

/// The inner service, which is handed out only together with an operation.
#[derive(Clone)]
pub(crate) struct Guarded(Arc<Inner>);

/// An operation that is being executed for a caller.
#[must_use = "an operation that is dropped has been abandoned"]
pub(crate) struct Operation {
    environment: Arc<Environment>,
    /// Always has a trace: the caller's, or a new one.
    caller: Caller,
    action: Action,
    /// The name that the caller used.
    target: String,
    started: Instant,
    bytes: u64,
    span: Span,
    /// The same span for the trace exporter.
    traced: Option<Arc<OperationSpan>>,
    has_ended: bool,
    /// The audit event so far; `None` without a ledger.
    record: Option<Record>,
    /// The pending audit event, once the operation has ended.
    recording: Recording,
}

impl Guarded {
    pub(crate) fn new(inner: Arc<Inner>) -> Self {
        Self(inner)
    }

    /// Begins an operation. `target` is what it is about and contains no secret: a container, an
    /// exec, an image.
    pub(crate) fn begin(
        &self,
        caller: &Caller,
        action: Action,
        target: &impl Display,
    ) -> (Operation, Arc<Inner>) {
        let target = target.to_string();
        let mut caller = caller.clone();
        let trace = caller
            .trace
            .get_or_insert_with(|| self.0.environment.new_trace());
        let span = tracing::info_span!(
            "operation",
            action = action.as_str(),
            principal = %caller.principal,
            target,
            trace_id = %trace.trace_id,
        );
        let traced = self.0.environment.begin_span(*trace);
        let operation = Operation {
            environment: Arc::clone(&self.0.environment),
            caller,
            action,
            target,
            started: Instant::now(),
            bytes: 0,
            span,
            traced,
            has_ended: false,
            record: Record::begin(self.0.environment.settings().ledger.as_ref(), action),
            recording: Recording::default(),
        };
        (operation, Arc::clone(&self.0))
    }

    /// For actions without a caller: settings, readiness, stopping.
    pub(crate) fn without_operation(&self) -> &Arc<Inner> {
        &self.0
    }
}

impl Operation {
    /// Executes the work in the operation's span and ends the operation with its outcome.
    pub(crate) fn run<'a, T: Send + 'a>(
        self,
        work: impl Future<Output = Result<T, ServiceError>> + Send + 'a,
    ) -> impl Future<Output = Result<T, ServiceError>> + Send + 'a {
        let opened = self.open(work);
        async move {
            let (done, operation) = opened.await?;
            operation.end().written().await?;
            Ok(done)
        }
    }

    /// Like [`Operation::run`], for work that is followed by a transfer: on `Ok` the operation
    /// continues until it is ended. The work is boxed here, once, so that the futures above stay
    /// small.
    pub(crate) fn open<'a, T: Send + 'a>(
        mut self,
        work: impl Future<Output = Result<T, ServiceError>> + Send + 'a,
    ) -> impl Future<Output = Result<(T, Self), ServiceError>> + Send + 'a {
        let work = Box::pin(work).instrument(self.span.clone());
        let work = trace::within(self.traced.clone(), work);
        async move {
            if let Some(record) = &self.record
                && let Err(refusal) = record.admit().await
            {
                self.record = None;
                self.fail(&refusal);
                return Err(refusal);
            }
            match work.await {
                Ok(done) => Ok((done, self)),
                Err(error) => {
                    self.fail(&error);
                    self.recorded().await;
                    Err(error)
                }
            }
        }
    }

    /// Counts bytes sent to or received from the caller.
    pub(crate) fn count_bytes(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes as u64);
    }

    /// Writes the request's arguments for the audit log, if it will be recorded.
    pub(crate) fn note(&mut self, note: impl FnOnce(&mut Arguments)) {
        if let Some(arguments) = self.record.as_mut().and_then(Record::arguments) {
            note(arguments);
        }
    }

    /// Records what the operation created.
    pub(crate) fn created(&mut self, id: &impl Display) {
        if let Some(record) = &mut self.record {
            record.created(id.to_string());
        }
    }

    /// Ends the operation as successful.
    pub(crate) fn end(mut self) -> Recording {
        self.finish(Outcome::Ok, None);
        std::mem::take(&mut self.recording)
    }

    /// Waits until its audit event is written, or cannot be.
    pub(crate) async fn recorded(&mut self) {
        let _ = std::mem::take(&mut self.recording).written().await;
    }

    /// Ends the operation as failed. An operation ends once: the first error counts.
    pub(crate) fn fail(&mut self, error: &ServiceError) {
        if let ServiceError::Refused(refusal) = error
            && !self.has_ended
        {
            log_denial(&self.caller, &self.target, refusal);
        }
        if let ServiceError::OverQuota(excess) = error
            && !self.has_ended
        {
            self.environment.metrics.over_quota(excess.quota);
        }
        self.finish(Outcome::of(error), Some(error));
    }

    /// The only place where operations end.
    fn finish(&mut self, outcome: Outcome, error: Option<&ServiceError>) {
        if std::mem::replace(&mut self.has_ended, true) {
            return;
        }
        let duration = self.started.elapsed();
        let metrics = &self.environment.metrics;
        metrics.operation_ended(self.action, outcome, duration);
        if let Some(record) = self.record.take() {
            self.recording = record.end(&Ending {
                caller: &self.caller,
                action: self.action,
                target: &self.target,
                unix_ms: self.environment.clock.unix_ms(),
                outcome,
                error,
                duration,
                bytes: self.bytes,
            });
        }
        if let Some(span) = self.traced.take() {
            let is_error = matches!(outcome, Outcome::Denied | Outcome::Failed);
            let attributes = self.attributes(outcome, error);
            span.end(self.action.as_str(), is_error, attributes);
        }
        self.span.in_scope(|| {
            tracing::debug!(
                outcome = outcome.as_str(),
                client = self.caller.client.as_ref().map(Name::as_str),
                bytes = self.bytes,
                duration_ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX),
                "operation ended"
            );
        });
    }
}

impl Operation {
    /// The attributes for the trace exporter: no data of containers, no arguments.
    fn attributes(
        &self,
        outcome: Outcome,
        error: Option<&ServiceError>,
    ) -> Vec<(&'static str, String)> {
        let client = self.caller.client.as_ref().map(Name::as_str);
        let optional = [
            ("hotcell.client", client),
            ("error.type", error.map(record::code)),
        ];
        let known = [
            ("hotcell.principal", self.caller.principal.to_string()),
            ("hotcell.target", self.target.clone()),
            ("hotcell.outcome", outcome.as_str().to_owned()),
            ("hotcell.bytes", self.bytes.to_string()),
        ];
        let optional = optional.into_iter();
        let optional = optional.filter_map(|(key, value)| Some((key, value?.to_owned())));
        known.into_iter().chain(optional).collect()
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        self.finish(Outcome::Abandoned, None);
    }
}

/// Rejects callers that may not see other principals' objects.
pub(crate) fn must_be_admin(caller: &Caller, what: &str) -> Result<(), ServiceError> {
    if caller.is_admin {
        return Ok(());
    }
    Err(ServiceError::Denied {
        reason: format!("only an admin sees the {what} of other principals"),
    })
}

/// Logs for the operator who was denied what by which rule. `what` is the name of an image or a
/// container; neither contains secrets.
pub fn log_denial(caller: &Caller, what: &impl Display, refusal: &PolicyError) {
    tracing::info!(
        target: POLICY_TARGET,
        rule = refusal.rule(),
        principal = %caller.principal,
        client = caller.client.as_ref().map(Name::as_str),
        %what,
        reason = %refusal,
        "denied"
    );
}

impl Outcome {
    fn for_ledger(self) -> hotcell_ledger::Outcome {
        match self {
            Self::Ok => hotcell_ledger::Outcome::Ok,
            Self::Denied => hotcell_ledger::Outcome::Denied,
            Self::Failed => hotcell_ledger::Outcome::Failed,
            Self::Abandoned => hotcell_ledger::Outcome::Abandoned,
        }
    }

    fn of(error: &ServiceError) -> Self {
        match error {
            ServiceError::Denied { .. } | ServiceError::Refused(_) => Self::Denied,
            ServiceError::Invalid { .. }
            | ServiceError::NotFound { .. }
            | ServiceError::AlreadyExists { .. }
            | ServiceError::Conflict { .. }
            | ServiceError::Exhausted { .. }
            | ServiceError::OverQuota(_)
            | ServiceError::Batch { .. }
            | ServiceError::Deadline { .. }
            | ServiceError::Unavailable { .. }
            | ServiceError::Halted { .. }
            | ServiceError::Internal { .. } => Self::Failed,
        }
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Denied => "denied",
            Self::Failed => "failed",
            Self::Abandoned => "abandoned",
        }
    }
}

impl Action {
    pub(crate) const ALL: [Self; 29] = [
        Self::Spawn,
        Self::Attach,
        Self::Kill,
        Self::ListContainers,
        Self::ShowContainer,
        Self::ExecStart,
        Self::ExecPoll,
        Self::ExecWait,
        Self::ExecInput,
        Self::ExecCancel,
        Self::ListExecs,
        Self::FsRead,
        Self::FsWrite,
        Self::FsDelete,
        Self::FsStat,
        Self::FsList,
        Self::FsBatch,
        Self::FsImport,
        Self::FsExport,
        Self::ExecuteCode,
        Self::RunPython,
        Self::McpCall,
        Self::Memory,
        Self::EgressAnswer,
        Self::SystemStatus,
        Self::Metrics,
        Self::Reconcile,
        Self::GarbageCollect,
        Self::Reload,
    ];

    /// The action of a tool, by the tool's name.
    pub fn of_tool(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.as_str() == name)
    }

    /// The name in metrics and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Spawn => "spawn",
            Self::Attach => "attach",
            Self::Kill => "kill",
            Self::ListContainers => "list_containers",
            Self::ShowContainer => "show_container",
            Self::ExecStart => "exec_start",
            Self::ExecPoll => "exec_poll",
            Self::ExecWait => "exec_wait",
            Self::ExecInput => "exec_input",
            Self::ExecCancel => "exec_cancel",
            Self::ListExecs => "list_execs",
            Self::FsRead => "fs_read",
            Self::FsWrite => "fs_write",
            Self::FsDelete => "fs_delete",
            Self::FsStat => "fs_stat",
            Self::FsList => "fs_list",
            Self::FsBatch => "fs_batch",
            Self::FsImport => "fs_import",
            Self::FsExport => "fs_export",
            Self::ExecuteCode => "execute_code",
            Self::RunPython => "run_python",
            Self::McpCall => "mcp_call",
            Self::Memory => "memory",
            Self::EgressAnswer => "egress_answer",
            Self::SystemStatus => "system_status",
            Self::Metrics => "metrics",
            Self::Reconcile => "reconcile",
            Self::GarbageCollect => "garbage_collect",
            Self::Reload => "reload",
        }
    }
}

#[cfg(test)]
mod tests;
