//! The interpreter of a notebook: finds, starts and ends it.

use std::time::Duration;

use hotcell_agent_client::{
    Agent, AgentError, EventKind, ExecInfo, Exit, ExitCause, Follow, NotebookChannel,
    NotebookError, NotebookEvent, NotebookFrame, NotebookHello, Output,
};
use hotcell_domain::{Command, Env, ExecId};

use super::NoKernel;
use crate::ServiceError;
use crate::connection::Connected;
use crate::exec::command::{CommandContext, for_agent};
use crate::exec::end;
use crate::exec::table::TableInner;

/// Prefix of a notebook's exec id in the agent. No exec of a caller has such an id.
const PREFIX: &str = "notebook-";

/// How long an interpreter may take to start: imports are slow on a busy host.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a kernel may take to answer a new connection.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);

/// Grace period between SIGTERM and SIGKILL, in which a kernel removes its socket.
const END_GRACE: Duration = Duration::from_millis(300);

/// Pause before retrying a kernel that is still busy with an abandoned cell.
const BUSY_PAUSE: Duration = Duration::from_millis(50);

/// Unsolicited frames after which a kernel is no longer used.
const FORGED_FRAMES_MAX: usize = 256;

/// How much output of a failed start is logged.
const ERROR_BYTES_MAX: usize = 4096;

const BOOT: &str = include_str!("boot.py");
const SUPERVISOR: &str = include_str!("supervisor.py");
const INTERPRETER: &str = include_str!("interpreter.py");

/// A running interpreter and the channel to it.
pub(in crate::exec) struct Kernel {
    /// The id of its exec in the agent.
    id: String,
    pub(super) channel: NotebookChannel,
    pub(super) connected: Connected,
    /// Number of cells sent so far.
    pub(super) cells: u64,
}

impl TableInner {
    /// Returns the connected kernel, and whether it is new. A kernel that is found but cannot be
    /// used is ended.
    pub(super) async fn kernel(
        &self,
        current: Option<Kernel>,
        env: &Env,
    ) -> Result<(Kernel, bool), NoKernel> {
        if let Some(mut kernel) = current
            && self.connection.is_current(&kernel.connected)
            && kernel.is_alive().await
        {
            return Ok((kernel, false));
        }
        let connected = self.connection.get().await?;
        for found in self.notebooks(&connected).await? {
            if let Some(kernel) = self.adopt_notebook(&connected, &found.exec_id).await {
                return Ok((kernel, false));
            }
            self.end_exec_of_notebook(&connected, &found.exec_id)
                .await?;
        }
        let kernel = self.start_notebook(connected, env).await?;
        Ok((kernel, true))
    }

    /// Ends the interpreter and all processes that it started, whether or not this server has
    /// connected to it.
    pub(super) async fn end_notebook(&self, kernel: Option<Kernel>) -> Result<(), ServiceError> {
        drop(kernel);
        let connected = self.connection.get().await?;
        for found in self.notebooks(&connected).await? {
            self.end_exec_of_notebook(&connected, &found.exec_id)
                .await?;
        }
        Ok(())
    }

    async fn notebooks(&self, connected: &Connected) -> Result<Vec<ExecInfo>, ServiceError> {
        let execs = connected.agent.list_execs().await;
        let mut execs = execs.map_err(|error| self.unreachable(connected, error))?;
        execs.retain(|exec| exec.exec_id.starts_with(PREFIX));
        Ok(execs)
    }

    async fn end_exec_of_notebook(
        &self,
        connected: &Connected,
        id: &str,
    ) -> Result<(), ServiceError> {
        let ended = async {
            connected.agent.cancel(id, END_GRACE).await?;
            connected.agent.forget(id).await
        };
        match ended.await {
            Err(error) if error.is_not_found() => Ok(()),
            ended => ended.map_err(|error| self.unreachable(connected, error)),
        }
    }

    /// Connects to a running kernel, if it answers and is not busy. An earlier server's cell is
    /// interrupted when that server's channel closes.
    pub(super) async fn adopt_notebook(&self, connected: &Connected, id: &str) -> Option<Kernel> {
        let grace = self.environment.settings().kill_grace;
        let adopt = async {
            loop {
                let (channel, hello) = hello(&connected.agent).await?;
                if !hello.is_busy {
                    return Some(Kernel {
                        id: id.to_owned(),
                        channel,
                        connected: connected.clone(),
                        cells: hello.last_id,
                    });
                }
                drop(channel);
                tokio::time::sleep(BUSY_PAUSE).await;
            }
        };
        let adopted = tokio::time::timeout(HELLO_TIMEOUT + grace, adopt).await;
        adopted.ok().flatten()
    }

    /// Reconnects to a kernel whose channel was lost.
    pub(super) async fn adopt_again(&self, lost: &Kernel) -> Option<Kernel> {
        let connected = self.connection.get().await.ok()?;
        self.adopt_notebook(&connected, &lost.id).await
    }

