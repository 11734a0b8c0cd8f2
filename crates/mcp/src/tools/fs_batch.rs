//! `fs_batch`: several file changes, all or none.
//!
//! Operations are numbered from 1, in answers and in errors.

use std::cmp::Ordering;
use std::ops::Range;

use bytes::Bytes;
use hotcell_service::{BatchOutcome, FileOperation, ServiceError, WriteOptions};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::answer::ANSWER_BYTES_MAX;
use super::arguments::{Encoding, INLINE_BYTES_MAX, if_match};
use super::file_view::{FileText, workspace_path};
use super::{Answer, Hints, Tool, ToolError};
use crate::Server;
use crate::call::Call;
use crate::mime::{mime_type, shown_image};
use crate::text::truncate;

/// How much of a path is repeated in an answer: there may be hundreds of paths.
const PATH_SHOWN_BYTES_MAX: usize = 256;

/// Bytes used to detect the file type.
const MAGIC_BYTES: usize = 4096;

pub(super) struct FsBatch;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Params {
    /// Id or alias
    container_id: String,
    /// Done in this order, at most 256 with 3 MiB of content
    #[schemars(length(min = 1))]
    operations: Vec<Step>,
    /// All or none
    #[serde(default = "yes")]
    atomic: bool,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Step {
    /// What to do
    op: Op,
    /// Below /workspace
    path: String,
    /// For move and copy
    dest_path: Option<String>,
    /// For write: the whole file
    content: Option<String>,
    /// Of content
    #[serde(default)]
    encoding: Encoding,
    /// For write, delete, move: must be the file's
    if_match_etag: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Op {
    Read,
    Write,
    Delete,
    Move,
    Copy,
    Mkdir,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Output {
    results: Vec<Done>,
}

#[derive(Serialize, JsonSchema)]
struct Done {
    /// From 1
    number: usize,
    op: &'static str,
    path: String,
    ok: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    etag: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    encoding: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_step: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Refused>,
}

#[derive(Serialize, JsonSchema)]
struct Refused {
    code: &'static str,
    message: String,
    hint: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    current_etag: Option<String>,
}

impl Tool for FsBatch {
    const NAME: &'static str = "fs_batch";
    const DESCRIPTION: &'static str = "Do several file operations in one call; with atomic, all of them or none. An error names the operation that failed, from 1.";
    const HINTS: Hints = Hints::DESTROYS;
    type Params = Params;
    type Output = Output;

    async fn run(server: &Server, params: Params, call: &Call) -> Result<Answer, ToolError> {
        let target = super::container_ref(&params.container_id)?;
        let named: Vec<Op> = params.operations.iter().map(|step| step.op).collect();
        let paths: Vec<String> = params
            .operations
            .iter()
            .map(|step| step.path.clone())
            .collect();
        let steps = params.operations.into_iter().enumerate();
        let operations = steps
            .map(|(index, step)| {
                let wrong = |cause| Failed {
                    index,
                    is_undone: true,
                    cause,
                };
                step.operation()
                    .map_err(|error| wrong(error).tell(&named, &paths))
            })
            .collect::<Result<_, _>>()?;
        if named.contains(&Op::Read) {
            // Reserved before anything is changed, because the result must be reported.
            call.room(INLINE_BYTES_MAX).await?;
        }
        let service = server.service();
        let working = service.file_batch(&call.caller, &target, operations, params.atomic);
        let outcomes = match call.attend("changing files", working).await? {
            Err(ServiceError::Batch {
                index,
                is_undone,
                cause,
            }) => {
                return Err(Failed {
                    index,
                    is_undone,
                    cause: (*cause).into(),
                }
                .tell(&named, &paths));
            }
            outcomes => outcomes?,
        };
        let mut left = ANSWER_BYTES_MAX;
        let about = named.into_iter().zip(paths).enumerate();
        let results: Vec<Done> = about
            .zip(outcomes)
            .map(|((index, (op, path)), outcome)| {
                let done = Done::new(index + 1, op, &path, outcome, left);
                left = left.saturating_sub(done.content.as_ref().map_or(0, String::len));
                done
            })
            .collect();
        let text: Vec<String> = results.iter().map(Done::lines).collect();
        Ok(Answer::of(text.join("\n"), Output { results }))
    }
}

/// The error of a batch and of the operation that failed.
struct Failed {
    index: usize,
    is_undone: bool,
    cause: ToolError,
}

impl Failed {
    /// The operation's own error, with its number and path, and the outcome of the others.
    fn tell(self, ops: &[Op], paths: &[String]) -> ToolError {
        let number = self.index + 1;
        let op = ops.get(self.index).map_or("", |op| op.as_str());
        let path = paths.get(self.index).map_or("", String::as_str);
        let shown = truncate(path, PATH_SHOWN_BYTES_MAX);
        let after = if self.is_undone {
            "; nothing was changed"
        } else {
            ""
        };
        let said = self.cause.message();
        let message = format!("operation {number} ({op} {shown}): {said}{after}");
        let outcome = |index: usize| match index.cmp(&self.index) {
            Ordering::Less => "undone",
            Ordering::Equal => "failed",
            Ordering::Greater => "not_run",
        };
        let results = ops.iter().enumerate().map(|(index, op)| {
            json!({"number": index + 1, "op": op.as_str(), "outcome": outcome(index)})
        });
        let fields = [
            ("operation", number.into()),
            ("path", shown.into()),
            ("results", results.collect()),
        ];
        let lines: Vec<String> = [
            (1..number, "undone"),
            (number..number + 1, "failed"),
            (number + 1..ops.len() + 1, "not run"),
        ]
        .into_iter()
        .filter(|(numbers, _)| !numbers.is_empty())
        .map(|(numbers, how)| format!("{}: {how}", span(&numbers)))
        .collect();
        let error = self.cause.about_files();
        let hint = format!(
            "{}; then send the corrected batch again",
            error.hint().trim_end_matches(", then call again")
        );
        let fields = fields.map(|(name, value)| (name.to_owned(), value));
        error
            .with_message(message)
            .with_hint(hint)
            .with_details(fields.into_iter().collect(), lines.join("\n"))
    }
}

/// A range of operation numbers as text.
fn span(numbers: &Range<usize>) -> String {
    if numbers.len() == 1 {
        format!("operation {}", numbers.start)
    } else {
        format!("operations {} to {}", numbers.start, numbers.end - 1)
    }
}

impl Step {
    fn operation(self) -> Result<FileOperation, ToolError> {
        self.has_what_it_needs()?;
        let path = bounded(&self.path)?;
        let dest = bounded(self.dest_path.as_deref().unwrap_or_default());
        let precondition = if_match(self.if_match_etag);
        Ok(match self.op {
            Op::Read => FileOperation::Read { path },
            Op::Write => FileOperation::Write {
                path,
                data: Bytes::from(
                    self.encoding
                        .decode("content", self.content.unwrap_or_default())?,
                ),
                options: WriteOptions {
                    precondition,
                    create_parents: true,
                    ..WriteOptions::default()
                },
            },
            Op::Delete => FileOperation::Delete {
                path,
                recursive: true,
                precondition,
            },
            Op::Move => FileOperation::Move {
                path,
                dest: dest?,
                precondition,
            },
            Op::Copy => FileOperation::Copy { path, dest: dest? },
            Op::Mkdir => FileOperation::Mkdir { path },
        })
    }

    /// Checks that each operation has the fields it needs, and none that it would ignore.
    fn has_what_it_needs(&self) -> Result<(), ToolError> {
        let op = self.op.as_str();
        let takes_dest = matches!(self.op, Op::Move | Op::Copy);
        let takes_etag = matches!(self.op, Op::Write | Op::Delete | Op::Move);
        let parts = [
            (
                "dest_path",
                self.dest_path.is_some(),
                takes_dest,
                takes_dest,
            ),
            (
                "content",
                self.content.is_some(),
                self.op == Op::Write,
                self.op == Op::Write,
            ),
            (
                "if_match_etag",
                self.if_match_etag.is_some(),
                takes_etag,
                false,
            ),
        ];
        for (name, is_there, is_taken, is_needed) in parts {
            if is_needed && !is_there {
                return Err(ToolError::invalid(format!("{op} needs `{name}`")));
            }
            if is_there && !is_taken {
                return Err(ToolError::invalid(format!("{op} takes no `{name}`")));
            }
        }
        Ok(())
    }
}

fn bounded(path: &str) -> Result<Vec<u8>, ToolError> {
    Ok(super::file_path(path.as_bytes())?.as_bytes().to_vec())
}

impl Op {
    fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Delete => "delete",
            Self::Move => "move",
            Self::Copy => "copy",
            Self::Mkdir => "mkdir",
        }
    }
}

impl Done {
    fn new(
        number: usize,
        op: Op,
        path: &str,
        outcome: Result<BatchOutcome, ServiceError>,
        content_bytes_max: usize,
    ) -> Self {
        let mut done = Self {
            number,
            op: op.as_str(),
            path: truncate(path, PATH_SHOWN_BYTES_MAX).to_owned(),
            ok: outcome.is_ok(),
            etag: None,
            size: None,
            content: None,
            encoding: None,
            next_step: None,
            error: None,
        };
        match outcome {
            Ok(outcome) => done.fill(op, outcome, content_bytes_max),
            Err(error) => done.error = Some(ToolError::from(error).about_files().into()),
        }
        done
    }

