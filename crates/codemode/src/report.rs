//! What is known of a run once it has ended.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;

use crate::request::{End, EndStatus};

/// Calls that are told one by one; of more, only the sum.
const CALLS_MAX: usize = 100;

/// Characters of a result or an error that are told.
const PREVIEW_CHARS_MAX: usize = 300;

/// How the script ended, as it says.
#[derive(Debug, Clone, PartialEq)]
pub enum ScriptEnd {
    /// To its end, with the value of its last expression.
    Success {
        /// `None` if there is none.
        result: Option<Value>,
        /// How long the result is as JSON, if only its beginning is here.
        result_bytes: Option<u64>,
    },
    /// By an error.
    Error(String),
    /// It was not run: this is what is wrong with it.
    Invalid(String),
}

/// One call of a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallReport {
    /// From 1, in the order in which they were made.
    pub number: u64,
    /// The server.
    pub server: String,
    /// The tool.
    pub tool: String,
    /// `running`, `ok`, `error`, `denied`, `unknown` or `replayed`.
    pub status: &'static str,
    /// The beginning of the result or the error.
    pub preview: String,
    /// How long it took.
    pub duration: Duration,
}

/// What is known of a run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Report {
    /// `None` if it said nothing: it was killed, or crashed.
    pub end: Option<ScriptEnd>,
    /// The first calls.
    pub calls: Vec<CallReport>,
    /// All calls.
    pub calls_count: u64,
}

#[derive(Default)]
pub(crate) struct Reporter(Mutex<Report>);

impl Reporter {
    /// Notes a call that begins; returns its number.
    pub(crate) fn begin(&self, server: &str, tool: &str) -> u64 {
        let mut report = self.lock();
        report.calls_count += 1;
        let number = report.calls_count;
        if report.calls.len() < CALLS_MAX {
            report.calls.push(CallReport {
                number,
                server: server.to_owned(),
                tool: preview(tool),
                status: "running",
                preview: String::new(),
                duration: Duration::ZERO,
            });
        }
        number
    }

    pub(crate) fn end(&self, number: u64, status: &'static str, text: &str, duration: Duration) {
        let mut report = self.lock();
        let index = usize::try_from(number - 1).unwrap_or(usize::MAX);
        if let Some(call) = report.calls.get_mut(index) {
            call.status = status;
            call.preview = preview(text);
            call.duration = duration;
        }
    }

    pub(crate) fn ended(&self, end: End) {
        let mut report = self.lock();
        let error = end.error.unwrap_or_default();
        let end = match end.status {
            EndStatus::Success => ScriptEnd::Success {
                result: end.result,
                result_bytes: end.result_bytes,
            },
            EndStatus::Error => ScriptEnd::Error(error),
            EndStatus::ValidationError => ScriptEnd::Invalid(error),
        };
        report.end.get_or_insert(end);
    }

    /// What is known now. A call that still runs has an unknown outcome.
    pub(crate) fn report(&self) -> Report {
        let mut report = self.lock().clone();
        for call in report
            .calls
            .iter_mut()
            .filter(|call| call.status == "running")
        {
            call.status = "unknown";
            "the script ended before it was answered".clone_into(&mut call.preview);
        }
        report
    }

    fn lock(&self) -> MutexGuard<'_, Report> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn preview(text: &str) -> String {
    text.chars().take(PREVIEW_CHARS_MAX).collect()
}
