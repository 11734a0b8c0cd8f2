//! `attach`: records who works in a container.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Answer, Hints, Tool, ToolError, arguments};
use crate::Server;
use crate::call::Call;
use hotcell_domain::rfc3339;

pub(super) struct Attach;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Params {
    /// Container, by id or alias
    target: String,
    /// Who works there
    client_name: String,
    /// In which session; each at most 256 bytes
    session_id: String,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Output {
    container_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    alias: Option<String>,
    status: &'static str,
    roots: [&'static str; 1],
    attached_at: String,
}

impl Tool for Attach {
    const NAME: &'static str = "attach";
    const DESCRIPTION: &'static str =
        "Note who works in a container, for list_containers. Optional; twice is as once.";
    const HINTS: Hints = Hints::SETS;
    type Params = Params;
    type Output = Output;

    async fn run(server: &Server, params: Params, call: &Call) -> Result<Answer, ToolError> {
        let target = super::container_ref(&params.target)?;
        let client = arguments::name("client_name", &params.client_name)?;
        let session = arguments::name("session_id", &params.session_id)?;
        let service = server.service();
        let (view, attached) = service
            .attach(&call.caller, &target, client, session)
            .await?;
        let output = Output {
            container_id: view.id.to_string(),
            alias: view.alias.as_ref().map(ToString::to_string),
            status: view.phase.as_str(),
            roots: ["/workspace"],
            attached_at: rfc3339(attached.attached_unix_ms),
        };
        let text = format!("attached to {}, which is {}", view.id, view.phase.as_str());
        Ok(Answer::of(text, output))
    }
}
