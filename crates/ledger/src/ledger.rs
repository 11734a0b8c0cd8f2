//! The ledger as the service sees it.

use std::fmt;
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::chain::Link;
use crate::event::Event;
use crate::figures::{LedgerFigures, Tally, Timing};
use crate::keeper::{Keeper, NOTES_MAX, Position};
use crate::open::{self, OpenError, Resumed};
use crate::queue::{QUEUE_EVENTS_HIGH, Queue, RETRY_INTERVAL, Waiting};
use crate::segment::SegmentId;
use crate::writer::Writer;
use crate::{AnchorStore, LedgerSettings, OnFailure};

/// How long an operation waits for its event, or for room in the queue.
const RECORD_WAIT_MAX: Duration = Duration::from_secs(5);

/// One event for every operation. Clones share it; when the last is dropped, everything that
/// was recorded is on the disk.
#[derive(Clone)]
pub struct Ledger(Arc<Threads>);

/// An event that is on its way.
#[derive(Debug)]
#[must_use = "an operation is answered when its event is written"]
pub struct Ticket(oneshot::Receiver<()>);

/// The event is not with the kernel. It waits in the queue and is written when that is possible
/// again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the audit log cannot be written")]
pub struct NotRecorded;

/// The threads, which end with the last handle.
struct Threads {
    shared: Arc<Shared>,
    resumed: Resumed,
    running: Mutex<Vec<JoinHandle<()>>>,
}

/// What the threads and the handles share.
pub(crate) struct Shared {
    pub(crate) settings: LedgerSettings,
    pub(crate) queue: Queue,
    pub(crate) tally: Tally,
    position: Mutex<Option<Position>>,
    /// Whether the keeper will look at the position without being told again.
    is_keeper_told: AtomicBool,
    is_failing: AtomicBool,
    failures: Mutex<[Option<String>; 2]>,
}

/// What can fail.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Part {
    Write,
    Sync,
}

impl Ledger {
    /// Opens the ledger in its directory, making it if need be, and continues its chain.
    /// Only one process may have it open.
    pub fn open(settings: LedgerSettings, anchor: Box<dyn AnchorStore>) -> Result<Self, OpenError> {
        let known = anchor.load().map_err(OpenError::Anchor)?;
        let opened = open::open(&settings.directory, known)?;
        let shared = Arc::new(Shared::new(settings));
        let anchored = known.map_or(0, |anchor| anchor.last.seq);
        shared.tally.resume(opened.last.seq, anchored);
        let (keeper, notes) = mpsc::sync_channel(NOTES_MAX);
        let writer = Writer {
            shared: Arc::clone(&shared),
            keeper,
            last: opened.last,
            current: opened.current,
        };
        let keeper = Keeper {
            shared: Arc::clone(&shared),
            anchor,
            anchored: known,
            first_kept: known.map_or(1, |anchor| anchor.first_kept),
            unsealed: opened.unsealed,
            synced: None,
        };
        let running = vec![
            thread("hotcell-audit", move || writer.run())?,
            thread("hotcell-audit-sync", move || keeper.run(&notes))?,
        ];
        Ok(Self(Arc::new(Threads {
            shared,
            resumed: opened.resumed,
            running: Mutex::new(running),
        })))
    }

    /// Records an event. It is formatted here and written by another thread, in the order in
    /// which events come here.
    pub fn record(&self, event: &Event<'_>) -> Ticket {
        let (written, ticket) = oneshot::channel();
        let fields = event.fields();
        let since = Instant::now();
        self.0.shared.queue.push(Waiting {
            fields,
            since,
            written,
        });
        Ticket(ticket)
    }

    /// Whether an operation that leaves an event may begin. Waits a little while too many events
    /// wait.
    pub async fn admit(&self) -> Result<(), NotRecorded> {
        if self.0.shared.settings.on_failure == OnFailure::Continue {
            return Ok(());
        }
        if self.is_failing() {
            return Err(NotRecorded);
        }
        let room = async {
            while self.0.shared.queue.len() >= QUEUE_EVENTS_HIGH {
                tokio::time::sleep(RETRY_INTERVAL).await;
            }
        };
        let found = tokio::time::timeout(RECORD_WAIT_MAX, room).await;
        found.map_err(|_| NotRecorded)
    }

