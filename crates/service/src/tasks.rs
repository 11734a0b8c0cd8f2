//! Background tasks. None outlives the service.

use std::future::Future;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// All tasks of the service, which end together.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    tracker: TaskTracker,
    end: CancellationToken,
}

impl Tasks {
    /// Starts a task. Ending all tasks drops it at its next await, and the result is `None`.
    pub(crate) fn spawn<F>(&self, work: F) -> JoinHandle<Option<F::Output>>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let end = self.end.clone();
        self.tracker
            .spawn(async move { end.run_until_cancelled(work).await })
    }

    /// Ends all tasks, including those started later.
    pub(crate) fn end(&self) {
        self.end.cancel();
        self.tracker.close();
    }

    /// Waits for [`Tasks::end`].
    pub(crate) async fn ending(&self) {
        self.end.cancelled().await;
    }

    /// Waits until the last task has ended, after [`Tasks::end`].
    pub(crate) async fn ended(&self) {
        self.tracker.wait().await;
    }
}
