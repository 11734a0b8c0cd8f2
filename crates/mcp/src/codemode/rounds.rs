//! Asking the user of a client that takes no requests: in rounds.
//!
//! ```text
//! tools/call ──▶ the script runs ──▶ a call asks ──▶ answer: input required, with a state
//! tools/call with state and input ──▶ the script goes on ──▶ … ──▶ answer
//! ```
//!
//! Between two rounds the script waits in a container, and [`SuspendedRuns`] keeps what belongs to
//! it under a state that nobody can guess and that leads to it once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use hotcell_codemode::{Asked, Asker, Question, Run};
use hotcell_domain::Principal;
use rmcp::model::{
    CallToolRequestParams, ElicitationAction, InputRequest, InputRequests, InputRequiredResult,
    InputResponses,
};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio_util::task::AbortOnDropHandle;

use super::ask::{DECISION_TIMEOUT, decided, request};

/// Questions of one round. Clients give up after some ten rounds, so they go together.
const QUESTIONS_MAX: usize = 16;

/// How long a round waits for questions that are asked together.
const GATHER_TIME: Duration = Duration::from_millis(20);

/// Runs that wait for decisions: of all principals, and of one.
const RUNS_MAX: usize = 256;
const RUNS_OF_PRINCIPAL_MAX: usize = 16;

/// A question of a script that waits for its answer.
pub(crate) struct Pending {
    question: Question,
    answer: oneshot::Sender<Asked>,
}

/// Keeps questions for the next round.
pub(super) struct RoundsAsker(mpsc::Sender<Pending>);

impl RoundsAsker {
    pub(super) fn channel() -> (Self, mpsc::Receiver<Pending>) {
        let (sender, receiver) = mpsc::channel(QUESTIONS_MAX);
        (Self(sender), receiver)
    }
}

#[async_trait]
impl Asker for RoundsAsker {
    async fn ask(&self, question: Question) -> Asked {
        let (answer, answered) = oneshot::channel();
        if self.0.send(Pending { question, answer }).await.is_err() {
            return Asked::Nobody;
        }
        answered.await.unwrap_or(Asked::No)
    }
}

/// Questions that go to the user together.
pub(crate) struct Round(Vec<Pending>);

impl Round {
    /// The next questions; waits for ever if there are none.
    pub(crate) async fn next(questions: &mut mpsc::Receiver<Pending>) -> Self {
        let Some(first) = questions.recv().await else {
            return std::future::pending().await;
        };
        let mut round = vec![first];
        let more = async {
            while round.len() < QUESTIONS_MAX
                && let Some(pending) = questions.recv().await
            {
                round.push(pending);
            }
        };
        let _ = tokio::time::timeout(GATHER_TIME, more).await;
        Self(round)
    }

    /// What the client is answered.
    pub(crate) fn input_required(&self, state: String) -> InputRequiredResult {
        let forms = self.0.iter().enumerate();
        let forms = forms.filter_map(|(number, pending)| {
            let form = request(&pending.question)?;
            Some((key(number), InputRequest::Elicitation(form)))
        });
        InputRequiredResult::new(Some(forms.collect::<InputRequests>()), Some(state))
    }

    /// Answers the questions. What the client left out is declined.
    pub(crate) fn answer(self, responses: &InputResponses) {
        for (number, pending) in self.0.into_iter().enumerate() {
            let response = responses.get(&key(number));
            // A script that did not wait has ended, or given up this call.
            let _ = pending.answer.send(response.map_or(Asked::No, said));
        }
    }

    /// Answers that nobody can be asked.
    pub(crate) fn refuse(self) {
        for pending in self.0 {
            let _ = pending.answer.send(Asked::Nobody);
        }
    }
}

fn key(number: usize) -> String {
    format!("call_{}", number + 1)
}

