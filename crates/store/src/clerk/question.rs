//! One question, from the queue to its answer.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tokio::sync::oneshot::Sender;

use crate::StoreError;
use crate::database::{Database, Fault, Said};

/// A question, whatever its answer is.
pub(super) trait Asked: Send {
    /// Finds the answer.
    fn run(&mut self, database: &mut Database);

    /// Tells the answer or, if what all have changed together could not be kept, that.
    fn tell(self: Box<Self>, database: &Database, failed: Option<&Said>);
}

/// A question with the way back to who asked.
pub(super) struct Question<T, F> {
    step: &'static str,
    ask: Option<F>,
    found: Option<Result<T, Fault>>,
    answer: Sender<Result<T, StoreError>>,
}

impl<T, F> Question<T, F> {
    pub(super) fn new(step: &'static str, ask: F, answer: Sender<Result<T, StoreError>>) -> Self {
        Self {
            step,
            ask: Some(ask),
            found: None,
            answer,
        }
    }
}

impl<T, F> Asked for Question<T, F>
where
    T: Send,
    F: FnOnce(&mut Database) -> Result<T, Fault> + Send,
{
    fn run(&mut self, database: &mut Database) {
        if let Some(ask) = self.ask.take() {
            let asked = AssertUnwindSafe(|| ask(database));
            self.found = Some(catch_unwind(asked).unwrap_or(Err(Fault::Panicked)));
        }
    }

    fn tell(self: Box<Self>, database: &Database, failed: Option<&Said>) {
        // Its own fault says more than that of the others.
        let said = match (self.found, failed) {
            (Some(Err(fault)), _) => Err(database.said(fault)),
            (Some(Ok(found)), None) => Ok(found),
            (_, failed) => Err(failed
                .cloned()
                .unwrap_or_else(|| database.said(Fault::Undone))),
        };
        let _ = self
            .answer
            .send(said.map_err(|said| said.during(self.step)));
    }
}
