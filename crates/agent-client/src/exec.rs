//! Execs: start, follow, input, signals, end.

use std::time::Duration;

use bytes::Bytes;
use hotcell_agent_api::bounds::{EXEC_ID_BYTES_MAX, EXECS_MAX};
use hotcell_agent_api::v1::exec_event::Event as WireEvent;
use hotcell_agent_api::v1::exec_request::Request;
use hotcell_agent_api::v1::{
    self, CancelRequest, EnvVar, ExecAck, ExecEvent, ExecRequest, ExecResume, ExecStart,
    ForgetRequest, InputRequest, ListExecsRequest, ResizeRequest, ShutdownRequest, SignalRequest,
    WarmUpRequest,
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use crate::error::printable;
use crate::transfer::check_chunk;
use crate::{Agent, AgentError, Changes, Cleanup, Feature};

/// Acknowledgements that wait to be sent. Each one covers all before it, so one that finds the
/// queue full is dropped: the next one does.
const ACKS_QUEUED_MAX: usize = 16;

/// A command to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// The program, then its arguments.
    pub argv: Vec<Vec<u8>>,
    /// The complete environment: nothing is inherited.
    pub env: Vec<(Vec<u8>, Vec<u8>)>,
    /// An absolute path.
    pub cwd: Vec<u8>,
    /// User and group id, if not the agent's own.
    pub user: Option<(u32, u32)>,
    /// The agent enforces it, even while no server is connected.
    pub timeout: Option<Duration>,
    /// Time between SIGTERM and SIGKILL after the timeout.
    pub grace: Duration,
    /// Keep stdin open for [`Agent::input`].
    pub stdin: bool,
    /// All of its stdin, at most [`CHUNK_BYTES_MAX`](crate::bounds::CHUNK_BYTES_MAX), instead of
    /// calls of [`Agent::input`]. Needs `stdin`, and an agent with [`Feature::Input`].
    pub input: Option<Bytes>,
    /// The size of its terminal; `None`: pipes.
    pub tty: Option<Winsize>,
    /// The interpreter that `argv` starts with a script, if a warm one may run it. Not sent to
    /// agents that lack [`Feature::WarmPython`].
    pub warm_interpreter: Option<Interpreter>,
    /// What the agent does once it has ended. Not sent to agents that lack [`Feature::Cleanup`].
    pub cleanup: Option<Cleanup>,
}

/// An interpreter that an agent can warm up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interpreter {
    /// Python 3.8 or newer.
    Python,
}

/// The size of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Winsize {
    /// Lines.
    pub rows: u16,
    /// Columns.
    pub cols: u16,
}

/// An event of an exec.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// From 1, without gaps.
    pub seq: u64,
    /// The container's clock, in milliseconds since 1970.
    pub unix_ms: u64,
    /// The kind of event, with its data.
    pub kind: EventKind,
}

/// The kinds of events of an exec.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventKind {
    /// It runs, with this pid inside the container.
    Started(u32),
    /// It wrote these bytes; never empty.
    Output(Output, Bytes),
    /// It ended. Always the last event.
    Exit(Exit),
}

/// The stream to which an exec wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// Standard output, or the terminal.
    Stdout,
    /// Standard error.
    Stderr,
}

/// How an exec ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exit {
    /// Whether it ended by itself or was ended.
    pub cause: ExitCause,
    /// Its exit code, if it exited.
    pub code: Option<u8>,
    /// The signal that killed it, if any.
    pub signal: Option<u8>,
    /// The resources it used.
    pub usage: Usage,
    /// What its cleanup found; `None` if the agent did none.
    pub changes: Option<Changes>,
}

/// Why an exec ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExitCause {
    /// It exited, or was killed by a signal that the agent did not send.
    Exited,
    /// The agent ended it after its timeout.
    TimedOut,
    /// It was cancelled.
    Cancelled,
    /// The command could not be started.
    NotStarted {
        /// The failed step, such as `execve`.
        step: String,
        /// The error of that step.
        errno: i32,
    },
    /// A process inside killed its keeper.
    KeeperKilled,
}

/// Resources used by an exec.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// From start to end.
    pub wall: Duration,
    /// CPU time in user space.
    pub user: Duration,
    /// CPU time in the kernel.
    pub system: Duration,
    /// The largest resident size of one of its processes.
    pub max_rss_bytes: u64,
    /// Written to standard output.
    pub stdout_bytes: u64,
    /// Written to standard error.
    pub stderr_bytes: u64,
}

