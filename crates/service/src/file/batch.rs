//! Several file operations in one call.

use hotcell_agent_client::Agent;
use hotcell_agent_client::bounds::{BATCH_BYTES_MAX, BATCH_OPERATIONS_MAX};
use hotcell_domain::{Caller, ContainerRef};

use super::error::{Effect, from_agent};
use super::{BatchOutcome, Call, FileOperation, FilePath, call, invalid};
use crate::{Action, Inner, Service, ServiceError};

impl Service {
    /// Applies several operations; with `atomic` all of them or none. Then a failure is a
    /// [`ServiceError::Batch`].
    pub async fn file_batch(
        &self,
        caller: &Caller,
        target: &ContainerRef,
        operations: Vec<FileOperation>,
        atomic: bool,
    ) -> Result<Vec<Result<BatchOutcome, ServiceError>>, ServiceError> {
        let (mut guard, inner) = self.begin(caller, Action::FsBatch, target);
        guard.count_bytes(operations.iter().map(content_bytes).sum());
        guard.note(|arguments| {
            arguments.flag("atomic", atomic);
            arguments.number("operations", operations.len() as u64);
            arguments.paths(
                "paths",
                operations.iter().map(|operation| paths(operation).0),
            );
        });
        guard
            .run(inner.batch(caller, target, operations, atomic))
            .await
    }
}

impl Inner {
    pub(crate) async fn batch(
        &self,
        caller: &Caller,
        target: &ContainerRef,
        operations: Vec<FileOperation>,
        atomic: bool,
    ) -> Result<Vec<Result<BatchOutcome, ServiceError>>, ServiceError> {
        let paths = check(&operations)?;
        let takes_space = operations.iter().any(takes_space);
        if takes_space {
            self.environment.has_room()?;
        }
        let operations: Vec<_> = operations.into_iter().map(for_agent).collect();
        let container = self.running_container(caller, target).await?;
        let writing = if takes_space {
            Some(self.has_disk(&container).await?)
        } else {
            None
        };
        let explain = |error| match &writing {
            Some(writing) => writing.explain(error),
            None => error,
        };
        let root = FilePath::parse(b".")?;
        let batch = async |agent: Agent| agent.batch(operations.clone(), atomic).await;
        let asked = call(&container, Call::changes(&root), batch).await;
        let (results, _) = asked.map_err(|error| explain(about(error, &paths)))?;
        let each = results.into_iter().zip(paths);
        Ok(each
            .map(|(result, path)| {
                result.map_err(|error| explain(from_agent(error, path.as_bytes(), Effect::Unknown)))
            })
            .collect())
    }
}

/// Adds the path of the failed operation to an error.
fn about(mut error: ServiceError, paths: &[FilePath]) -> ServiceError {
    if let ServiceError::Batch { index, cause, .. } = &mut error
        && let ServiceError::NotFound { name, .. } | ServiceError::AlreadyExists { name, .. } =
            &mut **cause
        && let Some(path) = paths.get(*index)
    {
        *name = String::from_utf8_lossy(path.as_bytes()).into_owned();
    }
    error
}

/// Rejects operations that exceed the agent's limits; returns the path of each operation.
fn check(operations: &[FileOperation]) -> Result<Vec<FilePath>, ServiceError> {
    if !(1..=BATCH_OPERATIONS_MAX).contains(&operations.len()) {
        return Err(invalid(format!(
            "a batch must have 1 to {BATCH_OPERATIONS_MAX} operations"
        )));
    }
    let bytes: usize = operations.iter().map(content_bytes).sum();
    if bytes > BATCH_BYTES_MAX {
        return Err(invalid(format!(
            "the files of a batch may have {BATCH_BYTES_MAX} bytes together; write large ones by themselves"
        )));
    }
    let numbered = operations.iter().enumerate();
    numbered
        .map(|(index, operation)| {
            let (path, dest) = paths(operation);
            let named = |error| ServiceError::Batch {
                index,
                is_undone: true,
                cause: Box::new(error),
            };
            if let Some(dest) = dest {
                FilePath::parse(dest).map_err(named)?;
            }
            FilePath::parse(path).map_err(named)
        })
        .collect()
}

/// Whether an operation may need disk space. Reads, moves and deletions are allowed when the disk
/// is nearly full.
fn takes_space(operation: &FileOperation) -> bool {
    match operation {
        FileOperation::Write { .. } | FileOperation::Copy { .. } | FileOperation::Mkdir { .. } => {
            true
        }
        FileOperation::Read { .. } | FileOperation::Delete { .. } | FileOperation::Move { .. } => {
            false
        }
    }
}

fn content_bytes(operation: &FileOperation) -> usize {
    match operation {
        FileOperation::Write { data, .. } => data.len(),
        FileOperation::Read { .. }
        | FileOperation::Delete { .. }
        | FileOperation::Move { .. }
        | FileOperation::Copy { .. }
        | FileOperation::Mkdir { .. } => 0,
    }
}

fn paths(operation: &FileOperation) -> (&[u8], Option<&[u8]>) {
    match operation {
        FileOperation::Read { path }
        | FileOperation::Write { path, .. }
        | FileOperation::Delete { path, .. }
        | FileOperation::Mkdir { path } => (path, None),
        FileOperation::Move { path, dest, .. } | FileOperation::Copy { path, dest } => {
            (path, Some(dest))
        }
    }
}

fn for_agent(mut operation: FileOperation) -> FileOperation {
    match &mut operation {
        FileOperation::Read { path }
        | FileOperation::Write { path, .. }
        | FileOperation::Delete { path, .. }
        | FileOperation::Mkdir { path } => relate(path),
        FileOperation::Move { path, dest, .. } | FileOperation::Copy { path, dest } => {
            relate(path);
            relate(dest);
        }
    }
    operation
}

/// Converts a validated path to the agent's form.
fn relate(path: &mut Vec<u8>) {
    if let Ok(parsed) = FilePath::parse(path) {
        *path = parsed.for_agent().to_vec();
    }
}
