//! Questions about names that are not listed, and their answers.
//!
//! ```text
//! connection ─▶ not listed ─▶ question ─▶ held ─┬─ allowed: goes on, as with an entry of `allow`
//!                                               └─ denied, or nobody answers in time: 403
//! ```
//!
//! Only what is plainly not listed becomes a question, on the ports of an entry without a port. The
//! connection has said which name it wants, so that nothing about the name leaves the host before the
//! answer. A container has one question per host. Answers end with the container.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use crate::HostName;
use crate::denial::Reason;
use crate::guest::Guest;
use crate::pattern::PORTS_DEFAULT;
use crate::policy::{Grant, Profile, Refusal};

/// Open questions of all containers together, and of one. What is asked beyond is refused.
pub(crate) const QUESTIONS_MAX: usize = 256;
const QUESTIONS_OF_ONE_MAX: usize = 16;
/// Hosts of one container with a question or an answer.
const HOSTS_MAX: usize = 1024;
/// How long a question stays open. Connections wait for less, but may come back.
const QUESTION_LIFE: Duration = Duration::from_mins(10);

/// Whether a container may reach a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Names it among those of all containers.
    pub id: String,
    /// The host.
    pub host: HostName,
    /// The port of the connection that asked first.
    pub port: u16,
    /// When it asked.
    pub asked_at: SystemTime,
}

/// What somebody answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// One connection may pass.
    AllowOnce,
    /// Connections pass for the container's life.
    Allow,
    /// Connections are refused for the container's life.
    Deny,
}

/// Why a connection may pass, apart from the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passage {
    /// It needs an entry, or an answer for the container's life.
    Listed,
    /// Somebody let through this one connection.
    Once,
}

/// The questions and answers of one container.
#[derive(Debug, Default)]
pub(crate) struct Asked(HashMap<HostName, Entry>);

#[derive(Debug)]
struct Entry {
    question: Question,
    since: Instant,
    state: State,
}

#[derive(Debug)]
enum State {
    Open {
        /// Somebody is being asked by a form, or has closed it.
        is_taken: bool,
        _permit: OwnedSemaphorePermit,
    },
    Answered(Verdict),
}

/// How a name stands when a connection asks for it.
enum Standing {
    Answered(Verdict),
    /// Asked at that time, just now if there is a question.
    Open(Instant, Option<Question>),
    /// There are too many questions.
    Full,
}

impl Asked {
    fn verdict(&self, name: &HostName) -> Option<Verdict> {
        match self.0.get(name)?.state {
            State::Answered(verdict) => Some(verdict),
            State::Open { .. } => None,
        }
    }

    /// Whether every connection to a name passes.
    pub(crate) fn is_allowed(&self, name: &HostName) -> bool {
        self.verdict(name) == Some(Verdict::Allow)
    }

    /// Takes what somebody has answered, or asks. Permission for one connection is used up.
    fn stand(&mut self, name: &HostName, port: u16, server: &Arc<Semaphore>) -> Standing {
        self.expire();
        match self.verdict(name) {
            Some(Verdict::AllowOnce) => {
                self.0.remove(name);
                return Standing::Answered(Verdict::AllowOnce);
            }
            Some(verdict) => return Standing::Answered(verdict),
            None => {}
        }
        if let Some(entry) = self.0.get(name) {
            return Standing::Open(entry.since, None);
        }
        if self.0.len() >= HOSTS_MAX || self.open().count() >= QUESTIONS_OF_ONE_MAX {
            return Standing::Full;
        }
        let Ok(permit) = Arc::clone(server).try_acquire_owned() else {
            return Standing::Full;
        };
        let (question, since) = (Question::new(name, port), Instant::now());
        let entry = Entry {
            question: question.clone(),
            since,
            state: State::Open {
                is_taken: false,
                _permit: permit,
            },
        };
        self.0.insert(name.clone(), entry);
        Standing::Open(since, Some(question))
    }