/// An exec as the agent reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecInfo {
    /// The id it was started with.
    pub exec_id: String,
    /// Whether its leader still runs.
    pub running: bool,
    /// The number of its last event.
    pub last_seq: u64,
    /// The last acknowledged event.
    pub acked_seq: u64,
    /// Bytes of stdin accepted so far.
    pub stdin_accepted: u64,
}

/// Follows one exec. Dropping it leaves the exec running.
#[derive(Debug)]
pub struct Follow {
    events: Streaming<ExecEvent>,
    requests: mpsc::Sender<ExecRequest>,
    order: SequenceCheck,
}

/// Checks the order of events: consecutive numbers, the start first, the exit last.
#[derive(Debug)]
pub(crate) struct SequenceCheck {
    last_seq: u64,
    has_exited: bool,
}

impl Agent {
    /// Starts a command under an id that the caller chooses, and follows it. Idempotent: repeating
    /// the call with the same id and command follows the running exec.
    pub async fn start(&self, exec_id: &str, command: &Command) -> Result<Follow, AgentError> {
        if command.input.is_some() {
            self.require(Feature::Input)?;
        }
        let mut request = start_request(exec_id, command);
        if !self.has(Feature::WarmPython) {
            request.warm_interpreter = v1::Interpreter::NoInterpreter.into();
        }
        if !self.has(Feature::Cleanup) {
            request.cleanup = None;
        }
        self.follow(Request::Start(request), 0).await
    }

    /// Lets the agent warm up an interpreter for execs with this program and environment. Returns
    /// at once, whether or not the container has one.
    pub async fn warm_up(
        &self,
        interpreter: Interpreter,
        program: &[u8],
        env: &[(Vec<u8>, Vec<u8>)],
    ) -> Result<(), AgentError> {
        self.require(Feature::WarmPython)?;
        let request = WarmUpRequest {
            interpreter: v1::Interpreter::from(interpreter).into(),
            program: program.to_vec().into(),
            env: variables(env),
        };
        self.calls().warm_up(request).await?;
        Ok(())
    }

    /// Follows an exec after the last event that the caller has, which also acknowledges it.
    pub async fn resume(&self, exec_id: &str, after_seq: u64) -> Result<Follow, AgentError> {
        let resume = ExecResume {
            exec_id: exec_id.to_owned(),
            after_seq,
        };
        let follow = self.follow(Request::Resume(resume), after_seq).await?;
        // The last acknowledgement may have been lost with the previous stream.
        follow.ack(after_seq);
        Ok(follow)
    }

    async fn follow(&self, first: Request, last_seq: u64) -> Result<Follow, AgentError> {
        let (requests, outgoing) = mpsc::channel(ACKS_QUEUED_MAX);
        // The receiver exists and the queue is empty, so this cannot fail.
        let _ = requests.try_send(ExecRequest {
            request: Some(first),
        });
        let events = self
            .calls()
            .exec(ReceiverStream::new(outgoing))
            .await?
            .into_inner();
        Ok(Follow {
            events,
            requests,
            order: SequenceCheck::after(last_seq),
        })
    }

    /// Writes to an exec's stdin at `offset`; returns how many bytes were accepted in total.
    /// Idempotent.
    pub async fn input(
        &self,
        exec_id: &str,
        offset: u64,
        data: Bytes,
        eof: bool,
    ) -> Result<u64, AgentError> {
        let request = InputRequest {
            exec_id: exec_id.to_owned(),
            offset,
            data,
            eof,
        };
        let end = offset.saturating_add(request.data.len() as u64);
        let accepted = self.calls().input(request).await?.into_inner().accepted;
        if accepted < end {
            return Err(AgentError::Protocol("it lost a part of the input"));
        }
        Ok(accepted)
    }

    /// Signals the process group of the exec's leader, or all its processes.
    pub async fn signal(
        &self,
        exec_id: &str,
        signal: u32,
        whole_tree: bool,
    ) -> Result<(), AgentError> {
        let request = SignalRequest {
            exec_id: exec_id.to_owned(),
            signal,
            whole_tree,
        };
        self.calls().signal(request).await?;
        Ok(())
    }

    /// Sets the size of an exec's terminal.
    pub async fn resize(&self, exec_id: &str, size: Winsize) -> Result<(), AgentError> {
        let request = ResizeRequest {
            exec_id: exec_id.to_owned(),
            size: Some(size.into()),
        };
        self.calls().resize(request).await?;
        Ok(())
    }

