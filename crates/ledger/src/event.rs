//! The audit event of an operation.

use std::fmt::Write as _;
use std::time::Duration;

use hotcell_domain::{Caller, Name, rfc3339};

use crate::Arguments;
use crate::arguments::push_string;
use crate::redact::redact;

/// The longest target or other word of an event.
const WORD_BYTES_MAX: usize = 1024;

/// What happened. New names are added at the end of their group; old ones are never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each is named like its word")]
pub enum EventName {
    ContainerSpawn,
    ContainerAttach,
    ContainerKill,
    ContainerList,
    ContainerShow,
    ExecStart,
    ExecCancel,
    ExecComplete,
    ExecInput,
    ExecPoll,
    ExecWait,
    ExecList,
    FsRead,
    FsWrite,
    FsDelete,
    FsBatch,
    FsImport,
    FsExport,
    FsStat,
    FsList,
    CodeRun,
    McpCall,
    CodeMemory,
    EgressOpen,
    EgressDeny,
    EgressClose,
    EgressAsk,
    EgressAnswer,
    PolicyDenied,
    AuthFailed,
    SystemStart,
    SystemShutdown,
    SystemReconcile,
    SystemGc,
    SystemReload,
    SystemStatus,
    SystemMetrics,
    /// Events could not be written for a while, and some were dropped.
    LedgerGap,
}

/// How an operation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is named like its word")]
pub enum Outcome {
    Ok,
    Denied,
    Failed,
    Abandoned,
}

/// Who caused an event.
#[derive(Debug, Clone, Copy)]
pub enum Who<'a> {
    /// An identified caller.
    Caller(&'a Caller),
    /// The owner of the object; no caller requested it.
    Owner(&'a str),
    /// A client that failed to authenticate.
    Nobody,
    /// The server itself.
    Server,
}

/// The audit event of an operation.
#[derive(Debug)]
pub struct Event<'a> {
    /// The name of the event.
    pub name: EventName,
    /// When the operation ended.
    pub unix_ms: u64,
    /// Who caused the event.
    pub who: Who<'a>,
    /// A container, exec, image or address, as the caller named it.
    pub target: &'a str,
    /// The id of the container or exec that was created.
    pub created: Option<&'a str>,
    /// The recorded arguments.
    pub arguments: Arguments,
    /// The outcome of the operation.
    pub outcome: Outcome,
    /// The error code, if it failed.
    pub code: Option<&'static str>,
    /// The duration of the operation.
    pub duration: Duration,
    /// Bytes of content sent to or received from the caller.
    pub bytes: u64,
}

impl<'a> Event<'a> {
    /// A successful event without duration and arguments.
    pub fn new(name: EventName, unix_ms: u64, who: Who<'a>, target: &'a str) -> Self {
        Self {
            name,
            unix_ms,
            who,
            target,
            created: None,
            arguments: Arguments::default(),
            outcome: Outcome::Ok,
            code: None,
            duration: Duration::ZERO,
            bytes: 0,
        }
    }

    /// The fields after the sequence number, with the closing brace.
    pub(crate) fn fields(&self) -> String {
        let mut fields = String::with_capacity(512);
        // Writing to a string cannot fail.
        let _ = write!(
            fields,
            "\"time\":\"{}\",\"event\":\"{}\"",
            rfc3339(self.unix_ms),
            self.name.as_str()
        );
        self.who.push(&mut fields);
        word(&mut fields, "target", Some(self.target));
        word(&mut fields, "created", self.created);
        self.arguments.push(&mut fields);
        let _ = write!(fields, ",\"outcome\":\"{}\"", self.outcome.as_str());
        word(&mut fields, "code", self.code);
        let microseconds = self.duration.as_micros();
        let (ms, rest) = (microseconds / 1000, microseconds % 1000);
        let _ = write!(
            fields,
            ",\"duration_ms\":{ms}.{rest:03},\"bytes\":{}}}",
            self.bytes
        );
        fields
    }
}

impl Who<'_> {
    fn push(self, fields: &mut String) {
        match self {
            Self::Caller(caller) => {
                name(fields, "principal", caller.principal.as_str());
                word(fields, "client", caller.client.as_ref().map(Name::as_str));
                let version = caller.client_version.as_ref();
                word(fields, "client_version", version.map(Name::as_str));
                let trace = caller.trace.map(|trace| trace.trace_id.to_string());
                word(fields, "trace", trace.as_deref());
            }
            Self::Owner(principal) => name(fields, "principal", principal),
            Self::Nobody | Self::Server => {}
        }
    }
}

/// A field with one of our own names. It is not redacted: the principal `token:ci` looks like a
/// secret, but an event without its principal says little.
fn name(fields: &mut String, key: &str, value: &str) {
    let _ = write!(fields, ",\"{key}\":");
    push_string(fields, value, WORD_BYTES_MAX);
}

/// A field with a word, if there is one.
fn word(fields: &mut String, key: &str, value: Option<&str>) {
    let Some(value) = value else { return };
    let _ = write!(fields, ",\"{key}\":");
    push_string(fields, &redact(value), WORD_BYTES_MAX);
}

impl Outcome {
    /// The form in the log.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Denied => "denied",
            Self::Failed => "failed",
            Self::Abandoned => "abandoned",
        }
    }
}

