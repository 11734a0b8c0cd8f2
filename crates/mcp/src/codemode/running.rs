//! A script that runs, whether or not a request waits for it at the moment.

use std::sync::Arc;
use std::time::Duration;

use hotcell_codemode::Run;
use hotcell_domain::Caller;
use hotcell_service::{
    Abandonment, Progress, ScriptRequest, ScriptRun, Service, ServiceError, Waiting,
};
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use super::rounds::{Pending, Round};
use crate::tools::{Code, ToolError};

/// A script in its container. Dropped, it is cancelled with its calls.
pub(crate) struct Running {
    pub(crate) run: Arc<Run>,
    pub(crate) timeout: Duration,
    script: AbortOnDropHandle<Result<ScriptRun, ServiceError>>,
    waiting: Waiting,
    questions: mpsc::Receiver<Pending>,
    doing: Arc<dyn Fn() -> String + Send + Sync>,
}

/// What happens next.
pub(crate) enum Next {
    /// Its calls need somebody's word.
    Asks(Round),
    /// It has ended.
    Ended(Result<ScriptRun, ToolError>),
}

impl Running {
    /// Starts it, as a task of its own: it goes on between two rounds.
    pub(crate) fn start(
        service: &Service,
        caller: &Caller,
        run: Arc<Run>,
        mut request: ScriptRequest,
        timeout: Duration,
        questions: mpsc::Receiver<Pending>,
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
            script: AbortOnDropHandle::new(tokio::spawn(script)),
            waiting,
            questions,
            doing: Arc::new(move || match &*updates.borrow() {
                Some(pulling) => pulling.to_string(),
                None => "running the script".to_owned(),
            }),
        }
    }

    /// Tells what it does at the moment, for people.
    pub(crate) fn doing(&self) -> impl Fn() -> String + use<> {
        let doing = Arc::clone(&self.doing);
        move || doing()
    }

    /// Waits for its end or its questions.
    pub(crate) async fn next(&mut self) -> Next {
        tokio::select! {
            biased;
            ended = &mut self.script => Next::Ended(match ended {
                Ok(ended) => ended.map_err(ToolError::from),
                Err(_) => Err(ToolError::new(Code::Unavailable, "the server is stopping")),
            }),
            round = Round::next(&mut self.questions) => Next::Asks(round),
        }
    }

    /// Its end has been seen.
    pub(crate) fn answered(self) -> (Arc<Run>, Duration) {
        self.waiting.answered();
        (self.run, self.timeout)
    }
}
