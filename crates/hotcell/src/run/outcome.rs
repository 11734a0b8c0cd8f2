//! The result of the command, as an exit code, a sentence and JSON.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use hotcell_domain::{ExecEnd, ExecStatus, NotStarted};
use hotcell_service::LimitView;
use serde_json::{Map, Value, json};

use crate::exit;
use crate::terminal::{Captured, plain};

/// The result of the command.
pub(super) struct Outcome {
    /// The first word of the command.
    pub(super) program: String,
    pub(super) end: ExecEnd,
    /// The signal to us that stopped it.
    pub(super) stopped_by: Option<u8>,
    pub(super) captured: Option<Captured>,
    pub(super) limits: Vec<LimitView>,
    pub(super) timeout: Option<Duration>,
    /// Where its files were saved.
    pub(super) artifacts: Vec<PathBuf>,
}

impl Outcome {
    /// Our own exit code.
    pub(super) fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.code())
    }

    fn code(&self) -> u8 {
        exit::code(&self.end, self.stopped_by)
    }

    /// Prints to stderr where files were saved, and a sentence if the exit code alone is not clear.
    pub(super) fn explain(&self) {
        for path in &self.artifacts {
            eprintln!("hotcell: saved {}", path.display());
        }
        if let Some(sentence) = self.sentence() {
            eprintln!("hotcell: {}", plain(&sentence));
        }
    }

    /// Names our option, if one caused the end.
    fn sentence(&self) -> Option<String> {
        if self.end.not_started == Some(NotStarted::NoProgram) {
            return Some(format!("{} is not in this container", self.program));
        }
        match self.end.status {
            ExecStatus::TimedOut => {
                let seconds = self.timeout.unwrap_or_default().as_secs_f64();
                Some(format!("ended after {seconds} s (--timeout)"))
            }
            ExecStatus::OomKilled => Some("the container ran out of memory (--memory)".to_owned()),
            ExecStatus::DiskLimit => {
                Some("the container used more disk space than it may (--disk)".to_owned())
            }
            ExecStatus::Queued
            | ExecStatus::Running
            | ExecStatus::Succeeded
            | ExecStatus::Failed
            | ExecStatus::Cancelled
            | ExecStatus::Lost => self.end.reason.clone(),
        }
    }

    /// Prints one JSON object to stdout.
    pub(super) fn print_json(&self) -> Result<()> {
        let text = serde_json::to_string(&self.json()).context("write JSON")?;
        let mut stdout = std::io::stdout().lock();
        std::io::Write::write_all(&mut stdout, text.as_bytes())
            .and_then(|()| std::io::Write::write_all(&mut stdout, b"\n"))
            .context("write to stdout")
    }

    fn json(&self) -> Value {
        let none = Captured::default();
        let captured = self.captured.as_ref().unwrap_or(&none);
        let usage = self.end.usage.unwrap_or_default();
        json!({
            "status": self.end.status.as_str(),
            "exit_code": self.code(),
            "signal": self.end.signal,
            "reason": self.sentence(),
            "stdout": String::from_utf8_lossy(&captured.stdout),
            "stderr": String::from_utf8_lossy(&captured.stderr),
            "truncated_bytes": captured.dropped,
            "usage": {
                "wall_ms": usage.wall_ms,
                "user_ms": usage.user_ms,
                "system_ms": usage.system_ms,
                "max_rss_bytes": usage.max_rss_bytes,
                "stdout_bytes": usage.stdout_bytes,
                "stderr_bytes": usage.stderr_bytes,
            },
            "enforced": enforced(&self.limits),
            "artifacts": self.artifacts.iter().map(|path| path.display().to_string()).collect::<Vec<_>>(),
        })
    }
}

fn enforced(limits: &[LimitView]) -> Map<String, Value> {
    let entry = |limit: &LimitView| {
        let by = limit.by.unwrap_or("none");
        (option_of(limit).to_owned(), by.into())
    };
    limits.iter().map(entry).collect()
}

/// The name of the option that sets a limit.
pub(super) fn option_of(limit: &LimitView) -> &'static str {
    if limit.limit == "cpu" {
        "cpus"
    } else {
        limit.limit
    }
}