fn said(response: &Value) -> Asked {
    let action = serde_json::from_value::<ElicitationAction>(response["action"].clone());
    action.map_or(Asked::No, |action| {
        decided(&action, response["content"].get("allow"))
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

/// Runs between two rounds.
pub(crate) struct SuspendedRuns<T>(Arc<Mutex<Entries<T>>>);

/// By their states.
type Entries<T> = HashMap<String, Entry<T>>;

struct Entry<T> {
    principal: Principal,
    running: T,
    round: Round,
    _expiry: AbortOnDropHandle<()>,
}

impl<T: Send + 'static> SuspendedRuns<T> {
    /// Keeps a run until its round is answered, for ten minutes at most; then it is dropped.
    /// Returns the answer that asks for the round, or the run if there is no room for it.
    pub(crate) fn keep(
        &self,
        principal: &Principal,
        running: T,
        round: Round,
    ) -> Result<InputRequiredResult, (T, Round)> {
        let (_, state) = Run::new_id();
        let mut all = lock(&self.0);
        let of_principal = all.values().filter(|one| one.principal == *principal);
        if all.len() >= RUNS_MAX || of_principal.count() >= RUNS_OF_PRINCIPAL_MAX {
            return Err((running, round));
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
            running,
            round,
            _expiry: AbortOnDropHandle::new(expiry),
        };
        all.insert(state, entry);
        Ok(answer)
    }

    /// The run that waits under this state, if it is the principal's and `is_meant`.
    pub(crate) fn take(
        &self,
        principal: &Principal,
        state: &str,
        is_meant: impl FnOnce(&T) -> bool,
    ) -> Option<(T, Round)> {
        let mut all = lock(&self.0);
        let entry = all.get(state)?;
        if entry.principal != *principal || !is_meant(&entry.running) {
            return None;
        }
        let entry = all.remove(state)?;
        Some((entry.running, entry.round))
    }
}

impl<T> Default for SuspendedRuns<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

fn lock<T>(all: &Mutex<Entries<T>>) -> MutexGuard<'_, Entries<T>> {
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

    /// A round with so many questions, and where their answers come.
    fn round(questions: usize) -> (Round, Vec<oneshot::Receiver<Asked>>) {
        let question = Question {
            server: "s".to_owned(),
            tool: "t".to_owned(),
            arguments: "{}".to_owned(),
            reason: "r".to_owned(),
        };
        let one = |_| {
            let (answer, answered) = oneshot::channel();
            let question = question.clone();
            (Pending { question, answer }, answered)
        };
        let (pending, answers) = (0..questions).map(one).unzip();
        (Round(pending), answers)
    }

    fn kept(all: &SuspendedRuns<u8>, owner: &Principal) -> String {
        let answer = all.keep(owner, 7, round(1).0).ok().expect("there is room");
        answer.request_state.expect("it has a state")
    }

    #[tokio::test]
    async fn a_state_leads_its_own_principal_to_its_run_once() {
        let all = SuspendedRuns::default();
        let (ann, bob) = (principal("ann"), principal("bob"));
        let state = kept(&all, &ann);
        assert!(all.take(&bob, &state, |_| true).is_none());
        assert!(all.take(&ann, "0", |_| true).is_none());
        assert!(
            all.take(&ann, &state, |_| false).is_none(),
            "another script"
        );
        assert_eq!(all.take(&ann, &state, |_| true).map(|it| it.0), Some(7));
        assert!(all.take(&ann, &state, |_| true).is_none());
    }

    #[tokio::test]
    async fn a_principal_keeps_so_many_runs_and_another_is_not_affected() {
        let all = SuspendedRuns::default();
        let (ann, bob) = (principal("ann"), principal("bob"));
        for _ in 0..RUNS_OF_PRINCIPAL_MAX {
            kept(&all, &ann);
        }
        assert!(all.keep(&ann, 7, round(1).0).is_err());
        kept(&all, &bob);
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_that_nobody_decides_on_is_dropped_and_its_questions_with_it() {
        let all = SuspendedRuns::default();
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
        assert!(all.take(&ann, &state, |_| true).is_none());
    }

    #[tokio::test]
    async fn only_a_form_that_allows_is_a_yes() {
        let said = [
            json!({"action": "accept", "content": {"allow": true}}),
            json!({"action": "accept", "content": {"allow": false}}),
            json!({"action": "accept"}),
            json!({"action": "decline", "content": {"allow": true}}),
            json!({"action": "accept", "content": {"allow": "true"}}),
            json!(7),
        ];
        let (round, answers) = round(said.len() + 1);
        let forms = round.input_required("s".to_owned()).input_requests;
        assert_eq!(forms.map(|forms| forms.len()), Some(7));
        let said = said.into_iter().enumerate();
        round.answer(&said.map(|(number, value)| (key(number), value)).collect());
        for (number, answer) in answers.into_iter().enumerate() {
            let expected = if number == 0 { Asked::Yes } else { Asked::No };
            assert_eq!(answer.await, Ok(expected), "{number}");
        }
    }
}
