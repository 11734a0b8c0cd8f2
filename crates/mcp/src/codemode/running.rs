//! A script that runs, whether or not a request waits for it at the moment.

use std::sync::Arc;
use std::time::Duration;

use hotcell_codemode::Run;
use hotcell_domain::Caller;
use hotcell_service::{
    Abandonment, Progress, ScriptRequest, ScriptRun, Service, ServiceError, Waiting,
};
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument as _;

use crate::asking::{Doing, Work, joined};
use crate::tools::ToolError;

/// A script in its container. Dropped, it is cancelled with its calls.
pub(crate) struct Running {
    pub(crate) run: Arc<Run>,
    pub(crate) timeout: Duration,
    script: AbortOnDropHandle<Result<ScriptRun, ServiceError>>,
    waiting: Waiting,
    doing: Doing,
}

impl Running {
    /// Starts it, as a task of its own: it goes on between two rounds.
    pub(crate) fn start(
        service: &Service,
        caller: &Caller,
        run: Arc<Run>,
        mut request: ScriptRequest,
        timeout: Duration,
    ) -> Self {
        let (progress, updates) = Progress::channel();
        let (abandonment, waiting) = Abandonment::new();
        request.progress = progress;
        request.abandonment = abandonment;
        let (service, caller) = (service.clone(), caller.clone());
        let script = async move { service.run_script(&caller, request).await };
        Self {
            run,
            timeout,
            script: AbortOnDropHandle::new(tokio::spawn(script.in_current_span())),
            waiting,
            doing: Arc::new(move || match &*updates.borrow() {
                Some(pulling) => pulling.to_string(),
                None => "running the script".to_owned(),
            }),
        }
    }

    /// Its end has been seen.
    pub(crate) fn answered(self) -> (Arc<Run>, Duration) {
        self.waiting.answered();
        (self.run, self.timeout)
    }
}

impl Work for Running {
    type End = ScriptRun;

    fn doing(&self) -> Doing {
        Arc::clone(&self.doing)
    }

    async fn ended(&mut self) -> Result<ScriptRun, ToolError> {
        joined((&mut self.script).await)
    }
}
