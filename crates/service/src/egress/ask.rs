//! Questions about names that are not listed: who sees them, and who may answer.

use std::sync::Arc;
use std::time::UNIX_EPOCH;

use hotcell_domain::{Caller, ContainerId, Principal};
use hotcell_egress::{HostName, Question, Verdict};

use crate::container::LiveContainer;
use crate::environment::millis;
use crate::status::WHOLE;
use crate::{Action, Inner, Service, ServiceError};

/// How ids of questions begin. No host name does, because those have dots.
const ID_PREFIX: &str = "q_";

/// How principals of this machine are named, besides that of the server's own user.
const USER_PREFIX: &str = "user:";

/// A connection of a container that waits for somebody's word, or has waited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressQuestion {
    /// Its id.
    pub id: String,
    /// The container.
    pub container: ContainerId,
    /// Its alias or its session, if it has one.
    pub container_name: Option<String>,
    /// The container's owner.
    pub principal: Principal,
    /// Its profile.
    pub profile: String,
    /// The host that it wants.
    pub host: String,
    /// The port of the connection that asked.
    pub port: u16,
    /// When it asked.
    pub asked_unix_ms: u64,
}

/// How somebody was reached who answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EgressMeans {
    /// The command line, or another client that sends its request.
    Cli,
    /// A form that the client of an open call showed.
    Elicitation,
}

impl EgressMeans {
    fn as_str(self) -> &'static str {
        match self {
            Self::Cli => "cli",
            Self::Elicitation => "elicitation",
        }
    }
}

impl Service {
    /// The questions that nobody has answered: of the caller's containers, and for an admin of this
    /// machine of all.
    pub fn egress_questions(&self, caller: &Caller) -> Vec<EgressQuestion> {
        let (operation, inner) = self.begin(caller, Action::SystemStatus, &WHOLE);
        let mut questions: Vec<_> = inner
            .askers(caller)
            .iter()
            .flat_map(open_questions)
            .collect();
        questions.sort_by_key(|question| question.asked_unix_ms);
        // A read-only operation does not wait for its audit event.
        drop(operation.end());
        questions
    }

    /// Answers a question by its id, or all that there are about a host. What the caller would not be
    /// shown does not exist.
    pub async fn answer_egress(
        &self,
        caller: &Caller,
        target: &str,
        verdict: Verdict,
        means: EgressMeans,
    ) -> Result<Vec<EgressQuestion>, ServiceError> {
        let (mut operation, inner) = self.begin(caller, Action::EgressAnswer, &target);
        operation.note(|arguments| {
            arguments.text("verdict", verdict_word(verdict));
            arguments.text("by", means.as_str());
        });
        let (answered, mut operation) = operation
            .open(async { inner.answer_egress(caller, target, verdict) })
            .await?;
        operation.note(|arguments| {
            let containers = answered.iter().map(|question| question.container.as_str());
            arguments.names("containers", containers);
            let hosts = answered.iter().map(|question| question.host.as_str());
            arguments.names("hosts", hosts);
        });
        operation.end().written().await?;
        Ok(answered)
    }
}

impl Inner {
    fn answer_egress(
        &self,
        caller: &Caller,
        target: &str,
        verdict: Verdict,
    ) -> Result<Vec<EgressQuestion>, ServiceError> {
        let is_meant = meant(target)?;
        let mut answered = Vec::new();
        for container in self.askers(caller) {
            let Some((egress, guest)) = container.egress().and_then(|egress| {
                let guest = egress.guest()?;
                Some((egress, guest))
            }) else {
                continue;
            };
            for question in guest.answer_questions(&is_meant, verdict) {
                let metrics = &self.environment.metrics.egress;
                metrics.asked(egress.profile(), verdict_word(verdict));
                answered.push(view(&container, question));
            }
        }
        if answered.is_empty() {
            return Err(ServiceError::NotFound {
                what: "egress question",
                name: target.to_owned(),
            });
        }
        Ok(answered)
    }

    /// The containers whose questions a caller sees and answers. An admin elsewhere sees only its own:
    /// who lets containers of others out sits at this machine.
    fn askers(&self, caller: &Caller) -> Vec<Arc<LiveContainer>> {
        let principal = caller.principal.as_str();
        let is_here = principal == Principal::LOCAL || principal.starts_with(USER_PREFIX);
        if caller.is_admin && is_here {
            return self.registry.all();
        }
        self.registry.owned_by(&caller.principal)
    }
}

/// What a text means: an id, or a host.
fn meant(target: &str) -> Result<impl Fn(&Question) -> bool, ServiceError> {
    let host = (!target.starts_with(ID_PREFIX)).then(|| HostName::parse(target));
    let host = host.transpose().map_err(|error| ServiceError::Invalid {
        reason: format!("name a question by its id (q_…) or its host: {error}"),
    })?;
    let id = target.to_owned();
    Ok(move |question: &Question| match &host {
        Some(host) => question.host == *host,
        None => question.id == id,
    })
}

fn open_questions(container: &Arc<LiveContainer>) -> Vec<EgressQuestion> {
    let guest = container.egress().and_then(|egress| egress.guest());
    let questions = guest.map(|guest| guest.questions()).unwrap_or_default();
    let questions = questions.into_iter();
    questions
        .map(|question| view(container, question))
        .collect()
}

pub(super) fn view(container: &LiveContainer, question: Question) -> EgressQuestion {
    let asked = question.asked_at.duration_since(UNIX_EPOCH);
    let row = &container.row;
    let (profile, session) = (row.egress.as_ref(), row.session.as_ref());
    let alias = row.alias.as_ref().map(|alias| alias.as_str().to_owned());
    EgressQuestion {
        id: question.id,
        container: container.id().clone(),
        container_name: alias.or_else(|| session.map(ToString::to_string)),
        principal: row.principal.clone(),
        profile: profile.map(ToString::to_string).unwrap_or_default(),
        host: question.host.to_string(),
        port: question.port,
        asked_unix_ms: millis(asked.unwrap_or_default()),
    }
}

fn verdict_word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::AllowOnce => "allowed_once",
        Verdict::Allow => "allowed",
        Verdict::Deny => "denied",
    }
}
