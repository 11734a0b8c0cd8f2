//! Asking the user, through the client that asked for the run.
//!
//! Until 2025-11-25 a server sends its client a request (`elicitation/create`) and waits. Since
//! 2026-07-28 it sends none: it answers that it needs input, and the client repeats its request
//! with the input (see [`super::rounds`]).

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use hotcell_codemode::{Asked, Asker, Question};
use rmcp::RoleServer;
use rmcp::model::{
    ClientResult, ElicitRequest, ElicitRequestParams, ElicitationAction, ElicitationSchema,
    ProtocolVersion, ServerRequest,
};
use rmcp::service::{Peer, RequestContext};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::rounds::{Pending, RoundsAsker};

/// How long somebody may take to decide.
pub(crate) const DECISION_TIMEOUT: Duration = Duration::from_mins(10);

/// How the user of a client can be asked.
#[derive(Clone)]
pub(crate) enum Asking {
    /// In no way.
    Nobody,
    /// By a request of ours.
    Request(Peer<RoleServer>),
    /// By an answer that needs input.
    Rounds,
}

impl Asking {
    /// What the client of this request can do.
    pub(crate) fn new(context: &RequestContext<RoleServer>) -> Self {
        let capabilities = context.client_capabilities();
        let elicitation = capabilities.and_then(|client| client.elicitation);
        // A client that says nothing about the modes has the first one, forms.
        let has_forms = elicitation.is_some_and(|it| it.form.is_some() || it.url.is_none());
        match context.protocol_version() {
            Some(version) if has_forms && version < ProtocolVersion::V_2026_07_28 => {
                Self::Request(context.peer.clone())
            }
            Some(_) if has_forms => Self::Rounds,
            Some(_) | None => Self::Nobody,
        }
    }

    /// Somebody who asks for a run, and the questions that wait for the next round.
    pub(crate) fn asker(&self) -> (Arc<dyn Asker>, mpsc::Receiver<Pending>) {
        let (rounds, questions) = RoundsAsker::channel();
        let asker: Arc<dyn Asker> = match self {
            Self::Nobody => Arc::new(NobodyAsker),
            Self::Request(peer) => Arc::new(RequestAsker(peer.clone())),
            Self::Rounds => Arc::new(rounds),
        };
        (asker, questions)
    }
}

struct NobodyAsker;

struct RequestAsker(Peer<RoleServer>);

#[async_trait]
impl Asker for NobodyAsker {
    async fn ask(&self, _: Question) -> Asked {
        Asked::Nobody
    }
}

#[async_trait]
impl Asker for RequestAsker {
    async fn ask(&self, question: Question) -> Asked {
        let Some(request) = request(&question) else {
            return Asked::Nobody;
        };
        let request = self.0.send_request(ServerRequest::ElicitRequest(request));
        match tokio::time::timeout(DECISION_TIMEOUT, request).await {
            Ok(Ok(ClientResult::ElicitResult(result))) => {
                let content = result.content.unwrap_or_default();
                decided(&result.action, content.get("allow"))
            }
            Ok(Ok(_) | Err(_)) => Asked::Nobody,
            Err(_) => Asked::No,
        }
    }
}

/// The form that the user sees.
pub(super) fn request(question: &Question) -> Option<ElicitRequest> {
    let schema = json!({
        "type": "object",
        "properties": {
            "allow": {"type": "boolean", "title": "Allow this call", "default": false},
        },
        "required": ["allow"],
    });
    let params = ElicitRequestParams::FormElicitationParams {
        meta: None,
        message: message(question),
        requested_schema: serde_json::from_value::<ElicitationSchema>(schema).ok()?,
    };
    Some(ElicitRequest::new(params))
}

/// Only a form that was sent with `allow` set is a yes.
pub(super) fn decided(action: &ElicitationAction, allow: Option<&Value>) -> Asked {
    if *action == ElicitationAction::Accept && allow == Some(&json!(true)) {
        Asked::Yes
    } else {
        Asked::No
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
