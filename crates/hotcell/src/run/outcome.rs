//! How the command ended, as an exit code, as a sentence and as JSON.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use hotcell_agent_client::{Exit, ExitCause, Output};
use hotcell_engine::Enforced;
use serde_json::{Value, json};

use crate::exit::{NOT_EXECUTABLE, NOT_FOUND, SIGNALLED, TIMED_OUT};
use crate::terminal::plain;

/// Output kept of each stream for `--json`.
const CAPTURED_BYTES_MAX: usize = 4 << 20;

const ENOENT: i32 = 2;

/// How the command ended.
pub(super) struct Outcome {
    pub(super) command: Option<String>,
    pub(super) exit: Exit,
    /// The signal that asked us to stop it.
    pub(super) stopped_by: Option<u8>,
    pub(super) out_of_memory: bool,
    pub(super) captured: Option<Captured>,
    pub(super) enforced: Enforced,
    pub(super) timeout: Option<Duration>,
}

/// Output that was not streamed.
#[derive(Default)]
pub(super) struct Captured {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    dropped: u64,
}

impl Captured {
    pub(super) fn take(&mut self, stream: Output, data: &[u8]) {
        let kept = match stream {
            Output::Stdout => &mut self.stdout,
            Output::Stderr => &mut self.stderr,
        };
        let room = CAPTURED_BYTES_MAX - kept.len();
        let (taken, dropped) = data.split_at(data.len().min(room));
        kept.extend_from_slice(taken);
        self.dropped += dropped.len() as u64;
    }
}

impl Outcome {
    /// Our own exit code.
    pub(super) fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.code())
    }

    fn code(&self) -> u8 {
        if let Some(signal) = self.stopped_by {
            return SIGNALLED.saturating_add(signal);
        }
        match &self.exit.cause {
            ExitCause::TimedOut => TIMED_OUT,
            ExitCause::NotStarted { errno: ENOENT, .. } => NOT_FOUND,
            ExitCause::NotStarted { .. } => NOT_EXECUTABLE,
            ExitCause::KeeperKilled => SIGNALLED + 9,
            ExitCause::Exited | ExitCause::Cancelled => match self.exit.signal {
                Some(signal) => SIGNALLED.saturating_add(signal),
                None => self.exit.code.unwrap_or(0),
            },
        }
    }

    /// One sentence on stderr, where the exit code alone would puzzle.
    pub(super) fn explain(&self) {
        if let Some(sentence) = self.sentence() {
            eprintln!("hotcell: {}", plain(&sentence));
        }
    }

    fn sentence(&self) -> Option<String> {
        let command = self.command.as_deref().unwrap_or_default();
        match &self.exit.cause {
            ExitCause::NotStarted {
                step,
                errno: ENOENT,
            } if step == "execve" => Some(format!("{command} is not in this container")),
            ExitCause::NotStarted { step, errno } => {
                let error = std::io::Error::from_raw_os_error(*errno);
                Some(format!("could not start {command}: {step}: {error}"))
            }
            ExitCause::TimedOut => {
                let seconds = self.timeout.unwrap_or_default().as_secs_f64();
                Some(format!("ended after {seconds} s (--timeout)"))
            }
            ExitCause::KeeperKilled => {
                Some("the command killed the process that keeps it together".to_owned())
            }
            ExitCause::Exited if self.out_of_memory => {
                Some("the container ran out of memory (--memory)".to_owned())
            }
            ExitCause::Exited | ExitCause::Cancelled => None,
        }
    }

    fn status(&self) -> &'static str {
        match &self.exit.cause {
            ExitCause::TimedOut => "timed_out",
            ExitCause::Cancelled => "cancelled",
            ExitCause::Exited if self.out_of_memory && self.code() != 0 => "oom_killed",
            ExitCause::Exited if self.code() == 0 => "succeeded",
            ExitCause::Exited | ExitCause::NotStarted { .. } | ExitCause::KeeperKilled => "failed",
        }
    }

    /// Everything, as one JSON object on stdout.
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
        let usage = &self.exit.usage;
        let millis = |time: Duration| time.as_secs_f64() * 1000.0;
        json!({
            "status": self.status(),
            "exit_code": self.code(),
            "signal": self.exit.signal,
            "reason": self.sentence(),
            "stdout": String::from_utf8_lossy(&captured.stdout),
            "stderr": String::from_utf8_lossy(&captured.stderr),
            "truncated_bytes": captured.dropped,
            "usage": {
                "wall_ms": millis(usage.wall),
                "user_ms": millis(usage.user),
                "system_ms": millis(usage.system),
                "max_rss_bytes": usage.max_rss_bytes,
                "stdout_bytes": usage.stdout_bytes,
                "stderr_bytes": usage.stderr_bytes,
            },
            "enforced": self.enforced,
        })
    }
}