impl EventName {
    /// The form in the log.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ContainerSpawn => "CONTAINER_SPAWN",
            Self::ContainerAttach => "CONTAINER_ATTACH",
            Self::ContainerKill => "CONTAINER_KILL",
            Self::ContainerList => "CONTAINER_LIST",
            Self::ContainerShow => "CONTAINER_SHOW",
            Self::ExecStart => "EXEC_START",
            Self::ExecCancel => "EXEC_CANCEL",
            Self::ExecComplete => "EXEC_COMPLETE",
            Self::ExecInput => "EXEC_INPUT",
            Self::ExecPoll => "EXEC_POLL",
            Self::ExecWait => "EXEC_WAIT",
            Self::ExecList => "EXEC_LIST",
            Self::FsRead => "FS_READ",
            Self::FsWrite => "FS_WRITE",
            Self::FsDelete => "FS_DELETE",
            Self::FsBatch => "FS_BATCH",
            Self::FsImport => "FS_IMPORT",
            Self::FsExport => "FS_EXPORT",
            Self::FsStat => "FS_STAT",
            Self::FsList => "FS_LIST",
            Self::CodeRun => "CODE_RUN",
            Self::McpCall => "MCP_CALL",
            Self::CodeMemory => "CODE_MEMORY",
            Self::EgressOpen => "EGRESS_OPEN",
            Self::EgressDeny => "EGRESS_DENY",
            Self::EgressClose => "EGRESS_CLOSE",
            Self::EgressAsk => "EGRESS_ASK",
            Self::EgressAnswer => "EGRESS_ANSWER",
            Self::PolicyDenied => "POLICY_DENIED",
            Self::AuthFailed => "AUTH_FAILED",
            Self::SystemStart => "SYSTEM_START",
            Self::SystemShutdown => "SYSTEM_SHUTDOWN",
            Self::SystemReconcile => "SYSTEM_RECONCILE",
            Self::SystemGc => "SYSTEM_GC",
            Self::SystemReload => "SYSTEM_RELOAD",
            Self::SystemStatus => "SYSTEM_STATUS",
            Self::SystemMetrics => "SYSTEM_METRICS",
            Self::LedgerGap => "LEDGER_GAP",
        }
    }

    /// Whether the operation only ends something, or reports an end. Ending things must work even
    /// while events cannot be written: then such an event stays queued, and the operation does not
    /// wait for it.
    pub fn only_ends(self) -> bool {
        matches!(
            self,
            Self::ContainerKill | Self::ExecCancel | Self::ExecComplete
        )
    }

    /// Whether the operation only reads. Recorded only if configured, or if it was denied.
    pub fn is_read(self) -> bool {
        matches!(
            self,
            Self::ContainerList
                | Self::ContainerShow
                | Self::ExecPoll
                | Self::ExecWait
                | Self::ExecList
                | Self::FsStat
                | Self::FsList
                | Self::CodeMemory
                | Self::SystemStatus
                | Self::SystemMetrics
        )
    }
}

#[cfg(test)]
mod tests {
    use hotcell_domain::TraceContext;

    use super::*;

    #[test]
    fn an_event_says_who_did_what_to_what_and_how_it_ended() {
        let caller = Caller {
            client: Name::parse("cli \"x\"").ok(),
            client_version: Name::parse("1.2").ok(),
            trace: TraceContext::parse("00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01"),
            ..Caller::local()
        };
        let mut event = Event::new(
            EventName::ExecStart,
            1_735_689_599_001,
            Who::Caller(&caller),
            "c_1",
        );
        event.created = Some("e_2");
        event.arguments.flag("as_root", true);
        event.duration = Duration::from_micros(1_234);
        event.bytes = 5;
        assert_eq!(
            event.fields(),
            "\"time\":\"2024-12-31T23:59:59.001Z\",\"event\":\"EXEC_START\",\"principal\":\"local\",\
             \"client\":\"cli \\\"x\\\"\",\"client_version\":\"1.2\",\"trace\":\"0af7651916cd43dd8448eb211c80319c\",\
             \"target\":\"c_1\",\"created\":\"e_2\",\"args\":{\"as_root\":true},\"outcome\":\"ok\",\
             \"duration_ms\":1.234,\"bytes\":5}"
        );
    }

    #[test]
    fn principals_are_told_whatever_they_look_like() {
        for principal in [
            "token:ci",
            "token:hct_like",
            "oidc:0123456789abcdef",
            "user:root",
        ] {
            let expected = format!("\"principal\":\"{principal}\"");
            let caller = Caller {
                principal: hotcell_domain::Principal::new(Name::parse(principal).expect("a name")),
                ..Caller::local()
            };
            for who in [Who::Caller(&caller), Who::Owner(principal)] {
                let fields = Event::new(EventName::ExecStart, 0, who, "c_1").fields();
                assert!(fields.contains(&expected), "{fields}");
            }
        }
    }

    #[test]
    fn a_secret_in_a_target_is_hidden() {
        let target = "https://me:hunter2@registry.example/image";
        let event = Event::new(EventName::ContainerSpawn, 0, Who::Server, target);
        let fields = event.fields();
        assert!(!fields.contains("hunter2"), "{fields}");
        assert!(fields.contains("registry.example"), "{fields}");
    }
}
