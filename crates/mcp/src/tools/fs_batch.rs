//! `fs_batch`: several changes of files, all or none.

use bytes::Bytes;
use hotcell_service::{BatchOutcome, Operation, ServiceError, WriteOptions};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::arguments::{Encoding, INLINE_BYTES_MAX, if_match};
use super::file_view::{absolute, encoded};
use super::{Answer, Hints, Tool, ToolError};
use crate::Server;
use crate::call::Call;

pub(super) struct FsBatch;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Params {
    container_id: String,
    #[schemars(length(min = 1))]
    operations: Vec<Step>,
    #[serde(default = "yes")]
    atomic: bool,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Step {
    op: Op,
    path: String,
    dest_path: Option<String>,
    content: Option<String>,
    #[serde(default)]
    #[schemars(extend("default" = null))]
    encoding: Encoding,
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
    error: Option<Value>,
}

impl Tool for FsBatch {
    const NAME: &'static str = "fs_batch";
    const DESCRIPTION: &'static str =
        "Do several file operations in one call; with atomic, all of them or none.";
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
            .map(|(at, step)| step.operation(at))
            .collect::<Result<_, _>>()?;
        if named.contains(&Op::Read) {
            // Before anything is done: what was done must be told.
            call.room(INLINE_BYTES_MAX).await?;
        }
        let service = server.service();
        let working = service.file_batch(&call.caller, &target, operations, params.atomic);
        let outcomes = call.attend("changing files", working).await??;
        let results: Vec<Done> = named
            .into_iter()
            .zip(paths)
            .zip(outcomes)
            .map(|((op, path), outcome)| Done::new(op, path, outcome))
            .collect();
        let text: Vec<String> = results.iter().map(Done::line).collect();
        Ok(Answer::of(text.join("\n"), Output { results }))
    }
}

impl Step {
    fn operation(self, at: usize) -> Result<Operation, ToolError> {
        self.has_what_it_needs(at)?;
        let path = bounded(&self.path)?;
        let dest = bounded(self.dest_path.as_deref().unwrap_or_default());
        let precondition = if_match(self.if_match_etag);
        Ok(match self.op {
            Op::Read => Operation::Read { path },
            Op::Write => Operation::Write {
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
            Op::Delete => Operation::Delete {
                path,
                recursive: true,
                precondition,
            },
            Op::Move => Operation::Move {
                path,
                dest: dest?,
                precondition,
            },
            Op::Copy => Operation::Copy { path, dest: dest? },
            Op::Mkdir => Operation::Mkdir { path },
        })
    }

    /// Neither lacks what it needs nor has what it would ignore.
    fn has_what_it_needs(&self, at: usize) -> Result<(), ToolError> {
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
                return Err(ToolError::invalid(format!(
                    "`operations[{at}]`: {op} needs `{name}`"
                )));
            }
            if is_there && !is_taken {
                return Err(ToolError::invalid(format!(
                    "`operations[{at}]`: {op} has no `{name}`"
                )));
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
    fn new(op: Op, path: String, outcome: Result<BatchOutcome, ServiceError>) -> Self {
        let mut done = Self {
            op: op.as_str(),
            path,
            ok: outcome.is_ok(),
            etag: None,
            size: None,
            content: None,
            encoding: None,
            error: None,
        };
        match outcome {
            Ok(outcome) => done.fill(op, outcome),
            Err(error) => done.error = Some(ToolError::from(error).to_json()),
        }
        done
    }

    fn fill(&mut self, op: Op, outcome: BatchOutcome) {
        if let Some(info) = outcome.info {
            self.path = absolute(&info.path);
            self.etag = Some(info.etag);
            self.size = Some(info.size);
        }
        if op == Op::Read {
            let (content, encoding) = encoded(outcome.data.into());
            self.content = Some(content);
            self.encoding = Some(encoding);
        }
    }

    fn line(&self) -> String {
        let failed =
            |error: &Value| format!("failed: {}", error["message"].as_str().unwrap_or_default());
        let how = self.error.as_ref().map_or_else(|| "ok".to_owned(), failed);
        format!("{} {}: {how}", self.op, self.path)
    }
}

fn yes() -> bool {
    true
}
