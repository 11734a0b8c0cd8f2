//! Restarts a container whose init has exited, by itself or with its host. Its directory says how
//! init is started.

use std::fs;
use std::io;

use hotcell_domain::ContainerId;
use hotcell_runtime::Enforced;

use super::create::{EmbeddedInner, end_recorded};
use super::home::{Owner, Record};
use crate::{Abandonment, EngineError};

impl EmbeddedInner {
    /// See [`crate::Engine::restart`].
    pub(super) fn restart(
        &self,
        id: &ContainerId,
        abandonment: &Abandonment,
    ) -> Result<Record, EngineError> {
        let Some(_lock) = self.home().lock(id)? else {
            return Err(EngineError::NotFound { id: id.clone() });
        };
        abandonment.check()?;
        let known = (self.home().read(id)?, self.home().launch(id)?);
        let (Some(mut record), Some(launch)) = known else {
            let step = "start the container again";
            return Err(EngineError::engine(step)("nothing tells how it was made"));
        };
        let launch = self.with_workspace(launch, &record)?;
        end_recorded(id, &record)?;
        // If we die before the next record, an init is left that only a search finds.
        record.restarts = true;
        self.home().replace(id, &record)?;
        self.remove_socket(id)?;
        let (listener, log) = (self.listen(id)?, self.make_log(id)?);
        let launched = self.launch(id, &launch, &log, &listener)?;
        let record = Record {
            pid: launched.pid,
            start_time: launched.start_time,
            enforced: Enforced {
                disk: self.limit_disk_again(&record),
                ..launched.enforced
            },
            cgroup: launched.cgroup,
            owner: Owner::us(record.owner.lifetime()),
            restarts: false,
            ..record
        };
        let kept = self.require_limits(&record);
        if kept.is_err() {
            end_recorded(id, &record)?;
        }
        self.home().replace(id, &record)?;
        kept.map(|()| record)
    }

    fn remove_socket(&self, id: &ContainerId) -> Result<(), EngineError> {
        match fs::remove_file(self.home().directory(id).join("agent.sock")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(EngineError::engine("remove the agent's socket")(error))
            }
            _ => Ok(()),
        }
    }
}
