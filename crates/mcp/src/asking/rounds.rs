//! Asking the user of a client that takes no requests (since 2026-07-28): in rounds.
//!
//! ```text
//! tools/call ──▶ the work runs ──▶ a form ──▶ answer: input required, with a state
//! tools/call with state and input ──▶ the work goes on ──▶ … ──▶ answer
//! ```
//!
//! Between two rounds the work goes on or waits, and [`Suspended`] keeps what belongs to it under a
//! state that nobody can guess and that leads to it once.

use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hotcell_codemode::Run;
use hotcell_domain::Principal;
use rmcp::model::{
    CallToolRequestParams, ElicitationAction, InputRequest, InputRequests, InputRequiredResult,
    InputResponses,
};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio_util::task::AbortOnDropHandle;

use super::{DECISION_TIMEOUT, Filled, Form, NextRound};

/// Forms of one round. Clients give up after some ten rounds, so those that come together go
/// together.
pub(super) const FORMS_MAX: usize = 16;

/// How long a round waits for forms that come together.
const GATHER_TIME: Duration = Duration::from_millis(20);

/// Calls that wait for decisions: of all principals, and of one.
const CALLS_MAX: usize = 256;
const CALLS_OF_PRINCIPAL_MAX: usize = 16;

/// A form that waits for its answer.
pub(crate) struct Pending {
    form: Form,
    answer: oneshot::Sender<Filled>,
}

/// Keeps a form for the next round, and waits for its answer.
pub(super) async fn ask(next: &mpsc::Sender<Pending>, form: Form) -> Filled {
    let (answer, answered) = oneshot::channel();
    if next.send(Pending { form, answer }).await.is_err() {
        return Filled::Nobody;
    }
    answered.await.unwrap_or(Filled::Declined)
}

/// Forms that go to the user together.
pub(crate) struct Round(Vec<Pending>);

impl Round {
    /// The next forms; waits for ever if there are none.
    pub(crate) async fn next(forms: &mut NextRound) -> Self {
        loop {
            let Some(first) = forms.0.recv().await else {
                return std::future::pending().await;
            };
            let mut round = vec![first];
            let more = async {
                while round.len() < FORMS_MAX
                    && let Some(pending) = forms.0.recv().await
                {
                    round.push(pending);
                }
            };
            let _ = tokio::time::timeout(GATHER_TIME, more).await;
            // Forms may have been withdrawn while nobody attended to the call.
            round.retain(|pending| !pending.answer.is_closed());
            if !round.is_empty() {
                return Self(round);
            }
        }
    }

    /// What the client is answered.
    pub(crate) fn input_required(&self, state: String) -> InputRequiredResult {
        let forms = self.0.iter().enumerate();
        let forms = forms.filter_map(|(number, pending)| {
            let form = pending.form.to_request()?;
            Some((key(number), InputRequest::Elicitation(form)))
        });
        InputRequiredResult::new(Some(forms.collect::<InputRequests>()), Some(state))
    }

    /// Answers the forms. What the client left out is declined.
    pub(crate) fn answer(self, responses: &InputResponses) {
        for (number, pending) in self.0.into_iter().enumerate() {
            let response = responses.get(&key(number));
            // Who asked may have ended meanwhile, or know the answer from elsewhere.
            let _ = pending
                .answer
                .send(response.map_or(Filled::Declined, filled));
        }
    }

    /// Answers that nobody can be asked.
    pub(crate) fn refuse(self) {
        for pending in self.0 {
            let _ = pending.answer.send(Filled::Nobody);
        }
    }
}

fn key(number: usize) -> String {
    format!("form_{}", number + 1)
}

fn filled(response: &Value) -> Filled {
    let action = serde_json::from_value::<ElicitationAction>(response["action"].clone());
    action.map_or(Filled::Declined, |action| {
        Filled::new(&action, response.get("content").cloned())
    })
}

/// The second and later rounds of a request, as the client sends them.
#[derive(Debug)]
pub(crate) struct Repeated {
    pub(crate) state: String,
    pub(crate) responses: InputResponses,
}

impl Repeated {
    /// Takes them out of a request.
    pub(crate) fn take(request: &mut CallToolRequestParams) -> Option<Self> {
        Some(Self {
            state: request.request_state.take()?,
            responses: request.input_responses.take().unwrap_or_default(),
        })
    }
}

/// The work of calls between two rounds, of every type: see [`super::Ongoing`].
#[derive(Default)]
pub(crate) struct Suspended(Arc<Mutex<Entries>>);

/// By their states.
type Entries = HashMap<String, Entry>;

struct Entry {
    principal: Principal,
    work: Box<dyn Any + Send>,
    round: Round,
    _expiry: AbortOnDropHandle<()>,
}

