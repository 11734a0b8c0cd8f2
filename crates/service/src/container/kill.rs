//! Ends containers.

use hotcell_domain::{Caller, ContainerRef};

use crate::container::EndMode;
use crate::{Action, Service, ServiceError};

impl Service {
    /// Ends a container and removes everything it has; with `force` without a grace period. Its
    /// execs end as cancelled. If the container is already ending, waits for the same end.
    ///
    /// Dropping the future does not stop it.
    pub async fn kill(
        &self,
        caller: &Caller,
        target: &ContainerRef,
        force: bool,
    ) -> Result<(), ServiceError> {
        let (mut operation, inner) = self.begin(caller, Action::Kill, target);
        operation.note(|arguments| arguments.flag("force", force));
        let mode = if force {
            EndMode::Forced
        } else {
            EndMode::Graceful
        };
        let kill = async { inner.find(caller, target)?.end(mode).await };
        operation.run(kill).await
    }
}
