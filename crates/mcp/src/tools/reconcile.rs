//! `reconcile`: settles differences between the store and the engine.

use hotcell_service::Reconciled;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Answer, Hints, Tool, ToolError};
use crate::call::Call;
use crate::{Server, Toolset};

pub(super) struct Reconcile;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Params {}

#[derive(Serialize, JsonSchema)]
pub(super) struct Counts {
    discovered: u64,
    adopted: u64,
    cleaned: u64,
    orphaned: u64,
    errors: u64,
}

impl Tool for Reconcile {
    const NAME: &'static str = "reconcile";
    const DESCRIPTION: &'static str =
        "Compare what the server knows with what the engine holds, and settle differences.";
    const HINTS: Hints = Hints::DESTROYS_ONCE;
    const SET: Toolset = Toolset::Admin;
    type Params = Params;
    type Output = Counts;

    async fn run(server: &Server, _: Params, call: &Call) -> Result<Answer, ToolError> {
        let reconciling = server.service().reconcile(&call.caller);
        let counts = Counts::from(call.attend("comparing", reconciling).await??);
        let text = format!(
            "discovered {}, adopted {}, cleaned {}, orphaned {}, errors {}",
            counts.discovered, counts.adopted, counts.cleaned, counts.orphaned, counts.errors
        );
        Ok(Answer::of(text, counts))
    }
}

impl From<Reconciled> for Counts {
    fn from(reconciled: Reconciled) -> Self {
        Self {
            discovered: reconciled.discovered,
            adopted: reconciled.adopted,
            cleaned: reconciled.cleaned,
            orphaned: reconciled.orphaned,
            errors: reconciled.errors,
        }
    }
}
