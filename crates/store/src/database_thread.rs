//! The thread that owns the database.
//!
//! Queries wait in a bounded queue. Those that wait together run in one transaction, each in its
//! own savepoint, and callers get their results only after the commit. A query that fails or panics
//! changes nothing and does not affect the others.
//!
//! A database in memory has no thread: it waits for no disk, and to hand a query to another thread would
//! take longer than the query.

mod query;

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::StoreError;
use crate::database::{Database, Fault};
use query::{Query, QueuedQuery};

/// Queries waiting; one more is refused with [`StoreError::Unavailable`].
const QUEUE_MAX: usize = 4096;

/// Queries that share one transaction.
const BATCH_MAX: usize = 64;

/// Metrics of the thread, and their observers.
#[derive(Default)]
pub(crate) struct Meter {
    queued: AtomicUsize,
    observer: OnceLock<Box<dyn Fn(Duration) + Send + Sync>>,
    query_observer: OnceLock<Box<QueryObserver>>,
}

/// Called with the name of a query and the time of its request.
type QueryObserver = dyn Fn(&'static str, Instant) + Send + Sync;

impl Meter {
    /// Queries that wait.
    pub(crate) fn queued(&self) -> usize {
        self.queued.load(Ordering::Relaxed)
    }

    /// Calls `observer` with the duration of each transaction. The first observer stays.
    pub(crate) fn set_observer(&self, observer: impl Fn(Duration) + Send + Sync + 'static) {
        let _ = self.observer.set(Box::new(observer));
    }

    /// Calls `observer` after each query, in the task that waited for it. The first observer stays.
    pub(crate) fn set_query_observer(
        &self,
        observer: impl Fn(&'static str, Instant) + Send + Sync + 'static,
    ) {
        let _ = self.query_observer.set(Box::new(observer));
    }

    fn observe(&self, duration: Duration) {
        if let Some(observer) = self.observer.get() {
            observer(duration);
        }
    }
}

/// Sends queries to the thread. Dropping it waits until every queued query has run and the
/// database is closed.
pub(crate) struct DatabaseThread {
    meter: Arc<Meter>,
    runner: Runner,
}

/// Who runs queries.
enum Runner {
    Thread {
        queue: Option<SyncSender<Box<dyn QueuedQuery>>>,
        thread: Option<JoinHandle<()>>,
    },
    /// Whoever asks, one after the other.
    Caller(Box<Mutex<Database>>),
}

impl DatabaseThread {
    pub(crate) fn meter(&self) -> &Meter {
        &self.meter
    }

    /// Moves the database to its own thread.
    pub(crate) fn start(database: Database) -> io::Result<Self> {
        let (queue, queries) = mpsc::sync_channel(QUEUE_MAX);
        let meter = Arc::new(Meter::default());
        let metered = Arc::clone(&meter);
        let thread = std::thread::Builder::new()
            .name("hotcell-store".to_owned())
            .spawn(move || run_all(database, &queries, &metered))?;
        Ok(Self {
            meter,
            runner: Runner::Thread {
                queue: Some(queue),
                thread: Some(thread),
            },
        })
    }

    /// Runs the queries of a database in memory.
    pub(crate) fn in_memory(database: Database) -> Self {
        Self {
            meter: Arc::default(),
            runner: Runner::Caller(Box::new(Mutex::new(database))),
        }
    }

    /// Runs one query. Once queued it runs even if the caller drops this future.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        step: &'static str,
        query: impl FnOnce(&mut Database) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (reply, replied) = oneshot::channel();
        let asked = Instant::now();
        self.send(Box::new(Query::new(step, query, reply)))?;
        let answer = replied.await.map_err(|_| StoreError::Unavailable)?;
        if let Some(observer) = self.meter.query_observer.get() {
            observer(step, asked);
        }
        answer
    }
}

impl DatabaseThread {
    /// Runs one query for a thread that may wait. Not for async tasks.
    pub(crate) fn run_blocking<T: Send + 'static>(
        &self,
        step: &'static str,
        query: impl FnOnce(&mut Database) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (reply, replied) = oneshot::channel();
        self.send(Box::new(Query::new(step, query, reply)))?;
        replied
            .blocking_recv()
            .map_err(|_| StoreError::Unavailable)?
    }

    fn send(&self, query: Box<dyn QueuedQuery>) -> Result<(), StoreError> {
        let queue = match &self.runner {
            Runner::Thread { queue, .. } => queue.as_ref().ok_or(StoreError::Unavailable)?,
            Runner::Caller(database) => {
                // A query that panics is caught, and its transaction undone.
                let mut database = database.lock().unwrap_or_else(PoisonError::into_inner);
                run_together(&mut database, vec![query], &self.meter);
                return Ok(());
            }
        };
        self.meter.queued.fetch_add(1, Ordering::Relaxed);
        if queue.try_send(query).is_err() {
            self.meter.queued.fetch_sub(1, Ordering::Relaxed);
            return Err(StoreError::Unavailable);
        }
        Ok(())
    }
}

