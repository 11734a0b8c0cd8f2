//! The result of a check, for people and for programs.

use std::io::Write;

use anyhow::{Context, Result};
use hotcell_store::StoreCheck;
use serde_json::{Value, json};

use super::difference::Difference;

pub(super) struct Report {
    pub(super) differences: Vec<Difference>,
    pub(super) audit_events: u64,
    pub(super) tokens: usize,
    /// Comparisons that could not be made, and why.
    notes: Vec<String>,
    containers: usize,
    warm: usize,
    execs: u64,
    logs: u64,
    log_bytes: u64,
    schema: u32,
}

impl Report {
    pub(super) fn new(store: &StoreCheck) -> Self {
        Self {
            differences: Vec::new(),
            audit_events: 0,
            tokens: 0,
            notes: Vec::new(),
            containers: store.containers.len(),
            warm: store.warm.len(),
            execs: store.execs,
            logs: store.logs,
            log_bytes: store.log_bytes,
            schema: store.schema,
        }
    }

    pub(super) fn note(&mut self, note: String) {
        self.notes.push(note);
    }

    pub(super) fn print(&self, is_json: bool) -> Result<()> {
        let text = if is_json {
            format!("{}\n", self.json())
        } else {
            self.text()
        };
        let mut out = std::io::stdout().lock();
        out.write_all(text.as_bytes()).context("write to stdout")
    }

    fn text(&self) -> String {
        let differences = self.differences.iter().map(Difference::text);
        let notes = self.notes.iter().map(|note| format!("note: {note}\n"));
        let counts = format!(
            "{} containers and {} warm ones, {} execs, {} output logs ({} bytes), {} audit events, {} tokens\n",
            self.containers,
            self.warm,
            self.execs,
            self.logs,
            self.log_bytes,
            self.audit_events,
            self.tokens
        );
        let verdict = match self.differences.len() {
            0 => "everything agrees\n".to_owned(),
            1 => "1 difference\n".to_owned(),
            count => format!("{count} differences\n"),
        };
        differences.chain(notes).chain([counts, verdict]).collect()
    }

    fn json(&self) -> Value {
        json!({
            "agrees": self.differences.is_empty(),
            "schema": self.schema,
            "containers": self.containers,
            "warm": self.warm,
            "execs": self.execs,
            "logs": self.logs,
            "log_bytes": self.log_bytes,
            "audit_events": self.audit_events,
            "tokens": self.tokens,
            "differences": self.differences.iter().map(Difference::json).collect::<Vec<_>>(),
            "notes": self.notes,
        })
    }
}
