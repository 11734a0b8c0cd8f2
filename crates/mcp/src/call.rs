//! One request: its caller, its cancellation, and its progress notifications.

use std::time::Duration;

use hotcell_domain::{Caller, Name, TraceContext};
use rmcp::RoleServer;
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::{Peer, RequestContext};
use tokio::sync::Mutex;
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tokio_util::sync::CancellationToken;

use crate::asking::{Asking, Repeated};
use crate::interrupt;
use crate::tools::{Code, ToolError};
use crate::transport::{BudgetExhausted, LeaseShare, ReplyBudget, ReplyLease};

/// How often a client that asked for progress is notified.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(900);

/// An answer takes this many times the size of its content while it is built: a value, a text, and
/// both of them as JSON.
const COPIES: usize = 4;

/// A request that is being answered.
pub(crate) struct Call {
    pub(crate) caller: Caller,
    /// Whether the client accepts a task as the answer.
    pub(crate) takes_tasks: bool,
    /// What a person at our own command line calls it, if it is theirs.
    pub(crate) repl_handle: Option<Name>,
    /// Asks the user, where the client can.
    pub(crate) asking: Asking,
    /// The state and the input of an earlier round, if this is not the first.
    pub(crate) repeated: Option<Repeated>,
    answers: ReplyBudget,
    reply: ReplyLease,
    share: Mutex<LeaseShare>,
    cancelled: CancellationToken,
    progress: Option<(ProgressToken, Peer<RoleServer>)>,
    started: Instant,
}

impl Call {
    /// Reads the request's context. `default` is the caller if the context names none.
    pub(crate) fn new(
        context: &RequestContext<RoleServer>,
        default: &Caller,
        answers: &ReplyBudget,
    ) -> Self {
        let token = context.meta.get_progress_token();
        Self {
            asking: Asking::new(context),
            repeated: None,
            answers: answers.clone(),
            reply: reply(context),
            share: Mutex::default(),
            caller: caller(context, default),
            takes_tasks: context
                .client_capabilities()
                .is_some_and(|client| client.supports_tasks()),
            repl_handle: interrupt::handle(&context.meta),
            cancelled: context.ct.clone(),
            progress: token.map(|token| (token, context.peer.clone())),
            started: Instant::now(),
        }
    }

    /// Reserves memory for an answer about `bytes` of content, before it is built.
    pub(crate) async fn room(&self, bytes: usize) -> Result<(), ToolError> {
        self.take(bytes.saturating_mul(COPIES)).await
    }

    /// Adjusts the reservation to the size of a finished answer (see [`crate::json_size`]); it is
    /// held until the client has read the answer. On `Err` there is not enough memory left.
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

    /// Awaits `work` while notifying the client about once a second. If the client cancels the
    /// request, `work` is dropped.
    pub(crate) async fn attend<T>(
        &self,
        what: &str,
        work: impl Future<Output = T>,
    ) -> Result<T, ToolError> {
        self.attend_telling(|| what.to_owned(), work).await
    }

    /// Like [`Call::attend`], with a progress message that may change meanwhile.
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

    /// Progress is the number of seconds since the call began, so it only grows.
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
            // If the client is gone, its call is cancelled; nothing to do here.
            let _ = peer.notify_progress(progress).await;
        }
    }
}

/// The reply lease that the transport attached. Without one, memory is held only until the request
/// is answered.
fn reply(context: &RequestContext<RoleServer>) -> ReplyLease {
    let parts = context.extensions.get::<http::request::Parts>();
    let own = context.extensions.get::<ReplyLease>();
    let reply = own.or_else(|| parts?.extensions.get::<ReplyLease>());
    reply.cloned().unwrap_or_default()
}

/// The caller from authentication, with the name of the client program.
pub(crate) fn caller(context: &RequestContext<RoleServer>, default: &Caller) -> Caller {
    let parts = context.extensions.get::<http::request::Parts>();
    let known = context.extensions.get::<Caller>();
    let known = known.or_else(|| parts?.extensions.get::<Caller>());
    let mut caller = known.unwrap_or(default).clone();
    // The trace in the message takes precedence over that of the HTTP headers.
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
