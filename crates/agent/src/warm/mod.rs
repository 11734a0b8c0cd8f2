//! Warmed interpreters: Python that has started before anybody has a script for it.
//!
//! ```text
//!  agent ── zygote                  has imported the usual modules; forks, and runs no script
//!       ├── keeper ── spare         forked by the zygote in advance, waits for its script
//!       └── keeper ── leader        an exec: a spare that got its script
//! ```
//!
//! The zygote gives its keepers to the agent (`CLONE_PARENT`), so they are children of the agent and
//! subreapers like all others, and an exec that a spare runs differs from another one only in how
//! it began. Until a spare answers that its script runs, nothing has happened, and the exec starts
//! in the ordinary way instead.
//!
//! ```text
//!  Off ──wanted, and no process of an exec is left──▶ Starting ──ready──▶ Ready
//!   ▲                                                    │ an exec begins    │ it ended
//!   └──────────────────── after a pause ◀────────────────┴───────────────────┘
//! ```
//!
//! A new process can be traced and its memory read until it has asked the kernel to prevent that.
//! Therefore a zygote starts only while nothing else runs that could do so.

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

/// How long an exec waits for a zygote that starts or a spare that is being forked. After that it
/// starts in the ordinary way.
const SPARE_WAIT_MAX: Duration = Duration::from_secs(1);

/// From a request to warm up to the start of the zygote: whoever needs the container at once should
/// not have to share the processor with it.
const WARM_UP_DELAY: Duration = Duration::from_millis(150);

/// The container's warmed interpreter, if it has one.
pub(crate) struct Warm {
    state: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    /// Changes with every change of the state.
    changes: watch::Sender<u64>,
    table: Table,
    /// Memory limit of each process.
    data_bytes_max: Option<u64>,
    /// The directory in which execs may write.
    root: String,
}

#[derive(Default)]
struct State {
    phase: Phase,
    /// What the zygote is, or shall be once there is a reason to start one.
    key: Option<Key>,
    /// Not to be started before.
    wanted: Option<Instant>,
    spare: Option<Spare>,
    is_managed: bool,
    is_closed: bool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Phase {
    #[default]
    Off,
    Starting,
    Ready,
    /// It failed so often that it is not tried any more.
    GivenUp,
}

impl Warm {
    /// Nothing is warmed up until somebody asks for it. Zygotes and keepers are added to `table`;
    /// execs may write to `root`.
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

    /// Has an interpreter warmed up for execs like this one.
    pub(crate) fn warm_up(&self, start: &Start) {
        if let Some(key) = Key::of(start, &self.state.root) {
            self.state.want(key, WARM_UP_DELAY);
        }
    }

    /// Begins an exec in a spare with these descriptors for its standard streams. `None`: nothing
    /// has begun, and the exec has to be started in the ordinary way.
    pub(crate) async fn begin(&self, start: &Start, stdio: [&OwnedFd; 3]) -> Option<Running> {
        let key = Key::of(start, &self.state.root)?;
        let request = spare::encode(start)?;
        let spare = self.state.take(key).await?;
        spare.run(&request, stdio).await
    }

    /// Stops a zygote that is not protected yet: called before anything else starts.
    pub(crate) fn interrupt(&self) {
        let mut state = self.state.lock();
        if state.phase == Phase::Starting {
            state.phase = Phase::Off;
            drop(state);
            self.state.changed();
        }
    }

    /// Ends the zygote and its spare for good.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        state.spare = None;
        drop(state);
        self.state.changed();
    }
}

impl Shared {
    /// Notes that a zygote is wanted, and starts its manager the first time.
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

    /// The spare, if there is one or will be soon. Otherwise a zygote that is not protected yet is
    /// stopped, because the exec begins now.
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
        let Some(spare) = state.spare.take() else {
            return Taken::Soon;
        };
        drop(state);
        self.changed();
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
    /// A zygote is about to have one.
    Soon,
    Never,
}
