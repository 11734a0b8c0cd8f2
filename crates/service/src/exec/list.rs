//! Listing execs.

use hotcell_domain::{Caller, ContainerRef};
use hotcell_store::ExecRow;

use super::ExecSummary;
use super::living::Exec;
use crate::{Service, ServiceError};

/// Ended execs in one answer; the newest.
const ENDED_MAX: usize = 1000;

impl Service {
    /// The caller's execs, in one container or in all, oldest first. Of those that have
    /// ended, the newest.
    pub async fn execs(
        &self,
        caller: &Caller,
        target: Option<&ContainerRef>,
        include_finished: bool,
    ) -> Result<Vec<ExecSummary>, ServiceError> {
        let environment = &self.inner.environment;
        let container = match target {
            Some(target) => Some(self.inner.find(caller, target)?.id().clone()),
            None => None,
        };
        let is_wanted = |exec: &Exec| {
            let is_here = container.as_ref().is_none_or(|id| *id == exec.container);
            is_here && exec.principal == caller.principal && !exec.status().is_final()
        };
        let living = environment.execs.filter(is_wanted);
        let mut all: Vec<_> = living.iter().map(|exec| exec.summary()).collect();
        if include_finished {
            let principal = caller.principal.clone();
            let ended = environment
                .store
                .ended_execs(principal, container, ENDED_MAX);
            let ended = ended.await?;
            // One that ended just now is in both.
            all.retain(|exec| !ended.iter().any(|row| row.id == exec.id));
            all.extend(ended.into_iter().map(summary));
        }
        all.sort_by(|a, b| (a.created_unix_ms, &a.id).cmp(&(b.created_unix_ms, &b.id)));
        Ok(all)
    }
}

fn summary(row: ExecRow) -> ExecSummary {
    let status = row.end.as_ref().map(|end| end.status);
    ExecSummary {
        id: row.id,
        container: row.container,
        argv: row.command.argv().to_vec(),
        status: status.unwrap_or(hotcell_domain::ExecStatus::Lost),
        created_unix_ms: row.created_unix_ms,
        ended_unix_ms: row.ended_unix_ms,
        end: row.end,
    }
}
