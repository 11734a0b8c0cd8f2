//! The result of a snippet, as clients see it: as structured content, and the same as text.

use std::fmt::Write as _;

use hotcell_domain::ExecStatus;
use hotcell_service::{CodeOutput, CodeRun, CutText};
use rmcp::model::JsonObject;
use schemars::JsonSchema;
use serde_json::Value;

use super::artifacts::{Artifact, ShownArtifacts};
use super::cell_view::{ValueView, ValuesView};
use super::exec_view::{UsageView, insert_end};
use super::{Answer, egress_view};

/// What [`CodeView::answer`] makes, if there is no picture.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "it is there for its schema")]
pub(super) struct Output {
    stdout: String,
    stderr: String,
    exit_code: Option<u8>,
    signal: Option<u8>,
    status: String,
    reason: Option<String>,
    duration_ms: u64,
    truncated: bool,
    session: String,
    session_is_new: bool,
    result: Option<ValueView>,
    displayed: Option<Vec<ValueView>>,
    artifacts: Vec<Artifact>,
    usage: Option<UsageView>,
    egress: Option<egress_view::Egress>,
    note: Option<String>,
}

/// A snippet that has run, with everything that is reported about it.
pub(super) struct CodeView {
    run: CodeRun,
    output: CodeOutput,
    shown: ShownArtifacts,
    values: ValuesView,
}

impl CodeView {
    pub(super) fn new(mut run: CodeRun, output: CodeOutput, shown: ShownArtifacts) -> Self {
        let values = run.notebook.take();
        let values = values.map(|values| ValuesView::new(values, run.session.is_new));
        Self {
            run,
            output,
            shown,
            values: values.unwrap_or_default(),
        }
    }

    pub(super) fn answer(self) -> Answer {
        let (stdout, stderr) = (
            self.stream(&self.output.stdout),
            self.stream(&self.output.stderr),
        );
        let note = self.note();
        let text = self.text(&stdout, &stderr, note.as_deref());
        let structured = self.structured(stdout, stderr, note.as_deref());
        Answer::new(text, structured)
            .with_pictures(self.shown.pictures)
            .with_links(self.shown.links)
    }

    /// A stream, with a line in place of the part that was left out.
    fn stream(&self, cut: &CutText) -> String {
        let Some(tail) = &cut.tail else {
            return cut.head.clone();
        };
        let (left_out, exec) = (cut.left_out_bytes, &self.run.exec);
        format!(
            "{}\n[{left_out} bytes left out here; resource logs://{exec} or exec_poll has them]\n{tail}",
            cut.head
        )
    }

    fn is_truncated(&self) -> bool {
        self.output.stdout.tail.is_some() || self.output.stderr.tail.is_some()
    }

    /// Remarks for the reader, such as a new session or missing output.
    fn note(&self) -> Option<String> {
        let (session, exec) = (&self.run.session, &self.run.exec);
        let mut notes = Vec::new();
        if session.had_ended {
            notes.push(format!(
                "session {} had ended and is new: its earlier files and processes are gone",
                session.name
            ));
        }
        if !self.output.stdout.is_utf8 || !self.output.stderr.is_utf8 {
            notes.push(format!(
                "some output is not UTF-8, which is shown as U+FFFD; exec_poll with exec_id={exec} has the bytes"
            ));
        }
        if self.output.not_kept_bytes > 0 {
            notes.push(format!(
                "{} bytes from the middle of the output were not kept",
                self.output.not_kept_bytes
            ));
        }
        notes.extend(self.run.egress.as_ref().and_then(egress_view::line));
        notes.extend(self.values.note.clone());
        notes.extend(self.shown.note.clone());
        (!notes.is_empty()).then(|| notes.join("; "))
    }

    fn duration_ms(&self) -> u64 {
        self.run.end.usage.as_ref().map_or(0, |usage| usage.wall_ms)
    }

    fn structured(&self, stdout: String, stderr: String, note: Option<&str>) -> Value {
        let (run, mut object) = (&self.run, JsonObject::new());
        let mut insert = |name: &str, value: Value| object.insert(name.to_owned(), value);
        insert("stdout", stdout.into());
        insert("stderr", stderr.into());
        insert("status", run.end.status.as_str().into());
        insert("duration_ms", self.duration_ms().into());
        insert("truncated", self.is_truncated().into());
        insert("session", run.session.name.as_str().into());
        insert("session_is_new", run.session.is_new.into());
        if let Some(result) = &self.values.result {
            insert("result", serde_json::to_value(result).unwrap_or_default());
        }
        if !self.values.displayed.is_empty() {
            let displayed = serde_json::to_value(&self.values.displayed);
            insert("displayed", displayed.unwrap_or_default());
        }
        let artifacts = serde_json::to_value(&self.shown.artifacts);
        insert("artifacts", artifacts.unwrap_or_default());
        if let Some(report) = &run.egress {
            insert("egress", egress_view::structured(report));
        }
        if let Some(note) = note {
            insert("note", note.into());
        }
        insert_end(&mut object, &run.end);
        Value::Object(object)
    }

    /// Standard output, standard error if there is some, then lines in brackets.
    fn text(&self, stdout: &str, stderr: &str, note: Option<&str>) -> String {
        let mut text = stdout.to_owned();
        if !stderr.is_empty() {
            end_line(&mut text);
            text.push_str("[stderr]\n");
            text.push_str(stderr);
        }
        end_line(&mut text);
        for value in self.values.lines() {
            text.push_str(&value);
            end_line(&mut text);
        }
        for artifact in &self.shown.artifacts {
            writeln!(text, "[{artifact}]").expect("it is a string");
        }
        if let Some(note) = note {
            writeln!(text, "[{note}]").expect("it is a string");
        }
        write!(text, "[{}]", self.status()).expect("it is a string");
        text
    }

    fn status(&self) -> String {
        let (end, session) = (&self.run.end, &self.run.session);
        let mut parts = vec![end.status.as_str().to_owned()];
        if end.status != ExecStatus::Succeeded {
            parts.extend(end.exit_code.map(|code| format!("exit code {code}")));
            parts.extend(end.signal.map(|signal| format!("signal {signal}")));
        }
        parts.extend(end.reason.clone());
        parts.push(format!("{} ms", self.duration_ms()));
        let new = if session.is_new { " (new)" } else { "" };
        parts.push(format!("session {}{new}", session.name));
        parts.join("; ")
    }
}

fn end_line(text: &mut String) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
}