impl Drop for DatabaseThread {
    fn drop(&mut self) {
        if let Runner::Thread { queue, thread } = &mut self.runner {
            *queue = None;
            let _ = thread.take().map(JoinHandle::join);
        }
    }
}

fn run_all(mut database: Database, queries: &Receiver<Box<dyn QueuedQuery>>, meter: &Meter) {
    while let Ok(first) = queries.recv() {
        let waiting = queries.try_iter().take(BATCH_MAX - 1);
        let together: Vec<_> = std::iter::once(first).chain(waiting).collect();
        meter.queued.fetch_sub(together.len(), Ordering::Relaxed);
        run_together(&mut database, together, meter);
    }
}

/// Runs queries in one transaction and tells those who asked.
fn run_together(database: &mut Database, mut queries: Vec<Box<dyn QueuedQuery>>, meter: &Meter) {
    let began = Instant::now();
    let outcome = run_batch(database, &mut queries);
    meter.observe(began.elapsed());
    database.settle();
    database.scrub_soon();
    let outcome = outcome.map_err(|fault| database.report(fault));
    for query in queries {
        query.tell(database, outcome.as_ref().err());
    }
}

/// Runs queries so that either everything they changed is kept, or nothing.
fn run_batch(database: &mut Database, queries: &mut [Box<dyn QueuedQuery>]) -> Result<(), Fault> {
    database.present()?;
    if let [query] = queries {
        // A query that only reads begins no transaction.
        query.run(database);
        if database.has_begun() {
            database.commit()?;
        }
    } else {
        database.begin()?;
        for query in queries {
            query.run(database);
            database.still_begun()?;
        }
        database.commit()?;
    }
    // If the file was deleted meanwhile, nothing of this was kept.
    database.present()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread() -> (tempfile::TempDir, DatabaseThread) {
        let directory = tempfile::tempdir().unwrap();
        let database = crate::database::open(directory.path()).unwrap();
        let thread = DatabaseThread::start(database).unwrap();
        (directory, thread)
    }

    async fn count(thread: &DatabaseThread) -> Result<i64, StoreError> {
        let sql = "SELECT count(*) FROM attachments";
        thread
            .run("count", |database| {
                Ok(database.read().query_row(sql, [], |row| row.get(0))?)
            })
            .await
    }

    #[tokio::test]
    async fn a_query_that_reads_before_it_writes_waits_for_another_writer() {
        let (directory, thread) = thread();
        let path = directory.path().join("hotcell.db");
        let other = rusqlite::Connection::open(path).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        let mut writing = Box::pin(thread.run("write", |database| {
            let savepoint = database.write()?;
            savepoint.query_row("SELECT count(*) FROM attachments", [], |_| Ok(()))?;
            savepoint.execute_batch("CREATE TABLE written (x)")?;
            savepoint.commit()?;
            Ok(())
        }));
        let early = tokio::time::timeout(Duration::from_millis(100), &mut writing);
        assert!(early.await.is_err(), "it waits");
        other.execute_batch("COMMIT").unwrap();
        writing.await.unwrap();
        let read = |sql| other.query_row(sql, [], |row| row.get::<_, i64>(0));
        assert_eq!(read("SELECT count(*) FROM written").unwrap(), 0);
    }

    #[tokio::test]
    async fn a_panic_is_an_error_and_the_next_query_runs() {
        let (directory, on_disk) = thread();
        let in_memory = crate::database::in_memory(directory.path()).unwrap();
        for thread in [on_disk, DatabaseThread::in_memory(in_memory)] {
            note(&thread, 1, Does::Well).await.unwrap();
            let panicked: Result<(), _> = thread
                .run("do it", |database| {
                    let transaction = database.write()?;
                    transaction.execute("DELETE FROM containers", [])?;
                    panic!("on purpose");
                })
                .await;
            assert!(matches!(
                panicked,
                Err(StoreError::Failed { step: "do it", .. })
            ));
            assert!(matches!(count(&thread).await, Ok(0)));
            assert_eq!(noted(&thread).await, [1]);
        }
    }

    #[tokio::test]
    async fn a_full_queue_refuses_and_loses_nothing_it_took() {
        let (_directory, thread) = thread();
        let (release, released) = mpsc::channel::<()>();
        let (entered, enter) = mpsc::channel::<()>();
        let hold = thread.run("hold", move |_| {
            let _ = entered.send(());
            let _ = released.recv();
            Ok(())
        });
        let mut hold = Box::pin(hold);
        assert!(poll_once(&mut hold).await.is_none());
        enter.recv().unwrap();
        let mut waiting: Vec<_> = (0..QUEUE_MAX).map(|_| Box::pin(count(&thread))).collect();
        for one in &mut waiting {
            assert!(poll_once(one).await.is_none());
        }
        assert!(matches!(count(&thread).await, Err(StoreError::Unavailable)));
        release.send(()).unwrap();
        assert!(hold.await.is_ok());
        for one in waiting {
            assert!(one.await.is_ok());
        }
    }

    /// Queues while the thread is busy, so that the queries run in one batch.
    async fn together<T>(thread: &DatabaseThread, futures: Vec<impl Future<Output = T>>) -> Vec<T> {
        let (release, released) = mpsc::channel::<()>();
        let mut busy = Box::pin(thread.run("be busy", move |_| {
            let _ = released.recv();
            Ok(())
        }));
        assert!(poll_once(&mut busy).await.is_none());
        let mut futures: Vec<_> = futures.into_iter().map(Box::pin).collect();
        for future in &mut futures {
            assert!(poll_once(future).await.is_none());
        }
        release.send(()).unwrap();
        // It may have been answered in the same batch; its result does not matter.
        let _ = busy.await;
        let mut answers = Vec::new();
        for future in futures {
            answers.push(future.await);
        }
        answers
    }

    #[derive(Clone, Copy)]
    enum Does {
        Well,
        Fail,
        Panic,
        Undo,
    }

    async fn note(thread: &DatabaseThread, number: u32, does: Does) -> Result<(), StoreError> {
        let sql = "INSERT INTO containers VALUES (?, '', '', '', '', '', '', 0, '', '', 0, 0, 0, 0, 0, '', NULL, NULL, NULL)";
        thread
            .run("note", move |database| {
                let transaction = database.write()?;
                transaction.execute(sql, [number])?;
                match does {
                    Does::Well => Ok(transaction.commit()?),
                    Does::Fail => Err(Fault::Misuse("on purpose")),
                    Does::Panic => panic!("on purpose"),
                    Does::Undo => Ok(transaction.execute_batch("ROLLBACK")?),
                }
            })
            .await
    }

    async fn noted(thread: &DatabaseThread) -> Vec<i64> {
        let sql = "SELECT CAST(id AS INTEGER) FROM containers ORDER BY 1";
        let all = thread.run("list", move |database| {
            let mut statement = database.read().prepare(sql)?;
            let rows = statement.query_map([], |row| row.get(0))?;
            Ok(rows.collect::<Result<Vec<i64>, _>>()?)
        });
        all.await.unwrap()
    }

    #[tokio::test]
    async fn a_failed_query_undoes_nothing_of_the_queries_batched_with_it() {
        let (_directory, thread) = thread();
        let does = [Does::Well, Does::Fail, Does::Well, Does::Panic, Does::Well];
        let asked = (0..).zip(does);
        let asked = asked
            .map(|(number, does)| note(&thread, number, does))
            .collect();
        let answers = together(&thread, asked).await;
        let well: Vec<bool> = answers.iter().map(Result::is_ok).collect();
        assert_eq!(well, [true, false, true, false, true]);
        assert_eq!(noted(&thread).await, [0, 2, 4]);
    }

    #[tokio::test]
    async fn nobody_is_told_that_something_is_kept_when_all_was_undone() {
        let (_directory, thread) = thread();
        let does = [Does::Well, Does::Undo, Does::Well];
        let asked = (0..).zip(does);
        let asked = asked
            .map(|(number, does)| note(&thread, number, does))
            .collect();
        let answers = together(&thread, asked).await;
        assert!(answers.iter().all(Result::is_err), "{answers:?}");
        assert!(noted(&thread).await.is_empty());
        assert!(note(&thread, 7, Does::Well).await.is_ok());
        assert_eq!(noted(&thread).await, [7]);
    }

    async fn poll_once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
        std::future::poll_fn(|context| {
            std::task::Poll::Ready(match std::pin::Pin::new(&mut *future).poll(context) {
                std::task::Poll::Ready(output) => Some(output),
                std::task::Poll::Pending => None,
            })
        })
        .await
    }
}
