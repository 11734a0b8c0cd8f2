//! What goes on in the background. Nothing of it outlives the service.

use std::future::Future;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Tasks that end together. Every task of the service is one of these.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    tracker: TaskTracker,
    end: CancellationToken,
}

impl Tasks {
    /// Starts a task. It is dropped where it waits when all are ended, and then answers
    /// `None`.
    pub(crate) fn spawn<F>(&self, work: F) -> JoinHandle<Option<F::Output>>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let end = self.end.clone();
        self.tracker
            .spawn(async move { end.run_until_cancelled(work).await })
    }

    /// Ends them all, those that will be started too.
    pub(crate) fn end(&self) {
        self.end.cancel();
        self.tracker.close();
    }

    /// Waits for [`Tasks::end`].
    pub(crate) async fn ending(&self) {
        self.end.cancelled().await;
    }

    /// Waits until the last has ended, after [`Tasks::end`].
    pub(crate) async fn ended(&self) {
        self.tracker.wait().await;
    }
}
