//! The audit event of an operation.

use std::time::Duration;

use hotcell_domain::{Caller, ExecEnd, ExecStatus};
use hotcell_ledger::{Arguments, Event, EventName, Ledger, Ticket, Who};

use super::{Action, Outcome};
use crate::ServiceError;

/// The parts of the event that are collected before the operation ends.
pub(super) struct Record {
    ledger: Ledger,
    name: EventName,
    arguments: Arguments,
    created: Option<String>,
}

/// An event that is being written, if there is one.
#[derive(Debug, Default)]
#[must_use = "an operation is answered when its event is written"]
pub(crate) struct Recording(Option<Sent>);

#[derive(Debug)]
struct Sent {
    ledger: Ledger,
    ticket: Ticket,
    /// Whether the operation succeeds even if its event cannot be written.
    is_optional: bool,
}

/// How an operation ended, for its event.
pub(super) struct Ending<'a> {
    pub(super) caller: &'a Caller,
    pub(super) action: Action,
    pub(super) target: &'a str,
    pub(super) unix_ms: u64,
    pub(super) outcome: Outcome,
    pub(super) error: Option<&'a ServiceError>,
    pub(super) duration: Duration,
    pub(super) bytes: u64,
}

impl Record {
    pub(super) fn begin(ledger: Option<&Ledger>, action: Action) -> Option<Self> {
        Some(Self {
            ledger: ledger?.clone(),
            name: event_name(action),
            arguments: Arguments::default(),
            created: None,
        })
    }

    /// Whether the operation is recorded if it is not denied.
    fn is_recorded(&self) -> bool {
        !self.name.is_read() || self.ledger.records_reads()
    }

    pub(super) fn arguments(&mut self) -> Option<&mut Arguments> {
        self.is_recorded().then_some(&mut self.arguments)
    }

    pub(super) fn created(&mut self, id: String) {
        self.created = Some(id);
    }

    /// Refuses the operation if it could not be recorded.
    pub(super) async fn admit(&self) -> Result<(), ServiceError> {
        if !self.is_recorded() || self.name.only_ends() {
            return Ok(());
        }
        self.ledger.admit().await.map_err(|_| {
            ServiceError::Halted {
                reason: "the server cannot write its audit log, and does nothing that it cannot record; nothing was done".to_owned(),
                hint: "ask the operator to see to the disk of the audit log, then call again; kill, exec_cancel and what only looks work meanwhile",
            }
        })
    }

    pub(super) fn end(mut self, ending: &Ending<'_>) -> Recording {
        let is_denied = ending.outcome == Outcome::Denied;
        if !is_denied && !self.is_recorded() {
            return Recording::default();
        }
        let name = if is_denied {
            self.arguments.text("action", ending.action.as_str());
            if let Some(ServiceError::Refused(refusal)) = ending.error {
                self.arguments.text("rule", refusal.rule());
            }
            EventName::PolicyDenied
        } else {
            self.name
        };
        let event = Event {
            created: self.created.as_deref(),
            arguments: self.arguments,
            outcome: ending.outcome.for_ledger(),
            code: ending.error.map(code),
            duration: ending.duration,
            bytes: ending.bytes,
            ..Event::new(
                name,
                ending.unix_ms,
                Who::Caller(ending.caller),
                ending.target,
            )
        };
        Recording::of(&self.ledger, &event)
    }
}

impl Recording {
    /// Sends an event to the ledger.
    pub(crate) fn of(ledger: &Ledger, event: &Event<'_>) -> Self {
        Self(Some(Sent {
            ledger: ledger.clone(),
            ticket: ledger.record(event),
            is_optional: event.name.only_ends(),
        }))
    }