    /// Waits until an event is with the kernel. Where operations go on without their events,
    /// it does not wait for a ledger that fails.
    pub async fn recorded(&self, ticket: Ticket) -> Result<(), NotRecorded> {
        let goes_on = self.0.shared.settings.on_failure == OnFailure::Continue;
        if goes_on && self.is_failing() {
            return Ok(());
        }
        match tokio::time::timeout(RECORD_WAIT_MAX, ticket.0).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) if goes_on => Ok(()),
            Ok(Err(_)) | Err(_) => Err(NotRecorded),
        }
    }

    /// Writes what waits, brings it to the disk and notes the anchor; waits for it. What is
    /// recorded afterwards is lost. For the end of a process, where some task may still hold the
    /// ledger.
    pub fn close(&self) {
        self.0.close();
    }

    /// Whether events cannot be written now.
    pub fn is_failing(&self) -> bool {
        self.0.shared.is_failing.load(Ordering::Acquire)
    }

    /// Whether events cannot be written now, and operations are refused for it.
    pub fn is_stopped(&self) -> bool {
        self.is_failing() && self.0.shared.settings.on_failure == OnFailure::Stop
    }

    /// Events that wait to be written.
    pub fn queue_length(&self) -> usize {
        self.0.shared.queue.len()
    }

    /// Counts, and what there is now.
    pub fn figures(&self) -> LedgerFigures {
        LedgerFigures {
            queued: self.queue_length() as u64,
            is_failing: self.is_failing(),
            ..self.0.shared.tally.figures()
        }
    }

    /// Tells `observer` how long each event and each sync takes. The first observer stays.
    pub fn observe(&self, observer: impl Fn(Timing) + Send + Sync + 'static) {
        self.0.shared.tally.set_observer(Box::new(observer));
    }

    /// Whether operations that only look are recorded too.
    pub fn records_reads(&self) -> bool {
        self.0.shared.settings.records_reads
    }

    /// What the start found of the chain that it continues.
    pub fn resumed(&self) -> &Resumed {
        &self.0.resumed
    }
}

fn thread(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, OpenError> {
    let thread = std::thread::Builder::new().name(name.to_owned());
    thread.spawn(work).map_err(|source| OpenError::Io {
        step: "start a thread",
        source,
    })
}

impl Shared {
    fn new(settings: LedgerSettings) -> Self {
        Self {
            settings,
            queue: Queue::default(),
            tally: Tally::default(),
            position: Mutex::default(),
            is_keeper_told: AtomicBool::new(false),
            is_failing: AtomicBool::new(false),
            failures: Mutex::default(),
        }
    }

    pub(crate) fn written(&self, last: Link, file: &Arc<File>, id: SegmentId) {
        let mut position = self.position.lock().unwrap_or_else(PoisonError::into_inner);
        *position = Some(Position {
            last,
            file: Arc::clone(file),
            id,
        });
    }

    pub(crate) fn position(&self) -> Option<Position> {
        let position = self.position.lock();
        position.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The same for the keeper, which wants to be told of what comes after.
    pub(crate) fn take_position(&self) -> Option<Position> {
        self.is_keeper_told.store(false, Ordering::SeqCst);
        self.position()
    }

    /// Whether the keeper was told since it looked last; from now on it is.
    pub(crate) fn is_keeper_told(&self) -> bool {
        self.is_keeper_told.swap(true, Ordering::SeqCst)
    }

    /// Notes that a part fails, or does so no more, and tells the operator when that changes.
    pub(crate) fn set_failure(&self, part: Part, error: Option<&io::Error>) {
        if error.is_none() && !self.is_failing.load(Ordering::Acquire) {
            return;
        }
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        failures[part as usize] = error.map(ToString::to_string);
        let is_failing = failures.iter().any(Option::is_some);
        if self.is_failing.swap(is_failing, Ordering::AcqRel) == is_failing {
            return;
        }
        let directory = self.settings.directory.display();
        match (error, self.settings.on_failure) {
            (None, _) => tracing::info!(%directory, "the audit log is written again"),
            (Some(error), OnFailure::Stop) => tracing::error!(
                %directory, %error,
                "the audit log cannot be written; operations are refused until it can be"
            ),
            (Some(error), OnFailure::Continue) => tracing::error!(
                %directory, %error,
                "the audit log cannot be written; operations go on without it"
            ),
        }
    }
}

impl Threads {
    fn close(&self) {
        self.shared.queue.close();
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        for thread in running.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.close();
    }
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let directory = &self.0.shared.settings.directory;
        f.debug_struct("Ledger")
            .field("directory", directory)
            .finish_non_exhaustive()
    }
}
