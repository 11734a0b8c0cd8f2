//! Replacing the settings of a running service.

use hotcell_domain::Caller;

use crate::status::WHOLE;
use crate::{Action, Service, ServiceError, Settings};

impl Service {
    /// Replaces the settings by what `read` answers; on `Err` the old ones stay. What has begun
    /// goes on with the old ones. The images that are kept warm are those of the start.
    pub async fn reload(
        &self,
        caller: &Caller,
        read: impl Future<Output = Result<Settings, String>> + Send,
    ) -> Result<(), ServiceError> {
        let (operation, inner) = self.begin(caller, Action::Reload, &WHOLE);
        let reload = async {
            let settings = read.await;
            let settings = settings.map_err(|reason| ServiceError::Invalid { reason })?;
            inner.environment.replace_settings(settings);
            Ok(())
        };
        operation.run(reload).await
    }
}
