//! One request: who asks, whether they still want it, and what they hear meanwhile.

use std::time::Duration;

use hotcell_domain::{Caller, Name, TraceContext};
use rmcp::RoleServer;
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::{Peer, RequestContext};
use tokio::sync::Mutex;
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tokio_util::sync::CancellationToken;

use crate::tools::{Code, ToolError};
use crate::transport::{BudgetExhausted, LeaseShare, ReplyBudget, ReplyLease};

/// How often a client that asked for it hears that we are at it.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(900);

/// What is in memory of an answer while it is built, in times what it is about: a value, a
/// text, and both of them as JSON.
const COPIES: usize = 4;

/// A request that is being answered.
pub(crate) struct Call {
    /// Who asks.
    pub(crate) caller: Caller,
    /// Whether the client can be answered with a task.
    pub(crate) takes_tasks: bool,
    answers: ReplyBudget,
    reply: ReplyLease,
    share: Mutex<LeaseShare>,
    cancelled: CancellationToken,
    progress: Option<(ProgressToken, Peer<RoleServer>)>,
    started: Instant,
}

impl Call {
    /// What a request's context says; where it names no caller, it is `default`.
    pub(crate) fn new(
        context: &RequestContext<RoleServer>,
        default: &Caller,
        answers: &ReplyBudget,
    ) -> Self {
        let token = context.meta.get_progress_token();
        Self {
            answers: answers.clone(),
            reply: reply(context),
            share: Mutex::default(),
            caller: caller(context, default),
            takes_tasks: context
                .client_capabilities()
                .is_some_and(|client| client.supports_tasks()),
            cancelled: context.ct.clone(),
            progress: token.map(|token| (token, context.peer.clone())),
            started: Instant::now(),
        }
    }

    /// Takes room for an answer about `bytes` of content before that is built.
    pub(crate) async fn room(&self, bytes: usize) -> Result<(), ToolError> {
        self.take(bytes.saturating_mul(COPIES)).await
    }

    /// Keeps as much room as an answer takes that has been built (see [`crate::json_size`]),
    /// until its client has read it. On `Err` there is no room for it.
    pub(crate) async fn keep_room(&self, json_bytes: usize) -> Result<(), ToolError> {
        self.take(json_bytes).await
    }

    async fn take(&self, bytes: usize) -> Result<(), ToolError> {
        let mut share = self.share.lock().await;
        let taken = self.answers.take(&self.reply, &mut share, bytes).await;
        taken.map_err(|BudgetExhausted { bytes_max }| {
            let message = format!(
                "the server holds as much unread output as it may ({} MiB)",
                bytes_max >> 20
            );
            let hint = "read the answers that you have asked for, or ask for less at once (max_bytes, limit); then call again";
            ToolError::new(Code::ResourceExhausted, message).with_hint(hint)
        })
    }

    /// Awaits `work`, tells the client about once a second that it goes on, and gives up
    /// when the client does: then `work` is dropped.
    pub(crate) async fn attend<T>(
        &self,
        what: &str,
        work: impl Future<Output = T>,
    ) -> Result<T, ToolError> {
        self.attend_telling(|| what.to_owned(), work).await
    }

    /// The same; what the client is told may change meanwhile.
    pub(crate) async fn attend_telling<T>(
        &self,
        what: impl Fn() -> String,
        work: impl Future<Output = T>,
    ) -> Result<T, ToolError> {
        tokio::select! {
            biased;
            () = self.cancelled.cancelled() => Err(ToolError::cancelled()),
            done = work => Ok(done),
            () = self.report(what) => unreachable!("it reports for ever"),
        }
    }

    /// Progress is the seconds since the call began, so it only grows.
    async fn report(&self, what: impl Fn() -> String) {
        let Some((token, peer)) = &self.progress else {
            return std::future::pending().await;
        };
        let first = Instant::now() + PROGRESS_INTERVAL;
        let mut ticks = interval_at(first, PROGRESS_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let seconds = self.started.elapsed().as_secs_f64();
            let progress =
                ProgressNotificationParam::new(token.clone(), seconds).with_message(what());
            // A client that is gone cancels the call; there is nothing to do here.
            let _ = peer.notify_progress(progress).await;
        }
    }
}

/// What the transport gave the answer to be kept by. Without one, room is kept as long as the
/// request is being answered.
fn reply(context: &RequestContext<RoleServer>) -> ReplyLease {
    let parts = context.extensions.get::<http::request::Parts>();
    let own = context.extensions.get::<ReplyLease>();
    let reply = own.or_else(|| parts?.extensions.get::<ReplyLease>());
    reply.cloned().unwrap_or_default()
}

/// The caller that authentication put there, with the name of the program it uses.
pub(crate) fn caller(context: &RequestContext<RoleServer>, default: &Caller) -> Caller {
    let parts = context.extensions.get::<http::request::Parts>();
    let known = context.extensions.get::<Caller>();
    let known = known.or_else(|| parts?.extensions.get::<Caller>());
    let mut caller = known.unwrap_or(default).clone();
    // What the message says goes before what its envelope says.
    let said = context.meta.get_traceparent();
    caller.trace = said.and_then(TraceContext::parse).or(caller.trace);
    if caller.client.is_none() {
        let client = context.client_info();
        let name = |text: &str| Name::parse(text).ok();
        caller.client_version = client.as_ref().and_then(|client| name(&client.version));
        caller.client = client.and_then(|client| name(&client.name));
    }
    caller
}
