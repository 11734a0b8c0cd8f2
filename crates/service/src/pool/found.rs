//! Warm containers that an earlier server left.
//!
//! They are removed, however well they are: what they were made with (a runtime, an agent, a
//! filter, an image that its name stood for or that was allowed then) is not what this
//! server would make. Nobody has ever used one, so nothing is lost.

use std::sync::Arc;

use hotcell_store::WarmRow;

use super::Pool;

/// The stock of a container that belongs to none.
const NO_STOCK: usize = usize::MAX;

impl Pool {
    /// Claims what an earlier server noted as warm, so that nobody else settles it, and
    /// removes it in the background. What another engine holds is left to a server on that.
    pub(crate) fn take_over(self: &Arc<Self>, rows: Vec<WarmRow>) {
        let here = self.environment.engine.name();
        let is_here = |row: &WarmRow| row.engine == here || row.engine.is_empty();
        for row in rows.into_iter().filter(is_here) {
            self.shelf().begin_to_leave(NO_STOCK, &row.id);
            self.remove_in_background(row.id, NO_STOCK);
        }
    }
}