    /// Ends all processes of an exec; returns when the last one has exited.
    pub async fn cancel(&self, exec_id: &str, grace: Duration) -> Result<(), AgentError> {
        let request = CancelRequest {
            exec_id: exec_id.to_owned(),
            grace_ms: millis(grace),
        };
        self.calls().cancel(request).await?;
        Ok(())
    }

    /// All execs of the agent, running and finished.
    pub async fn list_execs(&self) -> Result<Vec<ExecInfo>, AgentError> {
        let execs = self
            .calls()
            .list_execs(ListExecsRequest {})
            .await?
            .into_inner()
            .execs;
        parse_execs(execs)
    }

    /// Makes the agent drop a finished exec and its output.
    pub async fn forget(&self, exec_id: &str) -> Result<(), AgentError> {
        self.calls()
            .forget(ForgetRequest {
                exec_id: exec_id.to_owned(),
            })
            .await?;
        Ok(())
    }

    /// Ends every exec, then the container.
    pub async fn shutdown(&self, grace: Duration) -> Result<(), AgentError> {
        self.calls()
            .shutdown(ShutdownRequest {
                grace_ms: millis(grace),
            })
            .await?;
        Ok(())
    }
}

impl Follow {
    /// The next event; `None` only after the exit.
    pub async fn next(&mut self) -> Result<Option<Event>, AgentError> {
        match self.events.message().await? {
            Some(event) => self.order.take(event).map(Some),
            None if self.order.has_exited => Ok(None),
            None => Err(AgentError::Protocol("its events end before the exit")),
        }
    }

    /// Acknowledges all events up to `seq`: the agent drops them. Call it once they are stored.
    pub fn ack(&self, seq: u64) {
        let ack = ExecRequest {
            request: Some(Request::Ack(ExecAck { seq })),
        };
        let _ = self.requests.try_send(ack);
    }
}

impl SequenceCheck {
    pub(crate) fn after(last_seq: u64) -> Self {
        Self {
            last_seq,
            has_exited: false,
        }
    }

    /// Checks an event against the order and returns it.
    pub(crate) fn take(&mut self, event: ExecEvent) -> Result<Event, AgentError> {
        if self.has_exited {
            return Err(AgentError::Protocol("it sent an event after the exit"));
        }
        if self.last_seq.checked_add(1) != Some(event.seq) {
            return Err(AgentError::Protocol(
                "its events are not numbered one by one",
            ));
        }
        let event = Event::parse(event)?;
        // Output may come before the start, if the command killed its keeper before the keeper
        // could report the start.
        if matches!(event.kind, EventKind::Started(_)) && event.seq != 1 {
            return Err(AgentError::Protocol("an exec starts in the middle"));
        }
        self.last_seq = event.seq;
        self.has_exited = matches!(event.kind, EventKind::Exit(_));
        Ok(event)
    }
}

pub(crate) fn parse_execs(execs: Vec<v1::ExecInfo>) -> Result<Vec<ExecInfo>, AgentError> {
    let is_legal = |exec: &v1::ExecInfo| {
        (1..=EXEC_ID_BYTES_MAX).contains(&exec.exec_id.len())
            && exec.exec_id.bytes().all(|byte| byte.is_ascii_graphic())
            && exec.acked_seq <= exec.last_seq
    };
    if execs.len() > EXECS_MAX || !execs.iter().all(is_legal) {
        return Err(AgentError::Protocol("it lists execs that it cannot hold"));
    }
    Ok(execs.into_iter().map(ExecInfo::from).collect())
}

impl Event {
    fn parse(event: ExecEvent) -> Result<Self, AgentError> {
        let kind = match event.event {
            Some(WireEvent::Started(started)) => EventKind::Started(started.pid),
            Some(WireEvent::Output(output)) => parse_output(output)?,
            Some(WireEvent::Exit(exit)) => EventKind::Exit(Exit::parse(exit)?),
            None => return Err(AgentError::Protocol("it sent an empty event")),
        };
        Ok(Self {
            seq: event.seq,
            unix_ms: event.unix_ms,
            kind,
        })
    }
}

fn parse_output(output: v1::Output) -> Result<EventKind, AgentError> {
    check_chunk(&output.data)?;
    let stream = match output.stream() {
        v1::Stream::Stdout => Output::Stdout,
        v1::Stream::Stderr => Output::Stderr,
        v1::Stream::Unspecified => return Err(AgentError::Protocol("its output has no stream")),
    };
    Ok(EventKind::Output(stream, output.data))
}

