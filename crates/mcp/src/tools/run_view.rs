//! What a script did, as clients see it: as structured content, and the same as text.

use std::fmt::Write as _;
use std::time::Duration;

use hotcell_codemode::{CallReport, OutputMode, Report, Run, ScriptEnd};
use hotcell_domain::ExecStatus;
use hotcell_service::{CodeOutput, CutText, ScriptRun};
use rmcp::model::JsonObject;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::{Answer, toon};

/// JSON of a result that is told; of more, the beginning.
const RESULT_BYTES_MAX: usize = 64 << 10;

/// What [`RunView::answer`] makes.
#[derive(JsonSchema)]
#[expect(dead_code, non_snake_case, reason = "it is there for its schema")]
pub(super) struct Output {
    status: String,
    summary: String,
    exitCode: Option<u8>,
    stdout: String,
    stderr: String,
    servers: Vec<String>,
    error: Option<String>,
    timeoutSeconds: u64,
    #[schemars(schema_with = "any_value")]
    result: Option<Value>,
    run_id: String,
    calls: Vec<CallView>,
    session: Option<String>,
    note: Option<String>,
}

/// Whatever a script returns.
fn any_value(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "description": "Any JSON" })
}

#[derive(JsonSchema, Serialize)]
struct CallView {
    number: u64,
    server: String,
    tool: String,
    status: String,
    duration_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<String>,
}

/// A script that has run.
pub(super) struct RunView<'a> {
    pub(super) run: &'a Run,
    pub(super) script: &'a ScriptRun,
    pub(super) output: CodeOutput,
    pub(super) timeout: Duration,
}

impl RunView<'_> {
    pub(super) fn answer(self, mode: OutputMode) -> Answer {
        let report = self.run.report();
        let told = self.told(&report);
        let structured = told.structured();
        let text = match mode {
            OutputMode::Compact => told.text(),
            OutputMode::Toon => toon::encode(&structured),
            OutputMode::Json => structured.to_string(),
        };
        Answer::new(text, structured)
    }

    fn told(&self, report: &Report) -> Told {
        let status = self.status(report);
        let (result, cut) = result(report);
        let mut notes = Vec::new();
        if let Some(bytes) = cut {
            notes.push(format!(
                "the result has {bytes} bytes as JSON and only its beginning is here: return less, or print a part"
            ));
        }
        if self.output.stdout.tail.is_some() || self.output.stderr.tail.is_some() {
            notes.push(format!(
                "output was cut; resource logs://{} has all of it",
                self.script.exec
            ));
        }
        if report.calls_count > report.calls.len() as u64 {
            notes.push(format!(
                "{} calls were made; these are the first",
                report.calls_count
            ));
        }
        if status != "success" && report.calls.iter().any(|call| call.status == "ok") {
            notes.push(format!(
                "to go on without repeating finished calls, run the corrected script with resume=\"{}\"",
                self.run.id()
            ));
        }
        // Results of calls are of use to somebody who has to go on without them.
        let with_results = status != "success";
        Told {
            status,
            summary: self.summary(status, report),
            exit_code: self.script.end.exit_code,
            stdout: self.stream(&self.output.stdout),
            stderr: self.stream(&self.output.stderr),
            servers: self.run.servers(),
            error: self.error(status, report),
            timeout_s: self.timeout.as_secs(),
            result,
            run_id: self.run.id().to_string(),
            calls: report
                .calls
                .iter()
                .map(|call| view(call, with_results))
                .collect(),
            session: self
                .script
                .session
                .as_ref()
                .map(|session| session.name.to_string()),
            note: (!notes.is_empty()).then(|| notes.join("; ")),
        }
    }

    fn status(&self, report: &Report) -> &'static str {
        if self.script.was_overdue || self.script.end.status == ExecStatus::TimedOut {
            return "timeout";
        }
        match &report.end {
            Some(ScriptEnd::Invalid(_)) => "validation_error",
            Some(ScriptEnd::Success { .. }) if self.script.end.exit_code == Some(0) => "success",
            Some(ScriptEnd::Success { .. } | ScriptEnd::Error(_)) | None => "error",
        }
    }

    fn summary(&self, status: &str, report: &Report) -> String {
        let ms = self
            .script
            .end
            .usage
            .as_ref()
            .map_or(0, |usage| usage.wall_ms);
        let calls = report.calls_count;
        let plural = if calls == 1 { "" } else { "s" };
        match status {
            "success" => format!("the script ran in {ms} ms with {calls} call{plural}"),
            "timeout" => format!(
                "the script was ended after {} s, with {calls} call{plural}",
                self.timeout.as_secs()
            ),
            "validation_error" => "the script was not run, and nothing was called".to_owned(),
            _ => format!("the script failed after {ms} ms and {calls} call{plural}"),
        }
    }

    fn error(&self, status: &str, report: &Report) -> Option<String> {
        let end = &self.script.end;
        match (status, &report.end) {
            ("success", _) => None,
            ("timeout", _) => Some(format!(
                "timeout after {} s; ask for more with `timeout` (at most 120)",
                self.timeout.as_secs()
            )),
            (_, Some(ScriptEnd::Error(error) | ScriptEnd::Invalid(error))) => Some(error.clone()),
            _ => Some(match (&end.reason, end.signal) {
                (Some(reason), _) => reason.clone(),
                (None, Some(signal)) => format!("Python was ended by signal {signal}"),
                (None, None) => "Python ended before the script had".to_owned(),
            }),
        }
    }

    fn stream(&self, cut: &CutText) -> String {
        let Some(tail) = &cut.tail else {
            return cut.head.clone();
        };
        let (left_out, exec) = (cut.left_out_bytes, &self.script.exec);
        format!(
            "{}\n[{left_out} bytes left out here; resource logs://{exec} has them]\n{tail}",
            cut.head
        )
    }
}

