//! How a table of sessions that is full is shared among principals: whoever has most makes room.

use std::collections::HashMap;

use hotcell_domain::Principal;

/// How many sessions each principal has.
pub(crate) struct Shares<'a>(HashMap<&'a Principal, usize>);

impl<'a> Shares<'a> {
    /// Counts sessions by their owners.
    pub(crate) fn of(owners: impl Iterator<Item = &'a Principal>) -> Self {
        let mut counts = HashMap::new();
        for owner in owners {
            *counts.entry(owner).or_default() += 1;
        }
        Self(counts)
    }

    pub(crate) fn held(&self, principal: &Principal) -> usize {
        self.0.get(principal).copied().unwrap_or(0)
    }

    /// Whether `owner` loses a session that it uses, so that `asker` gets one: only if `owner` still
    /// has as many afterwards, so that two principals do not take it from each other in turn.
    pub(crate) fn yields(&self, owner: &Principal, asker: &Principal) -> bool {
        self.held(owner) > self.held(asker) + 1
    }
}
