//! What the host's kernel and settings allow.

use std::path::Path;

use super::Finding;

/// Probes the host, from the ground up.
pub(super) fn probe(_state: &Path) -> Vec<Finding> {
    Vec::new()
}
