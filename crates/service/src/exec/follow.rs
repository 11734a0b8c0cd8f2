//! Follows one exec from its start to its end, across reconnects.
//!
//! Output is acknowledged only after it is in the log. Whichever process dies, the next follower
//! continues after the last byte in the log. While the log cannot be written, nothing is
//! acknowledged, and the agent pauses the process.

use std::convert::Infallible;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hotcell_agent_client::{
    Agent, AgentError, AgentRefusal, Event, EventKind, Exit, ExitCause, Follow,
};
use hotcell_domain::{ExecEnd, ExecStatus};

use super::batch::Batch;
use super::close::{cancelled, over_disk};
use super::command::{CommandContext, for_agent};
use super::end;
use super::live::LiveExec;
use super::sink::OutputSink;
use super::table::{NOT_STORED, TableInner};
use crate::ServiceError;
use crate::backoff::Backoff;

/// The stall reason while the container cannot be reached.
const UNREACHABLE: &str =
    "its container does not answer now; the exec goes on, and nothing is lost";

/// Why an attempt to follow failed before the exec's exit.
enum Broken {
    /// A temporary failure: try again.
    Again,
    /// There is nothing left to follow; the exec ended like this.
    For(ExecEnd),
}

impl TableInner {
    /// Follows an exec until it has ended, and returns how. `is_known`: an earlier server started
    /// it.
    pub(super) async fn follow(
        &self,
        exec: &LiveExec,
        sink: &mut OutputSink,
        is_known: bool,
    ) -> ExecEnd {
        let mut is_closed = self.is_closed.subscribe();
        tokio::select! {
            end = self.until_end(exec, sink, is_known) => end,
            _ = is_closed.wait_for(|is_closed| *is_closed) => self.closed_end(exec.oom_kills_before),
        }
    }

    async fn until_end(&self, exec: &LiveExec, sink: &mut OutputSink, is_known: bool) -> ExecEnd {
        let mut backoff = Backoff::new();
        loop {
            let had = sink.agent_seq();
            match self.attempt(exec, sink, is_known).await {
                Ok(exit) => return self.judge(exec, &exit).await,
                Err(Broken::For(end)) => return end,
                Err(Broken::Again) => {}
            }
            if sink.agent_seq() > had {
                backoff.reset();
            }
            backoff.wait().await;
        }
    }

    /// Follows the exec over one connection.
    async fn attempt(
        &self,
        exec: &LiveExec,
        sink: &mut OutputSink,
        is_known: bool,
    ) -> Result<Exit, Broken> {
        let Ok(connected) = self.connection.get().await else {
            // If it has ended, its supervisor says so. An end that callers learn before the supervisor
            // does invites an exec that is lost with the same container.
            exec.set_stalled(Some(UNREACHABLE));
            return Err(Broken::Again);
        };
        exec.set_stalled(None);
        let agent = &connected.agent;
        let exit = async {
            let follow = self.open(agent, exec, sink, is_known).await?;
            let Some(follow) = follow else {
                return Ok(None);
            };
            let exit = self.watch(agent, exec, sink, follow).await?;
            if let Some(changes) = &exit.changes {
                exec.set_changes(changes.clone());
            } else {
                self.end_tree(agent, exec, &exit).await?;
            }
            Ok(Some(exit))
        };
        match exit.await {
            Ok(Some(exit)) => Ok(exit),
            Ok(None) if exec.is_over_disk() => Err(Broken::For(over_disk(&self.limits))),
            Ok(None) => Err(Broken::For(cancelled())),
            Err(error) => {
                self.connection.report(&connected, &error);
                Err(self.broken(error))
            }
        }
    }

    /// Starts or resumes the exec; `None` if it was cancelled before it was started.
    async fn open(
        &self,
        agent: &Agent,
        exec: &LiveExec,
        sink: &OutputSink,
        is_known: bool,
    ) -> Result<Option<Follow>, AgentError> {
        let after_seq = sink.agent_seq();
        if is_known || after_seq > 0 {
            return agent.resume(exec.id.as_str(), after_seq).await.map(Some);
        }
        if exec.is_cancelled() {
            // The start may have reached the agent over a connection that was lost afterwards.
            let found = agent.resume(exec.id.as_str(), 0).await;
            return match found {
                Err(error) if error.is_not_found() => Ok(None),
                found => found.map(Some),
            };
        }
        let egress = self.begin_egress(&exec.id).await;
        if !exec.may_begin().await {
            return Ok(None);
        }
        let context = CommandContext {
            image: &agent.hello().env,
            egress: &egress,
            env: &self.env,
            root: &agent.hello().root,
            grace: self.environment.settings().kill_grace,
        };
        let mut command = for_agent(&exec.command, &context);
        if exec.cleanup.is_some() {
            command.cleanup.clone_from(&exec.cleanup);
        }
        command.input = exec.whole_input(agent);
        let is_fed = command.input.is_some();
        let follow = agent.start(exec.id.as_str(), &command).await?;
        if is_fed {
            exec.set_fed();
        }
        Ok(Some(follow))
    }

    /// Stores output and sends input until the exec exits.
    async fn watch(
        &self,
        agent: &Agent,
        exec: &LiveExec,
        sink: &mut OutputSink,
        follow: Follow,
    ) -> Result<Exit, AgentError> {
        tokio::select! {
            exit = self.take_events(exec, sink, follow) => exit,
            fed = exec.feed(agent) => match fed? {},
            ended = self.end_when_cancelled(agent, exec) => match ended? {},
        }
    }

