//! Handles warm containers that an earlier server left.
//!
//! All of them are removed, even healthy ones: the runtime, agent, seccomp filter and image that
//! they were created with may differ from what this server would use. Nobody has used them, so
//! nothing is lost.

use std::collections::HashSet;
use std::sync::Arc;

use hotcell_engine::EngineError;
use hotcell_store::WarmRow;

use super::Pool;

/// The set index of a container that belongs to no set.
const NO_SET: usize = usize::MAX;

impl Pool {
    /// Takes over containers that an earlier server recorded as warm, so that reconcile leaves them
    /// alone, and removes them in the background. Those of another engine are left to a server on
    /// that engine.
    pub(crate) async fn adopt(self: &Arc<Self>, rows: Vec<WarmRow>) -> Result<(), EngineError> {
        let here = &self.environment.engine_id;
        let may_be = |row: &WarmRow| row.engine.may_be(here) || row.engine.name.is_empty();
        let (mut ours, mut theirs): (Vec<_>, Vec<_>) = rows.into_iter().partition(may_be);
        // The same engine can have two addresses: containers that this one lists are its own. If it
        // does not answer, the server does not start: reconcile would treat these containers as
        // callers'.
        theirs.retain(|row| row.engine.name == here.name);
        if !theirs.is_empty() {
            let listed = self.environment.engine.list().await?;
            let shown: HashSet<_> = listed.into_iter().map(|container| container.id).collect();
            ours.extend(theirs.into_iter().filter(|row| shown.contains(&row.id)));
        }
        for row in ours {
            // Its limits are not recorded; the defaults are the best guess.
            let limits = self.environment.settings().default_limits;
            self.environment.budget.note_of_pool(&row.id, &limits);
            self.slots().begin_removal(NO_SET, &row.id);
            self.remove_in_background(row.id, NO_SET);
        }
        Ok(())
    }
}