impl Suspended {
    /// Keeps work until its round is answered, for ten minutes at most; then it is dropped.
    /// Returns the answer that asks for the round, or the work if there is no room for it.
    pub(crate) fn keep<T: Send + 'static>(
        &self,
        principal: &Principal,
        work: T,
        round: Round,
    ) -> Result<InputRequiredResult, (T, Round)> {
        let (_, state) = Run::new_id();
        let mut all = lock(&self.0);
        let of_principal = all.values().filter(|one| one.principal == *principal);
        if all.len() >= CALLS_MAX || of_principal.count() >= CALLS_OF_PRINCIPAL_MAX {
            return Err((work, round));
        }
        let (table, key) = (Arc::downgrade(&self.0), state.clone());
        let expiry = tokio::spawn(async move {
            tokio::time::sleep(DECISION_TIMEOUT).await;
            let expired = table.upgrade().and_then(|table| lock(&table).remove(&key));
            drop(expired);
        });
        let answer = round.input_required(state.clone());
        let entry = Entry {
            principal: principal.clone(),
            work: Box::new(work),
            round,
            _expiry: AbortOnDropHandle::new(expiry),
        };
        all.insert(state, entry);
        Ok(answer)
    }

    /// Answers the round under the state of a repeated request and returns the work, if it is the
    /// principal's, of this type, and `is_meant`.
    pub(crate) fn resume<T: Send + 'static>(
        &self,
        principal: &Principal,
        repeated: &Repeated,
        is_meant: impl FnOnce(&T) -> bool,
    ) -> Option<T> {
        let (work, round) = self.take(principal, &repeated.state, is_meant)?;
        round.answer(&repeated.responses);
        Some(work)
    }

    fn take<T: Send + 'static>(
        &self,
        principal: &Principal,
        state: &str,
        is_meant: impl FnOnce(&T) -> bool,
    ) -> Option<(T, Round)> {
        let mut all = lock(&self.0);
        let entry = all.get(state)?;
        let work = entry.work.downcast_ref::<T>()?;
        if entry.principal != *principal || !is_meant(work) {
            return None;
        }
        let entry = all.remove(state)?;
        let work = entry.work.downcast::<T>().ok()?;
        Some((*work, entry.round))
    }
}

fn lock(all: &Mutex<Entries>) -> MutexGuard<'_, Entries> {
    all.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hotcell_domain::Name;
    use serde_json::json;

    fn principal(name: &str) -> Principal {
        Principal::new(Name::parse(name).expect("a name"))
    }

    fn form() -> Form {
        Form {
            message: "may it?".to_owned(),
            schema: json!({ "type": "object", "properties": {} }),
        }
    }

    /// A round with so many forms, and where their answers come.
    fn round(forms: usize) -> (Round, Vec<oneshot::Receiver<Filled>>) {
        let one = |_| {
            let (answer, answered) = oneshot::channel();
            let form = form();
            (Pending { form, answer }, answered)
        };
        let (pending, answers) = (0..forms).map(one).unzip();
        (Round(pending), answers)
    }

    fn kept(all: &Suspended, owner: &Principal) -> String {
        let answer = all.keep(owner, 7_u8, round(1).0);
        let answer = answer.ok().expect("there is room");
        answer.request_state.expect("it has a state")
    }

    #[tokio::test]
    async fn a_state_leads_its_own_principal_to_its_work_once() {
        let all = Suspended::default();
        let (ann, bob) = (principal("ann"), principal("bob"));
        let state = kept(&all, &ann);
        let take = |who, state: &str, is_meant| all.take::<u8>(who, state, |_| is_meant);
        assert!(take(&bob, &state, true).is_none());
        assert!(take(&ann, "0", true).is_none());
        assert!(take(&ann, &state, false).is_none(), "another call");
        let of_another_tool = all.take::<u16>(&ann, &state, |_| true);
        assert!(of_another_tool.is_none());
        assert_eq!(take(&ann, &state, true).map(|it| it.0), Some(7));
        assert!(take(&ann, &state, true).is_none());
    }

    #[tokio::test]
    async fn a_principal_keeps_so_many_calls_and_another_is_not_affected() {
        let all = Suspended::default();
        let (ann, bob) = (principal("ann"), principal("bob"));
        for _ in 0..CALLS_OF_PRINCIPAL_MAX {
            kept(&all, &ann);
        }
        assert!(all.keep(&ann, 7, round(1).0).is_err());
        kept(&all, &bob);
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_nobody_decides_on_is_dropped_and_its_forms_with_it() {
        let all = Suspended::default();
        let ann = principal("ann");
        let (round, mut answers) = round(1);
        let answer = all.keep(&ann, 7, round).ok().expect("there is room");
        tokio::time::sleep(DECISION_TIMEOUT / 2).await;
        assert!(
            answers[0]
                .try_recv()
                .is_err_and(|it| it == oneshot::error::TryRecvError::Empty)
        );
        tokio::time::sleep(DECISION_TIMEOUT).await;
        assert!(answers.remove(0).await.is_err());
        let state = answer.request_state.expect("it has a state");
        assert!(all.take::<i32>(&ann, &state, |_| true).is_none());
    }

    #[tokio::test]
    async fn a_form_that_is_not_sent_is_declined() {
        let said = [
            json!({"action": "accept", "content": {"allow": true}}),
            json!({"action": "accept"}),
            json!({"action": "decline", "content": {"allow": true}}),
            json!({"action": "cancel"}),
            json!(7),
        ];
        let (round, answers) = round(said.len() + 1);
        let forms = round.input_required("s".to_owned()).input_requests;
        assert_eq!(forms.map(|forms| forms.len()), Some(6));
        let said = said.into_iter().enumerate();
        round.answer(&said.map(|(number, value)| (key(number), value)).collect());
        let mut filled = Vec::new();
        for answer in answers {
            filled.push(answer.await.expect("it is answered"));
        }
        let sent = [json!({"allow": true}), Value::Null].map(Filled::Sent);
        assert_eq!(filled[..2], sent);
        assert_eq!(filled[2..], vec![Filled::Declined; 4]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_form_that_was_withdrawn_is_in_no_round() {
        let (sender, receiver) = mpsc::channel(FORMS_MAX);
        let mut next = NextRound(receiver);
        drop(tokio::time::timeout(GATHER_TIME, ask(&sender, form())).await);
        let waiting = tokio::spawn(async move { ask(&sender, form()).await });
        let round = Round::next(&mut next).await;
        assert_eq!(round.0.len(), 1);
        round.refuse();
        assert_eq!(waiting.await.expect("it is answered"), Filled::Nobody);
    }
}
