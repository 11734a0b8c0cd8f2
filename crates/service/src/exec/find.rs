//! Finds an exec by its id: in memory while it is live, else in the store.

use std::sync::Arc;

use hotcell_domain::{Caller, ContainerId, ExecEnd, ExecId};
use hotcell_store::ExecRow;

use super::live::LiveExec;
use crate::environment::Environment;
use crate::{Inner, ServiceError};

/// Lookups per call. An exec that ends between two lookups is found by the next one.
const LOOKS_MAX: u32 = 3;

pub(super) enum FoundExec {
    Live(Arc<LiveExec>),
    /// In the store, with its result.
    Ended(Box<ExecRow>, ExecEnd),
}

impl Environment {
    /// Finds an exec of the caller's principal. An exec of another principal does not exist.
    pub(super) async fn find_exec(
        &self,
        caller: &Caller,
        id: &ExecId,
    ) -> Result<FoundExec, ServiceError> {
        for _ in 0..LOOKS_MAX {
            let live = self.execs.get(id);
            // Another principal's exec is looked up in the store, like a missing one, so that both
            // take the same time.
            if let Some(exec) = live.filter(|exec| exec.principal == caller.principal) {
                return Ok(FoundExec::Live(exec));
            }
            let principal = caller.principal.clone();
            let row = self.store.exec(principal, id.clone()).await?;
            let mut row = row.ok_or_else(|| no_exec(id))?;
            if let Some(end) = row.end.take() {
                return Ok(FoundExec::Ended(Box::new(row), end));
            }
        }
        Err(ServiceError::Unavailable {
            reason: "the exec is not known yet; ask again in a moment".to_owned(),
            source: None,
        })
    }
}

impl Environment {
    /// How one of the caller's execs ended; `None` while it is live.
    pub(crate) async fn exec_end(
        &self,
        caller: &Caller,
        id: &ExecId,
    ) -> Result<ExecEnd, ServiceError> {
        match self.find_exec(caller, id).await? {
            FoundExec::Live(exec) => exec.end().await,
            FoundExec::Ended(_, end) => Ok(end),
        }
    }
}

impl Inner {
    /// Records that a container is used now.
    pub(super) fn used(&self, id: &ContainerId) {
        if let Some(container) = self.registry.get(id) {
            container.touch(self.environment.clock.unix_ms());
        }
    }
}

pub(crate) fn no_exec(id: &ExecId) -> ServiceError {
    ServiceError::NotFound {
        what: "exec",
        name: id.to_string(),
    }
}