/// All that is told, before it is rendered.
struct Told {
    status: &'static str,
    summary: String,
    exit_code: Option<u8>,
    stdout: String,
    stderr: String,
    servers: Vec<String>,
    error: Option<String>,
    timeout_s: u64,
    result: Option<Value>,
    run_id: String,
    calls: Vec<CallView>,
    session: Option<String>,
    note: Option<String>,
}

impl Told {
    fn structured(&self) -> Value {
        let mut object = JsonObject::new();
        let mut insert = |name: &str, value: Value| object.insert(name.to_owned(), value);
        insert("status", self.status.into());
        insert("summary", self.summary.as_str().into());
        insert("exitCode", self.exit_code.into());
        insert("stdout", self.stdout.as_str().into());
        insert("stderr", self.stderr.as_str().into());
        insert("servers", self.servers.clone().into());
        if let Some(error) = &self.error {
            insert("error", error.as_str().into());
        }
        insert("timeoutSeconds", self.timeout_s.into());
        if let Some(result) = &self.result {
            insert("result", result.clone());
        }
        insert("run_id", self.run_id.as_str().into());
        insert(
            "calls",
            serde_json::to_value(&self.calls).unwrap_or_default(),
        );
        if let Some(session) = &self.session {
            insert("session", session.as_str().into());
        }
        if let Some(note) = &self.note {
            insert("note", note.as_str().into());
        }
        Value::Object(object)
    }

    /// Output, result, error, then lines in brackets.
    fn text(&self) -> String {
        let mut text = self.stdout.clone();
        if !self.stderr.is_empty() {
            end_line(&mut text);
            text.push_str("[stderr]\n");
            text.push_str(&self.stderr);
        }
        end_line(&mut text);
        if let Some(result) = &self.result {
            let shown = result
                .as_str()
                .map_or_else(|| result.to_string(), str::to_owned);
            let _ = writeln!(text, "[result] {shown}");
        }
        if let Some(error) = self
            .error
            .as_ref()
            .filter(|error| !self.stderr.contains(*error))
        {
            let _ = writeln!(text, "[error] {error}");
        }
        if self.status != "success" || self.note.is_some() {
            for call in &self.calls {
                let result = call.result.as_deref().unwrap_or_default();
                let CallView {
                    number,
                    server,
                    tool,
                    status,
                    duration_ms,
                    ..
                } = call;
                let _ = writeln!(
                    text,
                    "[call {number}: {server}.{tool} {status}, {duration_ms} ms] {result}"
                );
            }
        }
        if let Some(note) = &self.note {
            let _ = writeln!(text, "[{note}]");
        }
        let exit = match self.exit_code {
            Some(0) | None => String::new(),
            Some(code) => format!("; exit code {code}"),
        };
        let servers = match &self.servers[..] {
            [] => String::new(),
            names => format!("; servers {}", names.join(", ")),
        };
        let _ = write!(
            text,
            "[{}: {}{exit}{servers}; run {}]",
            self.status, self.summary, self.run_id
        );
        text
    }
}

/// The result, bounded; how long it is if only its beginning is here.
fn result(report: &Report) -> (Option<Value>, Option<u64>) {
    let Some(ScriptEnd::Success {
        result,
        result_bytes,
    }) = &report.end
    else {
        return (None, None);
    };
    let Some(value) = result else {
        return (None, None);
    };
    let text = value.to_string();
    if text.len() <= RESULT_BYTES_MAX && result_bytes.is_none() {
        return (Some(value.clone()), None);
    }
    let whole = value
        .as_str()
        .filter(|_| result_bytes.is_some())
        .unwrap_or(&text);
    let cut = crate::text::truncate(whole, RESULT_BYTES_MAX).to_owned();
    (
        Some(cut.into()),
        Some(result_bytes.unwrap_or(text.len() as u64)),
    )
}

fn view(call: &CallReport, with_result: bool) -> CallView {
    let is_told = (with_result || call.status != "ok") && !call.preview.is_empty();
    CallView {
        number: call.number,
        server: call.server.clone(),
        tool: call.tool.clone(),
        status: call.status.to_owned(),
        duration_ms: u64::try_from(call.duration.as_millis()).unwrap_or(u64::MAX),
        result: is_told.then(|| call.preview.clone()),
    }
}

fn end_line(text: &mut String) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
}
