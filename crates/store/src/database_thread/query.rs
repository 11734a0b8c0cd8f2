//! One query, from the queue to its reply.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tokio::sync::oneshot::Sender;

use crate::StoreError;
use crate::database::{Database, Fault, FaultReport};

/// A query with any result type.
pub(super) trait QueuedQuery: Send {
    /// Runs it and stores the result.
    fn run(&mut self, database: &mut Database);

    /// Sends the result to the caller; if the shared transaction failed, that error instead.
    fn tell(self: Box<Self>, database: &Database, failed: Option<&FaultReport>);
}

/// A query with the channel to its caller.
pub(super) struct Query<T, F> {
    step: &'static str,
    run: Option<F>,
    result: Option<Result<T, Fault>>,
    reply: Sender<Result<T, StoreError>>,
}

impl<T, F> Query<T, F> {
    pub(super) fn new(step: &'static str, query: F, reply: Sender<Result<T, StoreError>>) -> Self {
        Self {
            step,
            run: Some(query),
            result: None,
            reply,
        }
    }
}

impl<T, F> QueuedQuery for Query<T, F>
where
    T: Send,
    F: FnOnce(&mut Database) -> Result<T, Fault> + Send,
{
    fn run(&mut self, database: &mut Database) {
        if let Some(query) = self.run.take() {
            let run = AssertUnwindSafe(|| query(database));
            self.result = Some(catch_unwind(run).unwrap_or(Err(Fault::Panicked)));
        }
    }

    fn tell(self: Box<Self>, database: &Database, failed: Option<&FaultReport>) {
        // Its own error is more specific than that of the batch.
        let said = match (self.result, failed) {
            (Some(Err(fault)), _) => Err(database.report(fault)),
            (Some(Ok(result)), None) => Ok(result),
            (_, failed) => Err(failed
                .cloned()
                .unwrap_or_else(|| database.report(Fault::Undone))),
        };
        let _ = self.reply.send(said.map_err(|said| said.during(self.step)));
    }
}