    fn fill(&mut self, op: Op, outcome: BatchOutcome, content_bytes_max: usize) {
        let mut path = Vec::new();
        if let Some(info) = outcome.info {
            truncate(&workspace_path(&info.path), PATH_SHOWN_BYTES_MAX).clone_into(&mut self.path);
            self.etag = Some(info.etag);
            self.size = Some(info.size);
            path = info.path;
        }
        if op != Op::Read {
            return;
        }
        let data = Vec::from(outcome.data);
        let total = data.len();
        if shown_image(mime_type(&path, &data[..total.min(MAGIC_BYTES)])).is_some() {
            self.next_step = Some("a picture: fs_read shows it".to_owned());
            return;
        }
        let shown = FileText::new(data, content_bytes_max, false);
        if shown.bytes < total {
            let next = shown.bytes;
            self.next_step = Some(format!(
                "{next} of {total} bytes are shown; read on: fs_read with offset={next}"
            ));
        }
        self.content = Some(shown.content);
        self.encoding = Some(shown.encoding);
    }

    /// The outcome in one line, then the content that was read.
    fn lines(&self) -> String {
        let (number, op, path) = (self.number, self.op, &self.path);
        if let Some(error) = &self.error {
            let etag = error.current_etag.as_ref();
            let etag = etag.map(|etag| format!("; current_etag: {etag}"));
            return format!(
                "{number} {op} {path}: failed: {}: {}{} (hint: {})",
                error.code,
                error.message,
                etag.unwrap_or_default(),
                error.hint
            );
        }
        let etag = self.etag.as_ref().map(|etag| format!(", etag {etag}"));
        let encoding = self.encoding.map(|encoding| format!(", {encoding}"));
        let next = self.next_step.as_ref().map(|next| format!("; {next}"));
        let content = self.content.as_ref().map(|content| format!("\n{content}"));
        let parts = [etag, encoding, next, content];
        let parts: String = parts.into_iter().flatten().collect();
        format!("{number} {op} {path}: ok{parts}")
    }
}

impl From<ToolError> for Refused {
    fn from(error: ToolError) -> Self {
        Self {
            code: error.code().as_str(),
            message: error.message(),
            hint: error.hint().to_owned(),
            current_etag: error.current_etag().map(str::to_owned),
        }
    }
}

fn yes() -> bool {
    true
}
