//! New handles.

use std::time::SystemTime;

use anyhow::{Result, anyhow};
use hotcell_domain::ContainerId;

/// A container id that nobody has and nobody can guess.
pub(crate) fn new_container_id() -> Result<ContainerId> {
    let mut random = [0; 10];
    getrandom::fill(&mut random).map_err(|error| anyhow!("no random numbers: {error}"))?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let unix_ms = now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(0));
    Ok(ContainerId::from_parts(unix_ms, random))
}