    async fn start_notebook(&self, connected: Connected, env: &Env) -> Result<Kernel, NoKernel> {
        let random = ExecId::from_parts(0, self.environment.random.bytes());
        let id = format!("{PREFIX}{random}");
        let agent = &connected.agent;
        let argv = [
            "python3",
            "-c",
            BOOT,
            &socket(agent),
            SUPERVISOR,
            INTERPRETER,
        ];
        let mut command =
            Command::new(argv.map(str::to_owned).to_vec()).map_err(ServiceError::from)?;
        command.set_no_timeout();
        command.env = env.clone();
        let egress = match &self.egress {
            Some(egress) => egress.variables().await,
            None => Env::default(),
        };
        let context = CommandContext {
            image: &agent.hello().env,
            egress: &egress,
            env: &self.env,
            root: &agent.hello().root,
            grace: self.environment.settings().kill_grace,
        };
        let command = for_agent(&command, &context);
        let started = async {
            let follow = agent.start(&id, &command).await;
            let follow = follow.map_err(|error| self.unreachable(&connected, error))?;
            self.until_ready(&connected, follow).await?;
            let said = hello(agent).await;
            said.ok_or_else(|| not_usable("it does not answer").into())
        };
        let started = tokio::time::timeout(START_TIMEOUT, started).await;
        let started = started.unwrap_or_else(|_| Err(not_usable("it took too long").into()));
        match started {
            Ok((channel, hello)) => Ok(Kernel {
                id,
                channel,
                cells: hello.last_id,
                connected,
            }),
            Err(error) => {
                let _ = self.end_exec_of_notebook(&connected, &id).await;
                Err(error)
            }
        }
    }

    /// Waits until the kernel reports that it listens.
    async fn until_ready(&self, connected: &Connected, mut follow: Follow) -> Result<(), NoKernel> {
        let mut errors = Vec::new();
        loop {
            let event = follow.next().await;
            let event = event.map_err(|error| self.unreachable(connected, error))?;
            match event.map(|event| event.kind) {
                Some(EventKind::Started(_)) => {}
                Some(EventKind::Output(Output::Stdout, _)) => return Ok(()),
                Some(EventKind::Output(Output::Stderr, data)) => {
                    let room = ERROR_BYTES_MAX.saturating_sub(errors.len());
                    errors.extend_from_slice(&data[..data.len().min(room)]);
                }
                Some(EventKind::Exit(exit)) => return Err(not_started(&exit, &errors)),
                None => return Err(not_usable("it ended").into()),
            }
        }
    }

    fn unreachable(&self, connected: &Connected, error: AgentError) -> ServiceError {
        self.connection.report(connected, &error);
        match error {
            AgentError::TooOld { .. } | AgentError::Version { .. } => {
                ServiceError::agent_too_old(&error)
            }
            AgentError::Refused { .. } | AgentError::Lost | AgentError::Protocol(_) => {
                ServiceError::Unavailable {
                    reason: "the container did not answer; ask again".to_owned(),
                    source: Some(Box::new(error)),
                }
            }
        }
    }
}

impl Kernel {
    /// Whether no end of the kernel has arrived. Other pending frames are unsolicited, and dropped.
    async fn is_alive(&mut self) -> bool {
        for _ in 0..FORGED_FRAMES_MAX {
            let here = tokio::select! {
                biased;
                frame = self.channel.next() => frame,
                () = std::future::ready(()) => return true,
            };
            match here {
                Ok(NotebookFrame::Event(NotebookEvent::Died(_))) | Err(_) => return false,
                Ok(_) => {}
            }
        }
        false
    }
}

/// The path of the socket on which a container's kernel listens.
fn socket(agent: &Agent) -> String {
    let boot_id = u128::from_be_bytes(agent.hello().boot_id);
    format!("/tmp/.notebook-{boot_id:032x}")
}

async fn hello(agent: &Agent) -> Option<(NotebookChannel, NotebookHello)> {
    let said = async {
        let mut channel = agent.open_notebook(&socket(agent)).await.ok()?;
        let hello = channel.hello().await;
        let said = hello.map_err(|error: NotebookError| tracing::debug!(%error, "no notebook"));
        said.ok().map(|hello| (channel, hello))
    };
    tokio::time::timeout(HELLO_TIMEOUT, said)
        .await
        .ok()
        .flatten()
}

fn not_started(exit: &Exit, errors: &[u8]) -> NoKernel {
    if let ExitCause::NotStarted { .. } = exit.cause
        && let Some(cause) = end::not_started(&exit.cause)
    {
        return NoKernel::NotStarted(cause);
    }
    tracing::debug!(
        errors = &*String::from_utf8_lossy(errors),
        "a notebook does not start"
    );
    not_usable("it needs Python 3.8 or newer, memory and room in /tmp").into()
}

fn not_usable(why: &str) -> ServiceError {
    ServiceError::Unavailable {
        reason: format!("the interpreter of this session could not be started: {why}"),
        source: None,
    }
}