    async fn take_events(
        &self,
        exec: &LiveExec,
        sink: &mut OutputSink,
        mut follow: Follow,
    ) -> Result<Exit, AgentError> {
        let mut next = follow.next().await?;
        while let Some(Event { seq, unix_ms, kind }) = next {
            next = match kind {
                // Not acknowledged: the agent may only forget what is in the log.
                EventKind::Started(_) => {
                    exec.set_started();
                    follow.next().await?
                }
                EventKind::Exit(exit) => return Ok(exit),
                EventKind::Output(output, data) => {
                    let now = self.environment.clock.unix_ms();
                    let mut batch = Batch::new(exec.created_unix_ms.min(now)..=now);
                    batch.add(seq, unix_ms, output, data);
                    let after = batch.gather(&mut follow).await?;
                    let (agent_seq, bytes) = (batch.agent_seq(), batch.bytes());
                    let last_seq = self.keep(exec, sink, batch).await;
                    follow.ack(agent_seq);
                    exec.wrote(last_seq, bytes);
                    self.count_output(exec, bytes as u64);
                    self.environment.metrics.exec_wrote(bytes as u64);
                    match after {
                        Some(after) => Some(after),
                        None => follow.next().await?,
                    }
                }
            };
        }
        Err(AgentError::Protocol("its events end before the exit"))
    }

    /// Writes output to the log or the stream, retrying for as long as that takes.
    async fn keep(&self, exec: &LiveExec, sink: &mut OutputSink, batch: Batch) -> u64 {
        let pieces = batch.into_pieces();
        let mut backoff = Backoff::new();
        loop {
            match sink.append(pieces.clone()).await {
                Ok(last_seq) => return last_seq,
                Err(error) => {
                    tracing::warn!(exec.id = %exec.id, %error, "output is not stored yet");
                    self.environment.metrics.store_failed();
                    exec.set_stalled(Some(NOT_STORED));
                }
            }
            backoff.wait().await;
        }
    }

    async fn end_when_cancelled(
        &self,
        agent: &Agent,
        exec: &LiveExec,
    ) -> Result<Infallible, AgentError> {
        exec.until_cancelled().await;
        self.cancel_in(agent, exec).await?;
        // The exit arrives as an event.
        std::future::pending().await
    }

    /// Waits until all processes of a cancelled or timed-out exec are gone: its leader may exit
    /// before the others. The same applies to a command that must not leave background processes.
    async fn end_tree(
        &self,
        agent: &Agent,
        exec: &LiveExec,
        exit: &Exit,
    ) -> Result<(), AgentError> {
        let was_ended = matches!(exit.cause, ExitCause::TimedOut | ExitCause::Cancelled);
        if was_ended || exec.is_cancelled() || exec.command.ends_background {
            self.cancel_in(agent, exec).await?;
        }
        Ok(())
    }

    async fn cancel_in(&self, agent: &Agent, exec: &LiveExec) -> Result<(), AgentError> {
        // No grace period: the processes would go on filling the disk.
        let grace = if exec.is_over_disk() {
            Duration::ZERO
        } else {
            self.environment.settings().kill_grace
        };
        match agent.cancel(exec.id.as_str(), grace).await {
            Err(AgentError::Refused { message, .. }) => {
                tracing::warn!(exec.id = %exec.id, message, "an exec is not wholly ended");
                Ok(())
            }
            done => done,
        }
    }

    /// Decides whether an agent's error is final for the exec.
    fn broken(&self, error: AgentError) -> Broken {
        let (refusal, message) = match error {
            AgentError::Lost | AgentError::Protocol(_) | AgentError::Version { .. } => {
                return Broken::Again;
            }
            AgentError::TooOld { .. } => {
                return Broken::For(end::without_exit(
                    ExecStatus::Failed,
                    ServiceError::agent_too_old(&error).to_string(),
                ));
            }
            AgentError::Refused { refusal, message } => (refusal, message),
        };
        match refusal {
            // An earlier follower of ours was replaced, or the agent is shutting down.
            AgentRefusal::Aborted => Broken::Again,
            _ if self.closing.borrow().is_some() => Broken::Again,
            AgentRefusal::NotFound | AgentRefusal::Conflict { .. } => {
                Broken::For(end::without_exit(
                    ExecStatus::Lost,
                    format!("its container does not know it any more: {message}"),
                ))
            }
            AgentRefusal::Denied => Broken::For(end::without_exit(
                ExecStatus::Failed,
                format!("the container refused it: {message}"),
            )),
            AgentRefusal::InvalidArgument
            | AgentRefusal::AlreadyExists
            | AgentRefusal::Exhausted
            | AgentRefusal::Batch { .. }
            | AgentRefusal::Internal => Broken::For(end::without_exit(
                ExecStatus::Failed,
                format!("the container could not start it: {message}"),
            )),
        }
    }

    async fn judge(&self, exec: &LiveExec, exit: &Exit) -> ExecEnd {
        let is_oom = end::may_be_oom(exit) && self.had_oom_kills(exec.oom_kills_before).await;
        let end = end::of_exit(exit, &exec.command, is_oom);
        if end.status == ExecStatus::Cancelled && exec.is_over_disk() {
            return ExecEnd {
                exit_code: end.exit_code,
                signal: end.signal,
                usage: end.usage,
                ..over_disk(&self.limits)
            };
        }
        end
    }

    /// Whether the container's OOM kill counter has risen above `before`.
    pub(super) async fn had_oom_kills(&self, before: u64) -> bool {
        let engine = &self.environment.engine;
        let Ok(container) = engine.inspect(&self.container).await else {
            return false;
        };
        self.oom_kills.store(container.oom_kills, Ordering::Relaxed);
        container.oom_kills > before
    }
}
