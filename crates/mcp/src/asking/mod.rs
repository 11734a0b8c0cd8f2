//! Asking the user, through the client whose call is open.
//!
//! Until 2025-11-25 a server sends its client a request (`elicitation/create`) and waits. Since
//! 2026-07-28 it sends none: it answers that it needs input, and the client repeats its request
//! with the input. [`Ongoing`] is the work of a call that may need it; who asks has [`Forms`].
//!
//! ```text
//! who asks ─ Form ─▶ Forms ─┬─ a request of ours (request.rs) ──────▶ Filled
//!                           └─ the next round of the call (rounds.rs) ▶ Filled
//! ```

mod ongoing;
mod request;
mod rounds;

use std::time::Duration;

use rmcp::RoleServer;
use rmcp::model::{
    ElicitRequest, ElicitRequestParams, ElicitationAction, ElicitationSchema, ProtocolVersion,
};
use rmcp::service::{Peer, RequestContext};
use serde_json::Value;
use tokio::sync::mpsc;

pub(crate) use ongoing::{Attended, Doing, Ongoing, Work, joined};
pub(crate) use rounds::{Repeated, Suspended};

use rounds::Pending;

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

/// A form for the user. What it quotes of others is the writer's to make harmless.
#[derive(Debug, Clone)]
pub(crate) struct Form {
    pub(crate) message: String,
    /// A JSON Schema as MCP restricts it.
    pub(crate) schema: Value,
}

/// What the user did with a form.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Filled {
    /// Sent it, with this content.
    Sent(Value),
    /// Declined, closed or did not see it, or took too long.
    Declined,
    /// There is nobody to ask.
    Nobody,
}

/// Shows forms to the user for one call. Clones show them to the same user.
#[derive(Clone)]
pub(crate) enum Forms {
    Nobody,
    Request(Peer<RoleServer>),
    Rounds(mpsc::Sender<Pending>),
}

/// The forms of a call that wait for its next round.
pub(crate) struct NextRound(mpsc::Receiver<Pending>);

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

    /// Opens the forms of one call.
    pub(crate) fn open(&self) -> (Forms, NextRound) {
        let (sender, receiver) = mpsc::channel(rounds::FORMS_MAX);
        let forms = match self {
            Self::Nobody => Forms::Nobody,
            Self::Request(peer) => Forms::Request(peer.clone()),
            Self::Rounds => Forms::Rounds(sender),
        };
        (forms, NextRound(receiver))
    }
}

impl Forms {
    /// Shows a form until it is answered. Dropping the future withdraws it.
    pub(crate) async fn ask(&self, form: Form) -> Filled {
        match self {
            Self::Nobody => Filled::Nobody,
            Self::Request(peer) => request::ask(peer, &form).await,
            Self::Rounds(next) => rounds::ask(next, form).await,
        }
    }

    /// Whether there is somebody to ask.
    pub(crate) fn has_user(&self) -> bool {
        !matches!(self, Self::Nobody)
    }
}

impl Form {
    fn to_request(&self) -> Option<ElicitRequest> {
        let schema = serde_json::from_value::<ElicitationSchema>(self.schema.clone());
        let params = ElicitRequestParams::FormElicitationParams {
            meta: None,
            message: self.message.clone(),
            requested_schema: schema.ok()?,
        };
        Some(ElicitRequest::new(params))
    }
}

impl Filled {
    fn new(action: &ElicitationAction, content: Option<Value>) -> Self {
        if *action == ElicitationAction::Accept {
            Self::Sent(content.unwrap_or_default())
        } else {
            Self::Declined
        }
    }
}