    fn open(&self) -> impl Iterator<Item = &Question> {
        let open = self.0.values();
        let open = open.filter(|entry| matches!(entry.state, State::Open { .. }));
        open.map(|entry| &entry.question)
    }

    /// Takes the oldest question that nobody has taken.
    fn take(&mut self) -> Option<Question> {
        self.expire();
        let entries = self.0.values_mut();
        let free = entries.filter(|entry| entry.is_free());
        let oldest = free.min_by_key(|entry| entry.since)?;
        oldest.set_taken(true);
        Some(oldest.question.clone())
    }

    fn give_back(&mut self, id: &str) {
        let mut entries = self.0.values_mut();
        if let Some(entry) = entries.find(|entry| entry.question.id == id) {
            entry.set_taken(false);
        }
    }

    /// When an open question becomes too old to be answered.
    fn closes_at(&self, id: &str) -> Option<Instant> {
        let mut entries = self.0.values();
        let entry = entries.find(|entry| entry.question.id == id)?;
        let is_open = matches!(entry.state, State::Open { .. });
        is_open.then(|| entry.since + QUESTION_LIFE)
    }

    fn expire(&mut self) {
        self.0.retain(|_, entry| {
            let is_answered = matches!(entry.state, State::Answered(_));
            is_answered || entry.since.elapsed() < QUESTION_LIFE
        });
    }

    fn answer(&mut self, is_meant: impl Fn(&Question) -> bool, verdict: Verdict) -> Vec<Question> {
        self.expire();
        let entries = self.0.values_mut();
        let meant = entries.filter(|entry| is_meant(&entry.question));
        let answered = meant.map(|entry| {
            entry.state = State::Answered(verdict);
            entry.question.clone()
        });
        answered.collect()
    }
}

impl Entry {
    fn is_free(&self) -> bool {
        matches!(
            self.state,
            State::Open {
                is_taken: false,
                ..
            }
        )
    }

    fn set_taken(&mut self, taken: bool) {
        if let State::Open { is_taken, .. } = &mut self.state {
            *is_taken = taken;
        }
    }
}

impl Question {
    fn new(name: &HostName, port: u16) -> Self {
        // Not a secret: only who may answer a question is told of it. A new server has other ids.
        let id = RandomState::new().hash_one(name.as_str());
        Self {
            id: format!("q_{:010x}", id >> 24),
            host: name.clone(),
            port,
            asked_at: SystemTime::now(),
        }
    }
}

impl Guest {
    /// Decides about a connection. What somebody has allowed counts like an entry of `allow`.
    pub(crate) fn decide(
        &self,
        name: &HostName,
        port: u16,
        passage: Passage,
    ) -> Result<Arc<Grant>, Refusal> {
        let profile = self.profile().ok_or(Refusal::NotListed)?;
        let decision = profile.decide(name, port);
        let is_askable =
            || self.broker.policy().ask_wait().is_some() && is_askable(name, port, &decision);
        let is_passed = || match self.state().asked.verdict(name) {
            Some(Verdict::Allow) => true,
            Some(Verdict::Deny) => false,
            Some(Verdict::AllowOnce) | None => passage == Passage::Once,
        };
        if is_askable() && is_passed() {
            return Ok(Arc::clone(profile.asked()));
        }
        decision
    }

    /// The ports on which a name has an address of its own.
    pub(crate) fn ports(&self, name: &HostName, profile: &Profile) -> Vec<u16> {
        let listed = profile.ports(name);
        if !listed.is_empty() {
            return listed.into_iter().collect();
        }
        let mut asked = PORTS_DEFAULT.to_vec();
        asked.retain(|port| self.state().asked.is_allowed(name) && self.is_asked(name, *port));
        asked
    }

    /// Whether it depends on somebody's answer if a connection passes.
    pub(crate) fn is_asked(&self, name: &HostName, port: u16) -> bool {
        self.ask_wait(name, port).is_some()
    }

