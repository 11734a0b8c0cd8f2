//! Asking the user, through the client that asked for the run.

use std::time::Duration;

use async_trait::async_trait;
use hotcell_codemode::{Asked, Asker, Question};
use rmcp::RoleServer;
use rmcp::model::{
    ClientResult, ElicitRequest, ElicitRequestParams, ElicitationAction, ElicitationSchema,
    ProtocolVersion, ServerRequest,
};
use rmcp::service::{Peer, RequestContext};
use serde_json::json;

/// How long somebody may take to decide.
const DECISION_TIMEOUT: Duration = Duration::from_mins(10);

/// Asks by elicitation, where the client has it and takes requests.
#[derive(Clone)]
pub(crate) struct ClientAsker(Option<Peer<RoleServer>>);

impl ClientAsker {
    /// Asks the client of this request.
    pub(crate) fn new(context: &RequestContext<RoleServer>) -> Self {
        let capabilities = context.client_capabilities();
        let elicitation = capabilities.and_then(|client| client.elicitation);
        // A client that says nothing about the modes has the first one, forms.
        let has_forms = elicitation.is_some_and(|it| it.form.is_some() || it.url.is_none());
        // Since 2026-07-28 a server sends no requests of its own.
        let takes_requests = context
            .protocol_version()
            .is_some_and(|version| version < ProtocolVersion::V_2026_07_28);
        Self((has_forms && takes_requests).then(|| context.peer.clone()))
    }
}

#[async_trait]
impl Asker for ClientAsker {
    async fn ask(&self, question: Question) -> Asked {
        let Some(peer) = &self.0 else {
            return Asked::Nobody;
        };
        let schema = json!({
            "type": "object",
            "properties": {
                "allow": {"type": "boolean", "title": "Allow this call", "default": false},
            },
            "required": ["allow"],
        });
        let Ok(requested_schema) = serde_json::from_value::<ElicitationSchema>(schema) else {
            return Asked::Nobody;
        };
        let params = ElicitRequestParams::FormElicitationParams {
            meta: None,
            message: message(&question),
            requested_schema,
        };
        let request = ServerRequest::ElicitRequest(ElicitRequest::new(params));
        let answer = tokio::time::timeout(DECISION_TIMEOUT, peer.send_request(request)).await;
        match answer {
            Ok(Ok(ClientResult::ElicitResult(result))) => {
                let content = result.content.unwrap_or_default();
                let is_allowed = content.get("allow") == Some(&json!(true));
                if result.action == ElicitationAction::Accept && is_allowed {
                    Asked::Yes
                } else {
                    Asked::No
                }
            }
            Ok(Ok(_) | Err(_)) => Asked::Nobody,
            Err(_) => Asked::No,
        }
    }
}

/// What the user reads. Names and arguments are others' words, so they are on lines of their own.
fn message(question: &Question) -> String {
    let shown = |text: &str| text.replace(char::is_control, "\u{fffd}");
    format!(
        "A script wants to call a tool of another MCP server.\nserver: {}\ntool: {}\narguments: {}\nreason: {}",
        shown(&question.server),
        shown(&question.tool),
        shown(&question.arguments),
        shown(&question.reason),
    )
}
