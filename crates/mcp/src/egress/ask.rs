//! Asks the user of an open call about hosts that containers of the caller wait for.
//!
//! One form after another, each for one question. Whatever the user does not decide stays with
//! `hotcell egress allow` and `deny`.

use std::time::Duration;

use hotcell_domain::Caller;
use hotcell_service::{EgressMeans, EgressOffer, EgressQuestion, Service};
use serde::Deserialize as _;
use serde_json::json;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::Instrument as _;

use super::EgressAnswer;
use crate::asking::{Filled, Form, Forms};
use crate::text::truncate;

/// Forms of one call. Clients give up a call after some ten rounds, and so does somebody who is
/// asked again and again.
const FORMS_MAX: usize = 8;

/// Most bytes of a name in a form: longer than every host name and every alias.
const NAME_BYTES_MAX: usize = 253;

/// How long the end of a call waits until an answer that has arrived is recorded.
const RECORD_TIMEOUT: Duration = Duration::from_secs(5);

/// Asks the user of one call. Dropped, it withdraws the form that is open.
pub(crate) struct HostQuestions {
    over: DropGuard,
    task: JoinHandle<()>,
}

impl HostQuestions {
    /// Asks until it ends, or for so many forms.
    pub(crate) fn ask(service: &Service, caller: &Caller, forms: Forms) -> Self {
        let over = CancellationToken::new();
        let user = User {
            service: service.clone(),
            caller: caller.clone(),
            forms,
            over: over.clone(),
        };
        let asking = async move { user.ask_all().await };
        Self {
            over: over.drop_guard(),
            task: tokio::spawn(asking.in_current_span()),
        }
    }

    /// Withdraws the form that is open. What the user has answered already is recorded: in rounds,
    /// the work may have ended while the form was shown.
    pub(crate) async fn end(self) {
        drop(self.over);
        let _ = tokio::time::timeout(RECORD_TIMEOUT, self.task).await;
    }
}

/// Whom one call can ask.
struct User {
    service: Service,
    caller: Caller,
    forms: Forms,
    /// Cancelled when the call ends.
    over: CancellationToken,
}

/// What became of a form.
enum Outcome {
    Answered,
    /// The user did not decide.
    Left,
    /// Somebody else has decided, or nobody needs to.
    Closed,
    /// The user cannot be asked, or the call has ended.
    Nobody,
}

impl User {
    async fn ask_all(&self) {
        for _ in 0..FORMS_MAX {
            let offer = tokio::select! {
                biased;
                () = self.over.cancelled() => return,
                offer = self.service.next_egress_offer(&self.caller) => offer,
            };
            match self.ask(&offer).await {
                Outcome::Answered | Outcome::Closed => {}
                Outcome::Left => offer.decline(),
                Outcome::Nobody => return,
            }
        }
    }

    async fn ask(&self, offer: &EgressOffer) -> Outcome {
        let question = offer.question();
        // An earlier answer counts, and one that has arrived is not lost.
        let filled = tokio::select! {
            biased;
            () = offer.closed() => return Outcome::Closed,
            filled = self.forms.ask(form(question)) => filled,
            () = self.over.cancelled() => return Outcome::Nobody,
        };
        let answer = match &filled {
            Filled::Nobody => return Outcome::Nobody,
            Filled::Declined => return Outcome::Left,
            Filled::Sent(content) => EgressAnswer::deserialize(&content["answer"]),
        };
        match answer {
            Ok(answer) => self.record(question, answer).await,
            Err(_) => Outcome::Left,
        }
    }

    async fn record(&self, question: &EgressQuestion, answer: EgressAnswer) -> Outcome {
        let (service, means) = (&self.service, EgressMeans::Elicitation);
        let answered = service.answer_egress(&self.caller, &question.id, answer.into(), means);
        match answered.await {
            Ok(_) => Outcome::Answered,
            Err(error) => {
                tracing::warn!(question = %question.id, %error, "could not record an answer about a host");
                Outcome::Left
            }
        }
    }
}

/// The form that the user sees. The host is the words of whatever runs in the container, so it is
/// quoted, on a line of its own.
fn form(question: &EgressQuestion) -> Form {
    // Escapes control characters and whatever changes the direction of a text.
    let quoted = |text: &str| format!("{:?}", truncate(text, NAME_BYTES_MAX));
    let id = &question.container;
    let container = match &question.container_name {
        Some(name) => format!("{} ({id})", quoted(name)),
        None => id.to_string(),
    };
    let message = format!(
        "A program in a container wants to connect to a host that its egress profile does not list. \
         The program chose the host and may be hostile: allow only what you expect.\n\
         host: {}\nport: {}\ncontainer: {container}\nprofile: {}",
        quoted(&question.host),
        question.port,
        quoted(&question.profile),
    );
    let schema = json!({
        "type": "object",
        "properties": {
            "answer": {
                "type": "string",
                "title": "Your answer",
                "description": "allow_once: one connection. allow: all connections to this host until the container ends. deny: none until the container ends.",
                "enum": ["allow_once", "allow", "deny"],
            },
        },
        "required": ["answer"],
    });
    Form { message, schema }
}

#[cfg(test)]
mod tests {
    use hotcell_domain::{ContainerId, Principal};

    use super::*;

    fn question(host: &str, name: Option<&str>) -> EgressQuestion {
        EgressQuestion {
            id: "q_0123456789".to_owned(),
            container: ContainerId::parse("c_01hzy00000000000000000000a").expect("an id"),
            container_name: name.map(str::to_owned),
            principal: Principal::local(),
            profile: "work".to_owned(),
            host: host.to_owned(),
            port: 443,
            asked_unix_ms: 0,
        }
    }

    #[test]
    fn a_form_says_who_asks_for_which_host_and_that_it_may_be_hostile() {
        let form = form(&question("new.example.com", Some("cell")));
        insta::assert_snapshot!(form.message, @r#"
        A program in a container wants to connect to a host that its egress profile does not list. The program chose the host and may be hostile: allow only what you expect.
        host: "new.example.com"
        port: 443
        container: "cell" (c_01hzy00000000000000000000a)
        profile: "work"
        "#);
    }

    #[test]
    fn what_a_form_quotes_is_one_short_line() {
        let host = format!("a\nhost: \u{1b}[31m{}", "b".repeat(1000));
        let message = form(&question(&host, None)).message;
        let lines: Vec<&str> = message.lines().collect();
        assert_eq!(lines.len(), 5, "{message}");
        assert!(
            lines[1].starts_with(r#"host: "a\nhost: \u{1b}[31mb"#),
            "{message}"
        );
        assert!(lines[1].len() < 300, "{message}");
    }

    #[test]
    fn the_choices_are_those_of_the_command_line() {
        let form = form(&question("new.example.com", None));
        let choices = form.schema["properties"]["answer"]["enum"].clone();
        let choices: Vec<EgressAnswer> = serde_json::from_value(choices).expect("all are known");
        assert_eq!(
            choices,
            [
                EgressAnswer::AllowOnce,
                EgressAnswer::Allow,
                EgressAnswer::Deny
            ]
        );
    }
}
