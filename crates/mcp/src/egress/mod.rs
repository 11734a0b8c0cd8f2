//! `hotcell/egress`: the request with which `hotcell egress pending`, `allow` and `deny` show and answer
//! questions about hosts that are not listed. It is no tool: a model must not let itself out. The user
//! of an open call is asked by a form ([`HostQuestions`]).

mod ask;

use hotcell_domain::{Caller, rfc3339};
use hotcell_service::{EgressMeans, EgressQuestion, EgressVerdict};
use rmcp::ErrorData;
use rmcp::model::CustomResult;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub(crate) use ask::HostQuestions;

use crate::Server;
use crate::tools::ToolError;

/// The name of the request. Its parameters are an [`EgressRequest`], its answer has `questions`.
pub const EGRESS_METHOD: &str = "hotcell/egress";

/// No id and no host is longer.
const TARGET_BYTES_MAX: usize = 256;

/// What to do with questions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
pub enum EgressRequest {
    /// Answers those that are open.
    Pending,
    /// Answers those that are meant, and answers with them.
    Answer {
        /// The id of one, or a host.
        target: String,
        /// What to answer.
        verdict: EgressAnswer,
    },
}

/// An answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EgressAnswer {
    /// Connections pass for the container's life.
    Allow,
    /// One connection passes.
    AllowOnce,
    /// Connections are refused for the container's life.
    Deny,
}

impl From<EgressAnswer> for EgressVerdict {
    fn from(answer: EgressAnswer) -> Self {
        match answer {
            EgressAnswer::Allow => Self::Allow,
            EgressAnswer::AllowOnce => Self::AllowOnce,
            EgressAnswer::Deny => Self::Deny,
        }
    }
}

/// Answers about the containers that the service lets this caller decide for.
pub(crate) async fn answer(
    server: &Server,
    caller: &Caller,
    params: Option<Value>,
) -> Result<CustomResult, ErrorData> {
    let request = serde_json::from_value(params.unwrap_or_default());
    let request = request.map_err(|_| {
        let message = "`op` is `pending`, or `answer` with `target` and `verdict` (`allow`, `allow_once`, `deny`)";
        ErrorData::invalid_params(message, None)
    })?;
    let service = server.service();
    let questions = match request {
        EgressRequest::Pending => Ok(service.egress_questions(caller)),
        EgressRequest::Answer { target, verdict } => {
            let target = crate::text::truncate(&target, TARGET_BYTES_MAX);
            let answered = service.answer_egress(caller, target, verdict.into(), EgressMeans::Cli);
            answered.await
        }
    };
    let questions = questions.map_err(|error| ToolError::from(error).into_protocol())?;
    let questions: Vec<Value> = questions.iter().map(shown).collect();
    Ok(CustomResult(json!({ "questions": questions })))
}

fn shown(question: &EgressQuestion) -> Value {
    json!({
        "id": question.id,
        "container_id": question.container.as_str(),
        "principal": question.principal.as_str(),
        "profile": question.profile,
        "host": question.host,
        "port": question.port,
        "asked_at": rfc3339(question.asked_unix_ms),
    })
}
