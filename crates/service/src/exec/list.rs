//! Lists execs.

use std::collections::HashSet;

use hotcell_domain::{Caller, ContainerId, ContainerRef, ExecId, Principal};
use hotcell_store::EndedExecRow;

use super::ExecSummary;
use super::live::LiveExec;
use crate::operation::must_be_admin;
use crate::status::WHOLE;
use crate::{Action, Inner, Listing, PageRequest, Service, ServiceError};

/// Most execs per page; the newest are kept.
const LISTED_MAX: usize = 1000;

impl Service {
    /// The caller's execs, in one container or in all, oldest first. If there are too many, only
    /// the newest.
    pub async fn execs(
        &self,
        caller: &Caller,
        target: Option<&ContainerRef>,
        include_finished: bool,
    ) -> Result<Vec<ExecSummary>, ServiceError> {
        let page = PageRequest {
            before: None,
            rows_max: LISTED_MAX,
        };
        let listing = self.execs_page(caller, target, include_finished, &page);
        Ok(listing.await?.rows)
    }

    /// A page of the caller's execs, in one container or in all.
    pub async fn execs_page(
        &self,
        caller: &Caller,
        target: Option<&ContainerRef>,
        include_finished: bool,
        page: &PageRequest<ExecId>,
    ) -> Result<Listing<ExecSummary>, ServiceError> {
        let (operation, inner) = match target {
            Some(target) => self.begin(caller, Action::ListExecs, target),
            None => self.begin(caller, Action::ListExecs, &WHOLE),
        };
        operation
            .run(inner.list_execs(caller, target, include_finished, page))
            .await
    }
}

impl Service {
    /// A page of the live execs of all principals, in one container or in all. Only for admins.
    pub async fn all_execs_page(
        &self,
        caller: &Caller,
        container: Option<&ContainerId>,
        page: &PageRequest<ExecId>,
    ) -> Result<Listing<ExecSummary>, ServiceError> {
        let (operation, inner) = match container {
            Some(container) => self.begin(caller, Action::ListExecs, container),
            None => self.begin(caller, Action::ListExecs, &WHOLE),
        };
        let list = async {
            must_be_admin(caller, "execs")?;
            let is_wanted = |exec: &LiveExec| {
                container.is_none_or(|id| *id == exec.container)
                    && page.includes(exec.created_unix_ms, &exec.id)
            };
            let live = inner.environment.execs.filter(is_wanted);
            let count_max = page.with_one_more(LISTED_MAX + 1);
            let newest = &live[live.len().saturating_sub(count_max)..];
            Ok(page.cut(newest.iter().map(|exec| exec.summary()).collect()))
        };
        operation.run(list).await
    }
}

impl Inner {
    async fn list_execs(
        &self,
        caller: &Caller,
        target: Option<&ContainerRef>,
        include_finished: bool,
        page: &PageRequest<ExecId>,
    ) -> Result<Listing<ExecSummary>, ServiceError> {
        let environment = &self.environment;
        let container = match target {
            Some(target) => Some(self.find(caller, target)?.id().clone()),
            None => None,
        };
        let is_wanted = |exec: &LiveExec| {
            let is_here = container.as_ref().is_none_or(|id| *id == exec.container);
            let is_own = exec.principal == caller.principal && !exec.status().is_final();
            is_here && is_own && page.includes(exec.created_unix_ms, &exec.id)
        };
        let live = environment.execs.filter(is_wanted);
        let count_max = page.with_one_more(LISTED_MAX + 1);
        let newest = &live[live.len().saturating_sub(count_max)..];
        let mut all: Vec<_> = newest.iter().map(|exec| exec.summary()).collect();
        if include_finished {
            let principal = caller.principal.clone();
            let ended = environment.store.ended_execs_page(
                principal,
                container,
                page.before.clone(),
                count_max,
            );
            let ended = ended.await?;
            // An exec that has just ended is in both lists.
            let ended_ids: HashSet<_> = ended.iter().map(|row| &row.id).collect();
            all.retain(|exec| !ended_ids.contains(&exec.id));
            all.extend(ended.into_iter().map(|row| summary(row, &caller.principal)));
        }
        all.sort_by(|a, b| (a.created_unix_ms, &a.id).cmp(&(b.created_unix_ms, &b.id)));
        Ok(page.cut(all))
    }
}

fn summary(brief: EndedExecRow, principal: &Principal) -> ExecSummary {
    let status = brief.end.as_ref().map(|end| end.status);
    ExecSummary {
        id: brief.id,
        principal: principal.clone(),
        container: brief.container,
        argv: brief.argv,
        output_bytes: None,
        status: status.unwrap_or(hotcell_domain::ExecStatus::Lost),
        created_unix_ms: brief.created_unix_ms,
        ended_unix_ms: brief.ended_unix_ms,
        end: brief.end,
    }
}
