//! Ids for containers that an engine creates for itself.

use std::time::SystemTime;

use hotcell_domain::ContainerId;

use crate::EngineError;

/// A unique, unpredictable container id.
pub(crate) fn new_container_id() -> Result<ContainerId, EngineError> {
    let mut random = [0; 10];
    getrandom::fill(&mut random).map_err(EngineError::engine("draw random numbers"))?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let unix_ms = now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(0));
    Ok(ContainerId::from_parts(unix_ms, random))
}
