//! The audit log of a server: its settings, and its anchor in the database.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use hotcell_ledger::chain::{Hash, Link};
use hotcell_ledger::{Anchor, AnchorError, AnchorStore, Ledger, LedgerSettings, OnFailure};
use hotcell_store::{LedgerAnchorRow, Store};

use crate::cli::{AuditLogArgs, OnFailureChoice};

/// How long writing the last events may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

const DAY: Duration = Duration::from_hours(24);

/// Opens the audit log and continues it; `None` if it is disabled.
pub(super) async fn open(
    arguments: &AuditLogArgs,
    state: &Path,
    store: &Store,
) -> Result<Option<Ledger>> {
    if !arguments.audit {
        tracing::warn!("--audit false: nothing that callers do is recorded");
        return Ok(None);
    }
    let settings = settings(arguments, state)?;
    let directory = settings.directory.clone();
    let anchor = Box::new(StoredAnchor(store.clone()));
    let opened = tokio::task::spawn_blocking(move || Ledger::open(settings, anchor)).await;
    let opened = opened.context("open the audit log")?;
    let opened =
        opened.with_context(|| format!("open the audit log in {}", directory.display()))?;
    Ok(Some(opened))
}

/// Writes all recorded events to disk. Tasks that still run when the process ends hold the ledger,
/// too, so it does not close by itself.
pub(super) async fn close(ledger: Option<Ledger>) {
    if let Some(ledger) = ledger {
        let closing = tokio::task::spawn_blocking(move || ledger.close());
        if tokio::time::timeout(CLOSE_TIMEOUT, closing).await.is_err() {
            tracing::error!("the disk of the audit log does not answer; it is left as it is");
        }
    }
}

fn settings(arguments: &AuditLogArgs, state: &Path) -> Result<LedgerSettings> {
    let directory = match &arguments.audit_dir {
        Some(directory) => std::path::absolute(directory).context("make --audit-dir absolute")?,
        None => state.join("audit"),
    };
    let days = u32::from(arguments.audit_retention_days);
    Ok(LedgerSettings {
        segment_bytes: arguments.audit_segment_bytes,
        retention: (days > 0).then(|| DAY * days),
        bytes_max: Some(arguments.audit_bytes_max.get()),
        on_failure: match arguments.audit_on_failure {
            OnFailureChoice::Stop => OnFailure::Stop,
            OnFailureChoice::Continue => OnFailure::Continue,
        },
        records_reads: arguments.audit_reads,
        ..LedgerSettings::new(directory)
    })
}

/// Stores the anchor as a row of the database.
struct StoredAnchor(Store);

impl AnchorStore for StoredAnchor {
    fn load(&self) -> Result<Option<Anchor>, AnchorError> {
        let failed = |error: &dyn std::fmt::Display| AnchorError(error.to_string());
        let row = self.0.ledger_anchor().map_err(|error| failed(&error))?;
        row.as_ref()
            .map(anchor_of)
            .transpose()
            .map_err(|error| failed(&error))
    }

    fn save(&self, anchor: Anchor) -> Result<(), AnchorError> {
        let row = LedgerAnchorRow {
            seq: anchor.last.seq,
            hash: anchor.last.hash.to_string(),
            first_kept: anchor.first_kept,
        };
        let saved = self.0.set_ledger_anchor(row);
        saved.map_err(|error| AnchorError(error.to_string()))
    }
}

/// Converts a row of the database into an anchor.
pub(crate) fn anchor_of(row: &LedgerAnchorRow) -> Result<Anchor> {
    let hash = Hash::parse(row.hash.as_bytes());
    Ok(Anchor {
        last: Link {
            seq: row.seq,
            hash: hash.context("the anchor of the audit log is damaged")?,
        },
        first_kept: row.first_kept,
    })
}
