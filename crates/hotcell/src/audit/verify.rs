//! `hotcell audit verify`.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{Context, Result};
use hotcell_ledger::{Anchor, Fault, Verdict};
use serde_json::{Value, json};

use super::directory;
use crate::cli::AuditVerifyArgs;
use crate::serve::anchor_of;
use crate::state;

/// Verifies the hash chain of the audit log, and compares it with the anchor that the server
/// stored.
pub(super) fn run(arguments: &AuditVerifyArgs) -> Result<ExitCode> {
    let directory = directory(&arguments.place)?;
    // Read before the files: a server may be writing, and the anchor must not be ahead of them.
    let anchor = anchor(arguments)?;
    let verdict = hotcell_ledger::verify(&directory, anchor).context("read the audit log")?;
    let report = if arguments.json {
        format!("{}\n", as_json(&verdict))
    } else {
        as_text(&verdict)
    };
    io::stdout().write_all(report.as_bytes())?;
    Ok(if verdict.is_whole() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn anchor(arguments: &AuditVerifyArgs) -> Result<Option<Anchor>> {
    let state = state::directory(arguments.place.state.state_dir.clone())?;
    let row = hotcell_store::read_ledger_anchor(&state)?;
    row.as_ref().map(anchor_of).transpose()
}

fn as_json(verdict: &Verdict) -> Value {
    let fault = |fault: &Fault| {
        json!({
            "kind": fault.kind.as_str(),
            "from_seq": fault.events.0,
            "to_seq": fault.events.1,
            "segment": fault.place.map(|(segment, _)| segment),
            "line": fault.place.map(|(_, line)| line),
            "message": fault.to_string(),
        })
    };
    json!({
        "whole": verdict.is_whole(),
        "events": verdict.events,
        "segments": verdict.segments,
        "first_seq": verdict.first_seq,
        "head": { "seq": verdict.head.seq, "hash": verdict.head.hash.to_string() },
        "torn_bytes": verdict.torn_bytes,
        "anchored": verdict.is_anchored,
        "faults_count": verdict.faults_count,
        "faults": verdict.faults.iter().map(fault).collect::<Vec<_>>(),
    })
}

fn as_text(verdict: &Verdict) -> String {
    let mut lines = vec![format!(
        "{} events in {} segments, up to event {} with hash {}",
        verdict.events, verdict.segments, verdict.head.seq, verdict.head.hash
    )];
    if verdict.torn_bytes > 0 {
        lines.push(format!(
            "the last line is unfinished ({} bytes): its server died, or is writing it now",
            verdict.torn_bytes
        ));
    }
    if !verdict.is_anchored {
        lines.push(
            "the state directory does not say how far the log was: a removed end would not be noticed"
                .to_owned(),
        );
    }
    lines.extend(verdict.faults.iter().map(|fault| format!("FAULT: {fault}")));
    let more = verdict
        .faults_count
        .saturating_sub(verdict.faults.len() as u64);
    if more > 0 {
        lines.push(format!("FAULT: and {more} more"));
    }
    lines.push(if verdict.is_whole() {
        "the log is whole".to_owned()
    } else {
        "the log is NOT whole".to_owned()
    });
    lines.join("\n") + "\n"
}
