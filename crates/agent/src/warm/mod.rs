//! Warm interpreters: Python processes that are started before there is a script for them.
//!
//! ```text
//!  agent ── zygote                  has imported the usual modules; forks, and runs no script
//!       ├── keeper ── spare         forked by the zygote in advance, waits for its script
//!       └── keeper ── leader        an exec: a spare that got its script
//! ```
//!
//! The zygote makes its keepers children of the agent (`CLONE_PARENT`). They are subreapers like
//! all others, so an exec in a spare differs from other execs only in how it began. Until a spare
//! confirms that its script runs, nothing has happened, and the exec is started in the ordinary way
//! instead.
//!
//! ```text
//!  Off ──wanted, and no process of an exec is left──▶ Starting ──ready──▶ Ready
//!   ▲                                                    │ an exec begins    │ it ended
//!   └──────────────────── after a pause ◀────────────────┴───────────────────┘
//! ```
//!
//! Until a new process has asked the kernel to prevent it, others can trace it and read its memory.
//! So a zygote starts only while nothing else runs.

mod key;
mod manager;
mod spare;
mod zygote;

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use self::key::Key;
use self::spare::Spare;
use crate::exec::Start;
use crate::process::Table;

pub(crate) use self::spare::Running;

/// How long an exec waits for a starting zygote or for a spare that is being forked. After that it
/// is started in the ordinary way.
const SPARE_WAIT_MAX: Duration = Duration::from_secs(1);

/// The delay between a request to warm up and the start of the zygote: a container that is used at
/// once should not have to share the CPU with it.
const WARM_UP_DELAY: Duration = Duration::from_millis(150);

/// The container's warm interpreter, if it has one.
pub(crate) struct Warm {
    state: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    /// Incremented with every change of the state.
    changes: watch::Sender<u64>,
    table: Table,
    /// Memory limit of each process.
    data_bytes_max: Option<u64>,
    /// The directory that execs can write to.
    root: String,
}

#[derive(Default)]
struct State {
    phase: Phase,
    /// The program and environment of the zygote, or of the next one.
    key: Option<Key>,
    /// When to start the next zygote, if one is requested.
    wanted: Option<Instant>,
    spare: Option<Spare>,
    /// Whether an exec waits for a spare.
    is_awaited: bool,
    is_managed: bool,
    is_closed: bool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Phase {
    #[default]
    Off,
    Starting,
    Ready,
    /// It failed too often and is not started again.
    GivenUp,
}

impl Warm {
    /// Does nothing until an interpreter is requested. Zygotes and keepers are added to `table`;
    /// execs can write to `root`.
    pub(crate) fn new(table: Table, data_bytes_max: Option<u64>, root: &str) -> Self {
        Self {
            state: Arc::new(Shared {
                state: Mutex::default(),
                changes: watch::Sender::default(),
                table,
                data_bytes_max,
                root: root.to_owned(),
            }),
        }
    }

    /// Warms up an interpreter for execs like this one.
    pub(crate) fn warm_up(&self, start: &Start) {
        if let Some(key) = Key::of(start, &self.state.root) {
            self.state.want(key, WARM_UP_DELAY);
        }
    }

    /// Starts an exec in a spare, with these descriptors as its standard streams. `None`: nothing
    /// was started, and the exec must be started in the ordinary way.
    pub(crate) async fn begin(&self, start: &Start, stdio: [&OwnedFd; 3]) -> Option<Running> {
        let key = Key::of(start, &self.state.root)?;
        let request = spare::encode(start)?;
        let spare = self.state.take(key).await?;
        spare.run(&request, stdio).await
    }

    /// Stops a zygote that is not protected yet. Called before any other process is started.
    pub(crate) fn interrupt(&self) {
        let mut state = self.state.lock();
        if state.phase == Phase::Starting {
            state.phase = Phase::Off;
            drop(state);
            self.state.changed();
        }
    }

    /// Ends the zygote and its spare permanently.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        state.spare = None;
        drop(state);
        self.state.changed();
    }
}

impl Shared {
    /// Requests a zygote; the first request starts the manager.
    fn want(self: &Arc<Self>, key: Key, delay: Duration) {
        let mut state = self.lock();
        if state.is_closed || state.phase == Phase::GivenUp {
            return;
        }
        if state.phase == Phase::Off {
            state.key = Some(key);
        }
        state.wanted = state.wanted.or_else(|| Some(Instant::now() + delay));
        if !std::mem::replace(&mut state.is_managed, true) {
            tokio::spawn(manager::manage(self.clone()));
        }
        drop(state);
        self.changed();
    }

    /// Takes the spare, if there is one or will be soon. Otherwise stops a zygote that is not
    /// protected yet, because the exec starts now.
    async fn take(self: &Arc<Self>, key: Key) -> Option<Spare> {
        let deadline = Instant::now() + SPARE_WAIT_MAX;
        let mut changes = self.changes.subscribe();
        loop {
            match self.try_take(&key) {
                Taken::Spare(spare) => return Some(*spare),
                Taken::Soon => {}
                Taken::Never => break,
            }
            if tokio::time::timeout_at(deadline, changes.changed())
                .await
                .is_err()
            {
                break;
            }
        }
        self.want(key, Duration::ZERO);
        None
    }

    fn try_take(&self, key: &Key) -> Taken {
        let mut state = self.lock();
        let is_alive = matches!(state.phase, Phase::Starting | Phase::Ready);
        if !is_alive || state.is_closed || state.key.as_ref() != Some(key) {
            return Taken::Never;
        }
        let spare = state.spare.take();
        let is_news = spare.is_some() || !std::mem::replace(&mut state.is_awaited, true);
        drop(state);
        if is_news {
            self.changed();
        }
        let Some(spare) = spare else {
            return Taken::Soon;
        };
        if spare.is_gone() {
            return Taken::Soon;
        }
        Taken::Spare(Box::new(spare))
    }

    fn changed(&self) {
        self.changes
            .send_modify(|count| *count = count.wrapping_add(1));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum Taken {
    Spare(Box<Spare>),
    /// A zygote is about to fork one.
    Soon,
    Never,
}
