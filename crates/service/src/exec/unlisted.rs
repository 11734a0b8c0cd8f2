//! Short internal commands in a container: no row, no log, and in no list.

use hotcell_agent_client::{
    Agent, AgentError, Command as AgentCommand, EventKind, ExitCause, Output,
};
use hotcell_domain::{Command, Env, ExecId};

use super::command::{CommandContext, for_agent};
use super::table::ExecTable;
use crate::ServiceError;

/// Attempts, each over a new connection. The command must be idempotent.
const ATTEMPTS_MAX: u32 = 2;

impl ExecTable {
    /// Runs a command and returns its stdout, at most `bytes_max` bytes; `None` if there is no such
    /// program. The timeout must be short: the caller waits for the end.
    pub(crate) async fn run_unlisted(
        &self,
        command: &Command,
        bytes_max: usize,
    ) -> Result<Option<Vec<u8>>, ServiceError> {
        let table = &self.0;
        let mut attempt = 1;
        loop {
            let connected = table.connection.get().await?;
            let agent = &connected.agent;
            let environment = &table.environment;
            let context = CommandContext {
                image: &agent.hello().env,
                egress: &Env::default(),
                env: &table.env,
                root: &agent.hello().root,
                grace: environment.settings().kill_grace,
            };
            let command = for_agent(command, &context);
            let now = environment.clock.unix_ms();
            let id = ExecId::from_parts(now, environment.random.bytes());
            match run(agent, &id, &command, bytes_max).await {
                Ok(output) => return Ok(output),
                Err(error) => {
                    table.connection.report(&connected, &error);
                    if error != AgentError::Lost || attempt >= ATTEMPTS_MAX {
                        return Err(ServiceError::Unavailable {
                            reason: "the container did not answer; ask again".to_owned(),
                            source: Some(Box::new(error)),
                        });
                    }
                }
            }
            attempt += 1;
        }
    }
}

async fn run(
    agent: &Agent,
    id: &ExecId,
    command: &AgentCommand,
    bytes_max: usize,
) -> Result<Option<Vec<u8>>, AgentError> {
    let mut follow = agent.start(id.as_str(), command).await?;
    let mut output = Vec::new();
    let mut was_started = true;
    while let Some(event) = follow.next().await? {
        match event.kind {
            EventKind::Started(_) | EventKind::Output(Output::Stderr, _) => {}
            EventKind::Output(Output::Stdout, data) => {
                let room = bytes_max.saturating_sub(output.len());
                output.extend_from_slice(&data[..data.len().min(room)]);
            }
            EventKind::Exit(exit) => {
                was_started = !matches!(exit.cause, ExitCause::NotStarted { .. });
                break;
            }
        }
        follow.ack(event.seq);
    }
    // Ends background processes, too. If this fails, the next server lets the agent forget the
    // exec.
    let _ = agent.cancel(id.as_str(), command.grace).await;
    let _ = agent.forget(id.as_str()).await;
    Ok(was_started.then_some(output))
}
