//! A difference that the check found, with advice.

use std::fmt;

use hotcell_store::{StoreFault, StoreFaultKind};
use serde_json::{Value, json};

use crate::terminal::plain;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Difference {
    kind: Kind,
    /// The container, exec or file.
    subject: String,
    /// A description of the difference.
    found: String,
}

/// The kinds of differences.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Within the database, or between it and the logs.
    Store(StoreFaultKind),
    /// A row names a container that its engine does not have.
    ContainerMissing,
    /// A row says that a container runs, but it has ended.
    ContainerStopped,
    /// An engine has a container without a row.
    ContainerUnknown,
    /// A workspace without a container.
    WorkspaceUnowned,
    /// The audit log is damaged or incomplete.
    AuditLog,
    /// The token file cannot be read.
    Tokens,
}

impl Difference {
    pub(super) fn new(kind: Kind, subject: impl fmt::Display, found: impl fmt::Display) -> Self {
        // A damaged file can contain anything, including escape sequences.
        let safe = |text: String| plain(&text);
        Self {
            kind,
            subject: safe(subject.to_string()),
            found: safe(found.to_string()),
        }
    }

    pub(super) fn of_store(fault: &StoreFault) -> Self {
        let is_database = fault.kind == StoreFaultKind::Database;
        let subject = if is_database {
            "database"
        } else {
            &fault.subject
        };
        Self::new(Kind::Store(fault.kind), subject, &fault.found)
    }

    /// Whether it is the same difference, found in another pass.
    pub(super) fn is(&self, other: &Self) -> bool {
        (self.kind, &self.subject) == (other.kind, &other.subject)
    }

    pub(super) fn text(&self) -> String {
        format!(
            "✗ {}: {}\n  → {}\n",
            self.subject,
            self.found,
            self.kind.advice()
        )
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "kind": self.kind.as_str(),
            "subject": self.subject,
            "message": self.found,
            "fix": self.kind.advice(),
        })
    }
}

impl Kind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Store(kind) => kind.as_str(),
            Self::ContainerMissing => "container_missing",
            Self::ContainerStopped => "container_stopped",
            Self::ContainerUnknown => "container_unknown",
            Self::WorkspaceUnowned => "workspace_unowned",
            Self::AuditLog => "audit_log",
            Self::Tokens => "tokens_unreadable",
        }
    }

    /// How to resolve it.
    fn advice(self) -> &'static str {
        match self {
            Self::Store(StoreFaultKind::Database) => {
                "stop the server, move the state directory aside, and restore a copy with `hotcell state import`"
            }
            Self::Store(StoreFaultKind::Row) => {
                "the server leaves this row out; restore a copy, or end and remove what it is about by hand"
            }
            Self::Store(StoreFaultKind::Sums) => {
                "quotas and retention of this principal are off by the difference; restore a copy if it matters"
            }
            Self::Store(
                StoreFaultKind::LogSize
                | StoreFaultKind::LogDamaged
                | StoreFaultKind::LogIncomplete,
            ) => {
                "output of this exec is lost or damaged; the row stays until retention removes it. Check the disk"
            }
            Self::Store(StoreFaultKind::LogWithoutExec) => {
                "`gc` removes it, which the server also does every hour"
            }
            Self::Store(StoreFaultKind::ExecWithoutContainer) => {
                "start or restart the server: it marks the exec as lost"
            }
            Self::ContainerMissing | Self::ContainerStopped => {
                "start the server, or call `reconcile` if it runs: it restarts a persistent container and ends another"
            }
            Self::ContainerUnknown => {
                "start the server, or call `reconcile` if it runs: it adopts a container that works and removes another"
            }
            Self::WorkspaceUnowned => "start or restart the server: it removes it",
            Self::AuditLog => {
                "`hotcell audit verify` tells more; keep the files as they are if you suspect tampering"
            }
            Self::Tokens => "correct the file or restore it; until then no new token is accepted",
        }
    }
}
