//! Warm containers that an earlier server left.
//!
//! They are removed, however well they are: what they were made with (a runtime, an agent, a
//! filter, an image that its name stood for or that was allowed then) is not what this
//! server would make. Nobody has ever used one, so nothing is lost.

use std::collections::HashSet;
use std::sync::Arc;

use hotcell_engine::EngineError;
use hotcell_store::WarmRow;

use super::Pool;

/// The set of a container that belongs to none.
const NO_SET: usize = usize::MAX;

impl Pool {
    /// Claims what an earlier server noted as warm, so that nobody else settles it, and
    /// removes it in the background. What another engine holds is left to a server on that.
    pub(crate) async fn adopt(self: &Arc<Self>, rows: Vec<WarmRow>) -> Result<(), EngineError> {
        let here = &self.environment.engine_id;
        let may_be = |row: &WarmRow| row.engine.may_be(here) || row.engine.name.is_empty();
        let (mut ours, mut theirs): (Vec<_>, Vec<_>) = rows.into_iter().partition(may_be);
        // One engine can be at two addresses: what this one shows is its own. An engine that
        // does not say ends the start: reconcile would take these for somebody's work.
        theirs.retain(|row| row.engine.name == here.name);
        if !theirs.is_empty() {
            let listed = self.environment.engine.list().await?;
            let shown: HashSet<_> = listed.into_iter().map(|container| container.id).collect();
            ours.extend(theirs.into_iter().filter(|row| shown.contains(&row.id)));
        }
        for row in ours {
            // What it was made with is not known, but it was what a container had by default.
            let limits = self.environment.settings().default_limits;
            self.environment.budget.note_of_pool(&row.id, &limits);
            self.slots().begin_removal(NO_SET, &row.id);
            self.remove_in_background(row.id, NO_SET);
        }
        Ok(())
    }
}