impl Exit {
    fn parse(exit: v1::Exit) -> Result<Self, AgentError> {
        let cause = match exit.cause() {
            v1::ExitCause::Exited => ExitCause::Exited,
            v1::ExitCause::TimedOut => ExitCause::TimedOut,
            v1::ExitCause::Cancelled => ExitCause::Cancelled,
            v1::ExitCause::KeeperKilled => ExitCause::KeeperKilled,
            v1::ExitCause::NotStarted => not_started(&exit)?,
            v1::ExitCause::Unspecified => {
                return Err(AgentError::Protocol("an exit has no cause"));
            }
        };
        let byte = |number: u32| u8::try_from(number);
        let wrong = |_| AgentError::Protocol("an exit code or signal is over 255");
        Ok(Self {
            cause,
            code: exit.code.map(byte).transpose().map_err(wrong)?,
            signal: exit.signal.map(byte).transpose().map_err(wrong)?,
            usage: exit.usage.map(Usage::from).unwrap_or_default(),
            changes: exit.changes.map(Changes::parse).transpose()?,
        })
    }
}

fn not_started(exit: &v1::Exit) -> Result<ExitCause, AgentError> {
    let error = exit.start_error.as_ref();
    let error = error.ok_or(AgentError::Protocol("a failed start has no reason"))?;
    let errno = i32::try_from(error.errno)
        .ok()
        .filter(|errno| (1..4096).contains(errno));
    Ok(ExitCause::NotStarted {
        step: printable(&error.step),
        errno: errno.ok_or(AgentError::Protocol("an errno is out of range"))?,
    })
}

impl From<v1::Usage> for Usage {
    fn from(usage: v1::Usage) -> Self {
        Self {
            wall: Duration::from_micros(usage.wall_us),
            user: Duration::from_micros(usage.user_us),
            system: Duration::from_micros(usage.system_us),
            max_rss_bytes: usage.max_rss_bytes,
            stdout_bytes: usage.stdout_bytes,
            stderr_bytes: usage.stderr_bytes,
        }
    }
}

impl From<v1::ExecInfo> for ExecInfo {
    fn from(info: v1::ExecInfo) -> Self {
        Self {
            exec_id: info.exec_id,
            running: info.running,
            last_seq: info.last_seq,
            acked_seq: info.acked_seq,
            stdin_accepted: info.stdin_accepted,
        }
    }
}

impl From<Winsize> for v1::Winsize {
    fn from(size: Winsize) -> Self {
        Self {
            rows: size.rows.into(),
            cols: size.cols.into(),
        }
    }
}

fn start_request(exec_id: &str, command: &Command) -> ExecStart {
    ExecStart {
        exec_id: exec_id.to_owned(),
        argv: command.argv.iter().cloned().map(Bytes::from).collect(),
        env: variables(&command.env),
        cwd: command.cwd.clone().into(),
        uid: command.user.map(|(uid, _)| uid),
        gid: command.user.map(|(_, gid)| gid),
        timeout_ms: command.timeout.map_or(0, |timeout| millis(timeout).max(1)),
        grace_ms: millis(command.grace),
        stdin: command.stdin,
        input: command.input.clone(),
        tty: command.tty.map(v1::Winsize::from),
        warm_interpreter: command
            .warm_interpreter
            .map_or(v1::Interpreter::NoInterpreter, Into::into)
            .into(),
        cleanup: command.cleanup.clone().map(v1::Cleanup::from),
    }
}

fn variables(env: &[(Vec<u8>, Vec<u8>)]) -> Vec<EnvVar> {
    let variable = |(name, value): &(Vec<u8>, Vec<u8>)| EnvVar {
        name: name.clone().into(),
        value: value.clone().into(),
    };
    env.iter().map(variable).collect()
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl Command {
    /// A command with only arguments, a `PATH` and the working directory `/`.
    pub fn new<A: Into<Vec<u8>>>(argv: impl IntoIterator<Item = A>) -> Self {
        Self {
            argv: argv.into_iter().map(Into::into).collect(),
            env: vec![(b"PATH".to_vec(), b"/usr/local/bin:/usr/bin:/bin".to_vec())],
            cwd: b"/".to_vec(),
            user: None,
            timeout: None,
            grace: Duration::from_secs(3),
            stdin: false,
            input: None,
            tty: None,
            warm_interpreter: None,
            cleanup: None,
        }
    }
}

impl From<Interpreter> for v1::Interpreter {
    fn from(interpreter: Interpreter) -> Self {
        match interpreter {
            Interpreter::Python => Self::Python,
        }
    }
}
