//! The scope that distinguishes our containers from others in a shared engine.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use crate::EngineError;
use crate::new_id::new_container_id;

/// The file in the state directory that holds the scope.
const SCOPE_FILE: &str = "scope";

/// The scope of a state directory: random, and the same for as long as the state exists.
pub(super) fn scope(state: &Path) -> Result<String, EngineError> {
    if let Some(known) = known_scope(state)? {
        return Ok(known);
    }
    let scope = new_container_id()?.to_string();
    let written = write(state, &state.join(SCOPE_FILE), &scope);
    written.map_err(EngineError::engine(
        "write the scope of the state directory",
    ))?;
    Ok(scope)
}

/// The scope of a state directory, if it has one.
pub(super) fn known_scope(state: &Path) -> Result<Option<String>, EngineError> {
    let known = match std::fs::read_to_string(state.join(SCOPE_FILE)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        known => known.map_err(EngineError::engine("read the scope of the state directory"))?,
    };
    Ok((!known.is_empty()).then_some(known))
}

/// Writes and syncs the scope: if a power cut lost it, nobody would find our containers in the
/// engine.
fn write(state: &Path, path: &Path, scope: &str) -> io::Result<()> {
    let new = state.join(format!("{SCOPE_FILE}.new"));
    let mut file = File::create(&new)?;
    file.write_all(scope.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&new, path)?;
    File::open(state)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scope_stays_the_same_for_one_state_and_differs_between_two() {
        let [here, there] = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
        let first = scope(here.path()).expect("a scope");
        assert_eq!(scope(here.path()).expect("a scope"), first);
        assert_ne!(scope(there.path()).expect("a scope"), first);
    }
}