    /// How long a connection waits for an answer, if there is a question at all.
    fn ask_wait(&self, name: &HostName, port: u16) -> Option<Duration> {
        let wait = self.broker.policy().ask_wait()?;
        let decision = self.profile()?.decide(name, port);
        let has_budget = self.meter.exhausted().is_none();
        (has_budget && is_askable(name, port, &decision)).then_some(wait)
    }

    /// Waits until somebody has answered, or a new policy makes that needless.
    pub(crate) async fn ask(&self, name: &HostName, port: u16) -> Result<Passage, Reason> {
        let mut answers = self.answers.subscribe();
        let mut policies = self.broker.policies();
        loop {
            let Some(wait) = self.ask_wait(name, port) else {
                return Ok(Passage::Listed);
            };
            let standing = self.state().asked.stand(name, port, &self.broker.questions);
            let since = match standing {
                Standing::Answered(Verdict::Allow) => return Ok(Passage::Listed),
                Standing::Answered(Verdict::AllowOnce) => return Ok(Passage::Once),
                Standing::Answered(Verdict::Deny) => return Err(Reason::Declined),
                Standing::Full => return Err(Reason::Policy(Refusal::NotListed)),
                Standing::Open(since, question) => {
                    if let Some(question) = &question {
                        self.observer.asked(question);
                    }
                    since
                }
            };
            let changed = async {
                tokio::select! {
                    _ = answers.changed() => {}
                    _ = policies.changed() => {}
                }
            };
            if timeout_at(since + wait, changed).await.is_err() {
                return Err(Reason::Unanswered);
            }
        }
    }

    /// The questions that nobody has answered, the oldest first.
    pub fn questions(&self) -> Vec<Question> {
        let mut state = self.state();
        state.asked.expire();
        let mut open: Vec<Question> = state.asked.open().cloned().collect();
        open.sort_by_key(|question| question.asked_at);
        open
    }

    /// Takes the oldest question that nobody has taken, to ask somebody by a form. It stays open, and
    /// others may answer it meanwhile.
    pub fn take_question(&self) -> Option<Question> {
        self.state().asked.take()
    }

    /// Lets somebody else take a question, if it is still open.
    pub fn give_back_question(&self, id: &str) {
        self.state().asked.give_back(id);
    }

    /// Waits until a question has been answered or has become too old to be.
    pub async fn question_closed(&self, id: &str) {
        let mut answers = self.answers.subscribe();
        loop {
            let closes_at = self.state().asked.closes_at(id);
            let Some(closes_at) = closes_at else {
                return;
            };
            if timeout_at(closes_at, answers.changed()).await.is_err() {
                return;
            }
        }
    }

    /// Answers the questions that are meant; an earlier answer is replaced. Returns those questions.
    pub fn answer_questions(
        &self,
        is_meant: impl Fn(&Question) -> bool,
        verdict: Verdict,
    ) -> Vec<Question> {
        let answered = self.state().asked.answer(is_meant, verdict);
        if !answered.is_empty() {
            self.answers.send_replace(());
        }
        answered
    }
}

