//! The thread that owns the database.
//!
//! Questions wait in a bounded queue. Those that wait together are answered in one
//! transaction, each behind a savepoint of its own, and told only when it is committed: one
//! that fails or panics changes nothing and takes nothing from the others.

mod question;

use std::io;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread::JoinHandle;

use tokio::sync::oneshot;

use crate::StoreError;
use crate::database::{Database, Fault};
use question::{Asked, Question};

/// Questions that wait.
const QUEUE_MAX: usize = 4096;

/// Questions that share a transaction.
const TOGETHER_MAX: usize = 64;

/// Asks the thread. Dropped, it waits until everything that was asked is done and the
/// database is closed.
pub(crate) struct Clerk {
    queue: Option<SyncSender<Box<dyn Asked>>>,
    thread: Option<JoinHandle<()>>,
}

impl Clerk {
    /// Hands the database to a thread of its own.
    pub(crate) fn start(database: Database) -> io::Result<Self> {
        let (queue, questions) = mpsc::sync_channel(QUEUE_MAX);
        let thread = std::thread::Builder::new()
            .name("hotcell-store".to_owned())
            .spawn(move || answer_all(database, &questions))?;
        Ok(Self {
            queue: Some(queue),
            thread: Some(thread),
        })
    }

    /// Asks one question. Once it waits in the queue, it is answered even if the caller
    /// has gone.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        step: &'static str,
        ask: impl FnOnce(&mut Database) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (answer, answered) = oneshot::channel();
        let question = Box::new(Question::new(step, ask, answer));
        let queue = self.queue.as_ref().ok_or(StoreError::Unavailable)?;
        queue
            .try_send(question)
            .map_err(|_| StoreError::Unavailable)?;
        answered.await.map_err(|_| StoreError::Unavailable)?
    }
}

impl Drop for Clerk {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn answer_all(mut database: Database, questions: &Receiver<Box<dyn Asked>>) {
    while let Ok(first) = questions.recv() {
        let waiting = questions.try_iter().take(TOGETHER_MAX - 1);
        let mut together: Vec<_> = std::iter::once(first).chain(waiting).collect();
        let outcome = answer(&mut database, &mut together);
        database.settle();
        database.scrub_soon();
        let outcome = outcome.map_err(|fault| database.said(fault));
        for question in together {
            question.tell(&database, outcome.as_ref().err());
        }
    }
}

/// Answers questions so that either all that they changed is kept, or nothing.
fn answer(database: &mut Database, questions: &mut [Box<dyn Asked>]) -> Result<(), Fault> {
    database.present()?;
    if let [question] = questions {
        question.run(database);
    } else {
        database.begin()?;
        for question in questions {
            question.run(database);
            database.still_begun()?;
        }
        database.commit()?;
    }
    // Deleted meanwhile, it has kept nothing of what was just written.
    database.present()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clerk() -> (tempfile::TempDir, Clerk) {
        let directory = tempfile::tempdir().unwrap();
        let database = crate::database::open(directory.path()).unwrap();
        let clerk = Clerk::start(database).unwrap();
        (directory, clerk)
    }

    async fn count(clerk: &Clerk) -> Result<i64, StoreError> {
        let sql = "SELECT count(*) FROM attachments";
        clerk
            .ask("count", |database| {
                Ok(database.read().query_row(sql, [], |row| row.get(0))?)
            })
            .await
    }

    #[tokio::test]
    async fn a_panic_is_an_error_and_the_next_question_is_answered() {
        let (_directory, clerk) = clerk();
        let panicked: Result<(), _> = clerk
            .ask("do it", |database| {
                let transaction = database.write()?;
                transaction.execute("DELETE FROM containers", [])?;
                panic!("on purpose");
            })
            .await;
        assert!(matches!(
            panicked,
            Err(StoreError::Failed { step: "do it", .. })
        ));
        assert!(matches!(count(&clerk).await, Ok(0)));
    }

    #[tokio::test]
    async fn a_full_queue_refuses_and_loses_nothing_it_took() {
        let (_directory, clerk) = clerk();
        let (release, released) = mpsc::channel::<()>();
        let (entered, enter) = mpsc::channel::<()>();
        let hold = clerk.ask("hold", move |_| {
            let _ = entered.send(());
            let _ = released.recv();
            Ok(())
        });
        let mut hold = Box::pin(hold);
        assert!(poll_once(&mut hold).await.is_none());
        enter.recv().unwrap();
        let mut waiting: Vec<_> = (0..QUEUE_MAX).map(|_| Box::pin(count(&clerk))).collect();
        for one in &mut waiting {
            assert!(poll_once(one).await.is_none());
        }
        assert!(matches!(count(&clerk).await, Err(StoreError::Unavailable)));
        release.send(()).unwrap();
        assert!(hold.await.is_ok());
        for one in waiting {
            assert!(one.await.is_ok());
        }
    }

    /// Asks while the clerk is busy, so that the questions are answered together.
    async fn together<T>(clerk: &Clerk, futures: Vec<impl Future<Output = T>>) -> Vec<T> {
        let (release, released) = mpsc::channel::<()>();
        let mut busy = Box::pin(clerk.ask("be busy", move |_| {
            let _ = released.recv();
            Ok(())
        }));
        assert!(poll_once(&mut busy).await.is_none());
        let mut futures: Vec<_> = futures.into_iter().map(Box::pin).collect();
        for future in &mut futures {
            assert!(poll_once(future).await.is_none());
        }
        release.send(()).unwrap();
        // It may have been answered together with them, whatever became of that.
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

    async fn note(clerk: &Clerk, number: u32, does: Does) -> Result<(), StoreError> {
        let sql = "INSERT INTO containers VALUES (?, '', '', '', '', '', '', 0, '', '', 0, 0, 0, 0, 0, '', NULL)";
        clerk
            .ask("note", move |database| {
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

    async fn noted(clerk: &Clerk) -> Vec<i64> {
        let sql = "SELECT CAST(id AS INTEGER) FROM containers ORDER BY 1";
        let all = clerk.ask("list", move |database| {
            let mut statement = database.read().prepare(sql)?;
            let rows = statement.query_map([], |row| row.get(0))?;
            Ok(rows.collect::<Result<Vec<i64>, _>>()?)
        });
        all.await.unwrap()
    }

    #[tokio::test]
    async fn questions_that_fail_take_nothing_from_those_beside_them() {
        let (_directory, clerk) = clerk();
        let does = [Does::Well, Does::Fail, Does::Well, Does::Panic, Does::Well];
        let asked = (0..).zip(does);
        let asked = asked
            .map(|(number, does)| note(&clerk, number, does))
            .collect();
        let answers = together(&clerk, asked).await;
        let well: Vec<bool> = answers.iter().map(Result::is_ok).collect();
        assert_eq!(well, [true, false, true, false, true]);
        assert_eq!(noted(&clerk).await, [0, 2, 4]);
    }

    #[tokio::test]
    async fn nobody_is_told_that_something_is_kept_when_all_was_undone() {
        let (_directory, clerk) = clerk();
        let does = [Does::Well, Does::Undo, Does::Well];
        let asked = (0..).zip(does);
        let asked = asked
            .map(|(number, does)| note(&clerk, number, does))
            .collect();
        let answers = together(&clerk, asked).await;
        assert!(answers.iter().all(Result::is_err), "{answers:?}");
        assert!(noted(&clerk).await.is_empty());
        assert!(note(&clerk, 7, Does::Well).await.is_ok());
        assert_eq!(noted(&clerk).await, [7]);
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
