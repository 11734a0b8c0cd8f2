//! One run: what its script may use, and what became of it.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use hotcell_domain::RunId;
use serde_json::{Value, json};
use tokio::sync::{Notify, Semaphore};

use crate::budget::Used;
use crate::deadline::Deadline;
use crate::ports::EarlierCall;
use crate::replay::Replay;
use crate::report::Reporter;
use crate::{Asker, Budget, CallRate, Journal, Memory, Policy, Report, ServerSummary, Servers};

/// What a run is made of.
pub struct RunParts {
    /// Whose it is.
    pub principal: String,
    /// The script.
    pub code: String,
    /// The servers that it may use.
    pub granted: Vec<ServerSummary>,
    /// Those that it may not, for better errors.
    pub others: Vec<ServerSummary>,
    /// How long it may run.
    pub timeout: Duration,
    /// What an earlier run got that this one continues.
    pub earlier: Vec<EarlierCall>,
    /// Rules.
    pub policy: Arc<Policy>,
    /// Limits.
    pub budget: Budget,
    /// Counts the calls of all runs.
    pub rate: Arc<CallRate>,
    /// The servers.
    pub servers: Arc<dyn Servers>,
    /// Where calls are written down.
    pub journal: Arc<dyn Journal>,
    /// What the principal remembers.
    pub memory: Arc<dyn Memory>,
    /// Who decides.
    pub asker: Arc<dyn Asker>,
}

/// A run.
pub struct Run {
    pub(crate) id: RunId,
    secret: String,
    pub(crate) parts: RunParts,
    pub(crate) deadline: Deadline,
    pub(crate) used: Used,
    pub(crate) parallel: Semaphore,
    pub(crate) replay: Replay,
    pub(crate) reporter: Reporter,
    is_connected: AtomicBool,
    pub(crate) told: Notify,
    pub(crate) is_told: AtomicBool,
}

impl Run {
    /// A run that has not begun, with an id and a secret of its own.
    pub fn new(id: RunId, secret: String, mut parts: RunParts) -> Arc<Self> {
        let earlier = std::mem::take(&mut parts.earlier);
        Arc::new(Self {
            id,
            secret,
            deadline: Deadline::new(parts.timeout),
            used: Used::default(),
            parallel: Semaphore::new(parts.budget.parallel_max),
            replay: Replay::new(earlier),
            reporter: Reporter::default(),
            is_connected: AtomicBool::new(false),
            told: Notify::new(),
            is_told: AtomicBool::new(false),
            parts,
        })
    }

    /// An id and a secret that nobody can guess.
    pub fn new_id() -> (RunId, String) {
        let mut random = [0_u8; 42];
        getrandom::fill(&mut random).expect("the kernel has random numbers");
        let (id, secret) = random.split_at(10);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let unix_ms = now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(0));
        let id = RunId::from_parts(unix_ms, id.try_into().unwrap_or_default());
        let secret = hex(secret);
        (id, secret)
    }

    /// Its id.
    pub fn id(&self) -> &RunId {
        &self.id
    }

    /// Whether this is its script.
    pub fn is_of(&self, code: &str) -> bool {
        self.parts.code == code
    }

    /// The names of the servers that it may use.
    pub fn servers(&self) -> Vec<String> {
        let granted = self.parts.granted.iter();
        granted.map(|server| server.name.clone()).collect()
    }

    /// Returns once its time is over.
    pub async fn until_overdue(&self) {
        self.deadline.passed().await;
    }

    /// Returns once its script has said how it ended.
    pub async fn until_told(&self) {
        loop {
            let told = self.told.notified();
            if self.is_told.load(Ordering::Acquire) {
                return;
            }
            told.await;
        }
    }

    /// What is known of it.
    pub fn report(&self) -> Report {
        self.reporter.report()
    }

    /// Whether this is the script's own connection: the first that knows the secret.
    pub(crate) fn admits(&self, secret: &str) -> bool {
        let (said, known) = (secret.as_bytes(), self.secret.as_bytes());
        let is_same = said.len() == known.len()
            && said.iter().zip(known).fold(0, |all, (a, b)| all | (a ^ b)) == 0;
        is_same && !self.is_connected.swap(true, Ordering::AcqRel)
    }

    /// What the script is told first, on standard input or by the connection.
    pub fn welcome(&self) -> String {
        let listed = |servers: &[ServerSummary]| -> Vec<Value> {
            let one = |server: &ServerSummary| json!({"name": server.name, "alias": server.alias});
            servers.iter().map(one).collect()
        };
        json!({
            "run_id": self.id.as_str(),
            "code": self.parts.code,
            "servers": listed(&self.parts.granted),
            "others": listed(&self.parts.others),
        })
        .to_string()
    }
}

/// Bytes in hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}