/// Whether a decision is the one that can be asked about. What no public server answers for is not.
fn is_askable(name: &HostName, port: u16, decision: &Result<Arc<Grant>, Refusal>) -> bool {
    matches!(decision, Err(Refusal::NotListed))
        && PORTS_DEFAULT.contains(&port)
        && !name.is_special()
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, SocketAddrV4};

    use async_trait::async_trait;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::sync::Notify;

    use super::*;
    use crate::{
        Ask, Broker, Denial, FixedAddress, Listeners, Observer, Opened, Policy, ProfileName,
        ProfileSettings, Settings, Target,
    };

    const HOST: &str = "rebound.example.com";

    /// Tells when somebody is asked.
    #[derive(Default)]
    struct Seen(Notify);

    #[async_trait]
    impl Listeners for Seen {
        async fn listen(&self, _: &HostName, _: SocketAddrV4) -> bool {
            true
        }
    }

    impl Observer for Seen {
        fn opened(&self, _: &Opened) {}
        fn denied(&self, _: &Denial) {}
        fn asked(&self, _: &Question) {
            self.0.notify_one();
        }
        fn closed(&self, _: &Opened, _: u64, _: u64) {}
    }

    fn settings() -> Settings {
        Settings {
            ask: Ask::Hold,
            profiles: [(profile(), ProfileSettings::default())].into(),
            ..Settings::default()
        }
    }

    fn profile() -> ProfileName {
        ProfileName::parse("work").unwrap()
    }

    fn remember(broker: &Broker, address: &str) {
        let name = HostName::parse(HOST).unwrap();
        let found: Arc<[IpAddr]> = Arc::new([address.parse().unwrap()]);
        broker.dialler.remember(&name, &found);
    }

    /// Asks for the host; the answer once `decide` has let it.
    async fn ask(guest: &Arc<Guest>, decide: impl AsyncFnOnce()) -> String {
        let (mut near, far) = tokio::io::duplex(64 * 1024);
        let own = Arc::clone(guest);
        let serving = tokio::spawn(async move { own.serve(Target::Refused(80), far).await });
        let request = format!("GET / HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n");
        near.write_all(request.as_bytes()).await.unwrap();
        decide().await;
        let mut answer = String::new();
        near.read_to_string(&mut answer).await.unwrap();
        serving.await.unwrap();
        answer
    }

    #[tokio::test]
    async fn a_name_that_becomes_private_while_it_is_held_is_not_dialled_when_it_is_allowed() {
        let directory = tempfile::tempdir().unwrap();
        let policy = Policy::compile(&settings()).unwrap();
        let broker = Arc::new(Broker::open(policy, directory.path()).unwrap());
        for address in [
            "127.0.0.1",
            "10.0.0.1",
            "169.254.169.254",
            "::ffff:10.0.0.1",
        ] {
            let seen = Arc::new(Seen::default());
            let guest = Guest::new(Arc::clone(&broker), profile(), seen.clone(), seen.clone());
            let guest = Arc::new(guest);
            remember(&broker, "192.0.43.7");
            let answer = ask(&guest, async || {
                seen.0.notified().await;
                remember(&broker, address);
                let answered = guest.answer_questions(|_| true, Verdict::Allow);
                assert_eq!(answered.len(), 1);
            });
            let answer = answer.await;
            assert!(answer.starts_with("HTTP/1.1 403"), "{address}: {answer}");
            assert!(answer.contains("private"), "{address}: {answer}");
            // And once more, without a question.
            let answer = ask(&guest, async || {}).await;
            assert!(answer.contains("private"), "{address}: {answer}");
        }
    }

    #[tokio::test]
    async fn a_name_that_is_held_is_dialled_when_it_is_allowed() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let fixed = FixedAddress {
            ip: address.ip(),
            port: Some(address.port()),
        };
        let settings = Settings {
            hosts: [((HostName::parse(HOST).unwrap(), Some(80)), fixed)].into(),
            ..settings()
        };
        let directory = tempfile::tempdir().unwrap();
        let policy = Policy::compile(&settings).unwrap();
        let broker = Arc::new(Broker::open(policy, directory.path()).unwrap());
        let seen = Arc::new(Seen::default());
        let guest = Guest::new(broker, profile(), seen.clone(), seen.clone());
        let guest = Arc::new(guest);
        let answer = ask(&guest, async || {
            seen.0.notified().await;
            guest.answer_questions(|_| true, Verdict::Allow);
            let (mut stream, _) = listener.accept().await.unwrap();
            stream
                .write_all(b"HTTP/1.1 204 No Content\r\n\r\n")
                .await
                .unwrap();
        });
        let answer = answer.await;
        assert!(answer.starts_with("HTTP/1.1 204"), "{answer}");
    }
}
