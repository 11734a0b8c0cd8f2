//! Several file operations at once.

use hotcell_agent_client::Agent;
use hotcell_agent_client::bounds::{BATCH_BYTES_MAX, BATCH_OPERATIONS_MAX};
use hotcell_domain::{Caller, ContainerRef};

use super::error::{Effect, from_agent};
use super::{BatchOutcome, Call, FilePath, Operation, invalid};
use crate::{Service, ServiceError};

impl Service {
    /// Does several things, with `atomic` all of them or none: then the one that failed is
    /// a [`ServiceError::Batch`].
    pub async fn file_batch(
        &self,
        caller: &Caller,
        target: &ContainerRef,
        operations: Vec<Operation>,
        atomic: bool,
    ) -> Result<Vec<Result<BatchOutcome, ServiceError>>, ServiceError> {
        let paths = check(&operations)?;
        let operations: Vec<_> = operations.into_iter().map(for_agent).collect();
        let container = self.inner.running_container(caller, target).await?;
        let root = FilePath::parse(b".")?;
        let batch = async |agent: Agent| agent.batch(operations.clone(), atomic).await;
        let asked = self
            .ask(&container, Call::changes("batch", &root), batch)
            .await;
        let (results, _) = asked.map_err(|error| about(error, &paths))?;
        let each = results.into_iter().zip(paths);
        Ok(each
            .map(|(result, path)| {
                result.map_err(|error| from_agent(error, path.as_bytes(), Effect::Unknown))
            })
            .collect())
    }
}

/// A failure that names the path of its operation.
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

/// Refuses what no agent would take; answers what each operation is about.
fn check(operations: &[Operation]) -> Result<Vec<FilePath>, ServiceError> {
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

fn content_bytes(operation: &Operation) -> usize {
    match operation {
        Operation::Write { data, .. } => data.len(),
        Operation::Read { .. }
        | Operation::Delete { .. }
        | Operation::Move { .. }
        | Operation::Copy { .. }
        | Operation::Mkdir { .. } => 0,
    }
}

fn paths(operation: &Operation) -> (&[u8], Option<&[u8]>) {
    match operation {
        Operation::Read { path }
        | Operation::Write { path, .. }
        | Operation::Delete { path, .. }
        | Operation::Mkdir { path } => (path, None),
        Operation::Move { path, dest, .. } | Operation::Copy { path, dest } => (path, Some(dest)),
    }
}

fn for_agent(mut operation: Operation) -> Operation {
    match &mut operation {
        Operation::Read { path }
        | Operation::Write { path, .. }
        | Operation::Delete { path, .. }
        | Operation::Mkdir { path } => relate(path),
        Operation::Move { path, dest, .. } | Operation::Copy { path, dest } => {
            relate(path);
            relate(dest);
        }
    }
    operation
}

/// Names a path, which was checked, as an agent does.
fn relate(path: &mut Vec<u8>) {
    if let Ok(parsed) = FilePath::parse(path) {
        *path = parsed.for_agent().to_vec();
    }
}
