//! The ledger's interface for the service.

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

/// Records one event per operation. Clones share the ledger; when the last one is dropped, all
/// recorded events are on disk.
#[derive(Clone)]
pub struct Ledger(Arc<Threads>);

/// A recorded event that is not written yet.
#[derive(Debug)]
#[must_use = "an operation is answered when its event is written"]
pub struct Ticket(oneshot::Receiver<()>);

/// The event has not been handed to the kernel. It stays queued and is written when that is
/// possible again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the audit log cannot be written")]
pub struct NotRecorded;

/// The threads, which end with the last handle.
struct Threads {
    shared: Arc<Shared>,
    resumed: Resumed,
    running: Mutex<Vec<JoinHandle<()>>>,
}

/// State that threads and handles share.
pub(crate) struct Shared {
    pub(crate) settings: LedgerSettings,
    pub(crate) queue: Queue,
    pub(crate) tally: Tally,
    position: Mutex<Option<Position>>,
    /// Whether the keeper has been notified since it last read the position.
    is_keeper_told: AtomicBool,
    is_failing: AtomicBool,
    failures: Mutex<[Option<String>; 2]>,
}

/// The parts that can fail.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Part {
    Write,
    Sync,
}

impl Ledger {
    /// Opens the ledger in its directory, which is created if needed, and continues its chain. Only
    /// one process may have it open.
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

    /// Records an event. It is formatted here and written by another thread, in the order of these
    /// calls.
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

    /// Whether an operation that must be recorded may begin. Waits briefly while the queue is long.
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

    /// Waits until an event has been handed to the kernel. If operations continue without the audit
    /// log, it does not wait while the ledger fails.
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

    /// Writes all queued events, syncs them and stores the anchor; blocks until that is done.
    /// Events recorded afterwards are lost. Called at the end of a process, when some task may
    /// still hold the ledger.
    pub fn close(&self) {
        self.0.close();
    }

    /// Whether events cannot be written at the moment.
    pub fn is_failing(&self) -> bool {
        self.0.shared.is_failing.load(Ordering::Acquire)
    }

    /// Whether operations are refused because events cannot be written.
    pub fn is_stopped(&self) -> bool {
        self.is_failing() && self.0.shared.settings.on_failure == OnFailure::Stop
    }

    /// Number of events waiting to be written.
    pub fn queue_length(&self) -> usize {
        self.0.shared.queue.len()
    }

    /// The current metrics.
    pub fn figures(&self) -> LedgerFigures {
        LedgerFigures {
            queued: self.queue_length() as u64,
            is_failing: self.is_failing(),
            ..self.0.shared.tally.figures()
        }
    }

    /// Calls `observer` with the duration of each event and each sync. The first observer stays.
    pub fn observe(&self, observer: impl Fn(Timing) + Send + Sync + 'static) {
        self.0.shared.tally.set_observer(Box::new(observer));
    }

    /// Whether read-only operations are recorded, too.
    pub fn records_reads(&self) -> bool {
        self.0.shared.settings.records_reads
    }

    /// The state of the chain that was found at the start.
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

    /// Takes the position for the keeper, which then wants to be notified again.
    pub(crate) fn take_position(&self) -> Option<Position> {
        self.is_keeper_told.store(false, Ordering::SeqCst);
        self.position()
    }

    /// Whether the keeper has been notified since it last looked; marks it as notified.
    pub(crate) fn is_keeper_told(&self) -> bool {
        self.is_keeper_told.swap(true, Ordering::SeqCst)
    }

    /// Records that a part fails or works again, and logs the change.
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
