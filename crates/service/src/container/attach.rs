//! Records which clients work in a container.

use hotcell_domain::{Caller, ContainerRef, Name};
use hotcell_store::AttachmentRow;

use super::{Attached, ContainerView};
use crate::{Action, Inner, Service, ServiceError};

impl Service {
    /// Records that a client works in a container. Repeating it changes nothing.
    pub async fn attach(
        &self,
        caller: &Caller,
        target: &ContainerRef,
        client_name: Name,
        session_id: Name,
    ) -> Result<(ContainerView, Attached), ServiceError> {
        let (mut operation, inner) = self.begin(caller, Action::Attach, target);
        operation.note(|arguments| arguments.text("client_name", client_name.as_str()));
        let attach = inner.attach(caller, target, client_name, session_id);
        operation.run(attach).await
    }
}

impl Inner {
    async fn attach(
        &self,
        caller: &Caller,
        target: &ContainerRef,
        client_name: Name,
        session_id: Name,
    ) -> Result<(ContainerView, Attached), ServiceError> {
        let container = self.running_container(caller, target).await?;
        let environment = &self.environment;
        let attachments_max = environment.settings().attachments_max;
        let row = AttachmentRow {
            container: container.id().clone(),
            client_name,
            session_id,
            attached_unix_ms: environment.clock.unix_ms(),
        };
        let attached = environment.store.attach(row, attachments_max).await?;
        let attached = attached.ok_or_else(|| ServiceError::Exhausted {
            reason: format!("{attachments_max} clients are attached already, which is the bound"),
        })?;
        Ok((self.view_of(&container).await?, attached.into()))
    }
}
