//! Replaces the settings of a running service.

use hotcell_domain::Caller;

use crate::egress::{Egress, EgressSettings};
use crate::status::WHOLE;
use crate::{Action, Service, ServiceError, Settings};

impl Service {
    /// Replaces the settings by the result of `read`; on `Err` the old ones stay. Operations that
    /// have begun continue with the old settings. The sets of the warm pool are fixed at start.
    pub async fn reload(
        &self,
        caller: &Caller,
        read: impl Future<Output = Result<Settings, String>> + Send,
    ) -> Result<(), ServiceError> {
        let (operation, inner) = self.begin(caller, Action::Reload, &WHOLE);
        let reload = async {
            let settings = read.await;
            let settings = settings.map_err(|reason| ServiceError::Invalid { reason })?;
            let egress = Egress::prepare(EgressSettings::of(&settings))?;
            inner.environment.replace_settings(settings);
            inner.environment.egress.replace(egress);
            Ok(())
        };
        operation.run(reload).await
    }
}
