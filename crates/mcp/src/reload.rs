//! `hotcell/reload`: the request with which `hotcell reload` makes the server read its
//! configuration again. It is not a tool, because models have no use for it.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use hotcell_domain::Caller;
use hotcell_service::Action;
use rmcp::ErrorData;
use rmcp::model::{CustomResult, ErrorCode};
use serde::{Deserialize, Serialize};

use crate::Server;

/// The name of the request.
pub const RELOAD_METHOD: &str = "hotcell/reload";

/// The result of a reload.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReloadReport {
    /// Why nothing changed, if it failed.
    pub error: Option<String>,
    /// Settings that changed and apply now.
    pub changed: Vec<String>,
    /// Settings that changed and apply after a restart.
    pub needs_restart: Vec<String>,
}

type Reloading = Pin<Box<dyn Future<Output = ReloadReport> + Send>>;

/// Reads the configuration again on behalf of a caller.
#[derive(Clone)]
pub struct Reload(Arc<dyn Fn(Caller) -> Reloading + Send + Sync>);

impl Reload {
    /// Wraps the function that reloads.
    pub fn new<F>(reload: impl Fn(Caller) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ReloadReport> + Send + 'static,
    {
        Self(Arc::new(move |caller| Box::pin(reload(caller))))
    }
}

impl fmt::Debug for Reload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reload")
    }
}

/// Reloads for the operator. For others, the method does not exist.
pub(crate) async fn answer(server: &Server, caller: Caller) -> Result<CustomResult, ErrorData> {
    let Some(Reload(reload)) = server.reload() else {
        return Err(unknown());
    };
    if !caller.is_admin {
        server.service().deny(&caller, Action::Reload).await;
        return Err(unknown());
    }
    let report = reload(caller).await;
    let report = serde_json::to_value(report);
    report
        .map(CustomResult)
        .map_err(|error| ErrorData::internal_error(error.to_string(), None))
}

pub(crate) fn unknown() -> ErrorData {
    ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "unknown method", None)
}