    /// Waits until the event has been handed to the kernel.
    pub(crate) async fn written(self) -> Result<(), ServiceError> {
        let Some(sent) = self.0 else {
            return Ok(());
        };
        if sent.is_optional && sent.ledger.is_failing() {
            return Ok(());
        }
        match sent.ledger.recorded(sent.ticket).await {
            Err(_) if !sent.is_optional => Err(done_unrecorded()),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

/// Records the end of an exec in the ledger, whether or not a caller waits for it.
pub(crate) fn exec_complete(
    ledger: &Ledger,
    unix_ms: u64,
    (principal, exec, container): (&str, &str, &str),
    end: &ExecEnd,
) -> Recording {
    let mut event = Event::new(
        EventName::ExecComplete,
        unix_ms,
        Who::Owner(principal),
        exec,
    );
    event.arguments.text("container", container);
    event.arguments.text("status", end.status.as_str());
    if let Some(code) = end.exit_code {
        event.arguments.number("exit_code", code.into());
    }
    if let Some(signal) = end.signal {
        event.arguments.number("signal", signal.into());
    }
    if let Some(usage) = &end.usage {
        event.arguments.number("user_ms", usage.user_ms);
        event.arguments.number("system_ms", usage.system_ms);
        event.arguments.number("max_rss_bytes", usage.max_rss_bytes);
        event.duration = Duration::from_millis(usage.wall_ms);
        event.bytes = usage.stdout_bytes.saturating_add(usage.stderr_bytes);
    }
    if end.status != ExecStatus::Succeeded {
        event.outcome = hotcell_ledger::Outcome::Failed;
        event.code = Some(end.status.as_str());
    }
    Recording::of(ledger, &event)
}

/// The error for an operation that was executed but could not be recorded: the caller must not
/// believe that nothing has happened.
fn done_unrecorded() -> ServiceError {
    ServiceError::Halted {
        reason: "the operation was done, but the server could not write its audit log in time and so does not tell the result".to_owned(),
        hint: "do not just repeat it: list_containers, list_execs and fs_stat show what it has changed, and the same idempotency_key finds what it made; ask the operator to see to the disk of the audit log",
    }
}

/// The error code that callers see.
pub(super) fn code(error: &ServiceError) -> &'static str {
    match error {
        ServiceError::Invalid { .. } => "invalid_argument",
        ServiceError::NotFound { .. } => "not_found",
        ServiceError::AlreadyExists { .. } => "already_exists",
        ServiceError::Conflict { .. } => "conflict",
        ServiceError::Denied { .. } | ServiceError::Refused(_) => "denied",
        ServiceError::Exhausted { .. } | ServiceError::OverQuota(_) => "resource_exhausted",
        ServiceError::Batch { cause, .. } => code(cause),
        ServiceError::Deadline { .. } => "deadline_exceeded",
        ServiceError::Unavailable { .. } | ServiceError::Halted { .. } => "unavailable",
        ServiceError::Internal { .. } => "internal",
    }
}

fn event_name(action: Action) -> EventName {
    match action {
        Action::Spawn => EventName::ContainerSpawn,
        Action::Attach => EventName::ContainerAttach,
        Action::Kill => EventName::ContainerKill,
        Action::ListContainers => EventName::ContainerList,
        Action::ShowContainer => EventName::ContainerShow,
        Action::ExecStart => EventName::ExecStart,
        Action::ExecPoll => EventName::ExecPoll,
        Action::ExecWait => EventName::ExecWait,
        Action::ExecInput => EventName::ExecInput,
        Action::ExecCancel => EventName::ExecCancel,
        Action::ListExecs => EventName::ExecList,
        Action::FsRead => EventName::FsRead,
        Action::FsWrite => EventName::FsWrite,
        Action::FsDelete => EventName::FsDelete,
        Action::FsStat => EventName::FsStat,
        Action::FsList => EventName::FsList,
        Action::FsBatch => EventName::FsBatch,
        Action::FsImport => EventName::FsImport,
        Action::FsExport => EventName::FsExport,
        Action::ExecuteCode | Action::RunPython => EventName::CodeRun,
        Action::McpCall => EventName::McpCall,
        Action::Memory => EventName::CodeMemory,
        Action::EgressAnswer => EventName::EgressAnswer,
        Action::SystemStatus => EventName::SystemStatus,
        Action::Metrics => EventName::SystemMetrics,
        Action::Reconcile => EventName::SystemReconcile,
        Action::GarbageCollect => EventName::SystemGc,
        Action::Reload => EventName::SystemReload,
    }
}
