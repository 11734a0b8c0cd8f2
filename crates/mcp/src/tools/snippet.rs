//! A snippet of `execute_code` that runs, whether or not a request waits for it at the moment.

use std::sync::Arc;

use bytes::Bytes;
use hotcell_service::{Abandonment, CodeRequest, CodeRun, Progress, ServiceError, Waiting};
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument as _;

use super::ToolError;
use crate::Server;
use crate::asking::{Doing, Work, joined};
use crate::call::Call;
use crate::interrupt::Interruptible;

/// A snippet in its session. Dropped, it is cancelled; the session stays.
pub(super) struct Snippet {
    source: Bytes,
    run: AbortOnDropHandle<Result<CodeRun, ServiceError>>,
    /// Until it is answered or interrupted.
    waiting: Option<Waiting>,
    interruptible: Option<Interruptible>,
    doing: Doing,
}

impl Snippet {
    /// Starts it, as a task of its own: it goes on between two rounds.
    pub(super) fn start(server: &Server, call: &Call, mut request: CodeRequest) -> Self {
        let (progress, updates) = Progress::channel();
        let (abandonment, waiting) = Abandonment::new();
        request.progress = progress;
        request.abandonment = abandonment;
        let (source, step) = (request.source.clone(), request.step.subscribe());
        let handle = call.repl_handle.clone();
        let interruptible = handle.map(|handle| server.interrupts().register(&call.caller, handle));
        let (service, caller) = (server.service().clone(), call.caller.clone());
        let run = async move { service.run_code(&caller, request).await };
        Self {
            source,
            run: AbortOnDropHandle::new(tokio::spawn(run.in_current_span())),
            waiting: Some(waiting),
            interruptible,
            doing: Arc::new(move || match (&*step.borrow(), &*updates.borrow()) {
                (step, _) if !step.is_empty() => step.clone(),
                (_, Some(pulling)) => pulling.to_string(),
                (_, None) => "running the code".to_owned(),
            }),
        }
    }

    /// Whether this is its source.
    pub(super) fn is_of(&self, source: &Bytes) -> bool {
        self.source == *source
    }

    /// Its end has been seen.
    pub(super) fn answered(self) {
        if let Some(waiting) = self.waiting {
            waiting.answered();
        }
    }
}

impl Work for Snippet {
    type End = CodeRun;

    fn doing(&self) -> Doing {
        Arc::clone(&self.doing)
    }

    /// An interrupt cancels it, and the call is answered.
    async fn ended(&mut self) -> Result<CodeRun, ToolError> {
        let interruptible = self.interruptible.as_ref();
        let interrupted = async {
            match interruptible {
                Some(call) => call.interrupted().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            ended = &mut self.run => return joined(ended),
            () = interrupted => {}
        }
        self.waiting = None;
        joined((&mut self.run).await)
    }
}
