//! Running commands.

use std::time::Duration;

use bytes::Bytes;
use hotcell_agent_api::bounds::{EXEC_ID_BYTES_MAX, EXECS_MAX};
use hotcell_agent_api::v1::exec_event::Event as WireEvent;
use hotcell_agent_api::v1::exec_request::Request;
use hotcell_agent_api::v1::{
    self, CancelRequest, EnvVar, ExecAck, ExecEvent, ExecRequest, ExecResume, ExecStart,
    ForgetRequest, InputRequest, ListExecsRequest, ResizeRequest, ShutdownRequest, SignalRequest,
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use crate::error::printable;
use crate::transfer::check_chunk;
use crate::{Agent, AgentError};

/// Acknowledgements that wait to be sent. Each covers all before it, so one that
/// finds no room is dropped: a later one will do.
const ACKS_QUEUED_MAX: usize = 16;

/// A command to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// The program and its arguments.
    pub argv: Vec<Vec<u8>>,
    /// The whole environment.
    pub env: Vec<(Vec<u8>, Vec<u8>)>,
    /// An absolute directory.
    pub cwd: Vec<u8>,
    /// User and group, if not the agent's own.
    pub user: Option<(u32, u32)>,
    /// When the agent ends it.
    pub timeout: Option<Duration>,
    /// From TERM to KILL after the timeout.
    pub grace: Duration,
    /// Keep stdin open for [`Agent::input`].
    pub stdin: bool,
    /// Give it a terminal of this size.
    pub tty: Option<Winsize>,
}

/// The size of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Winsize {
    /// Lines.
    pub rows: u16,
    /// Columns.
    pub cols: u16,
}

/// Something an exec did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Numbered from 1, without gaps.
    pub seq: u64,
    /// By the container's clock, in milliseconds.
    pub unix_ms: u64,
    /// What it was.
    pub kind: EventKind,
}

/// What an exec did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventKind {
    /// It runs, with this pid inside the container.
    Started(u32),
    /// It wrote.
    Output(Output, Bytes),
    /// It ended. Always the last.
    Exit(Exit),
}

/// Where an exec wrote.
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
    /// Who ended it.
    pub cause: ExitCause,
    /// Its exit code, if it exited.
    pub code: Option<u8>,
    /// The signal that ended it, if one did.
    pub signal: Option<u8>,
    /// What it used.
    pub usage: Usage,
}

/// Who ended an exec.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExitCause {
    /// It ended by itself, or by a signal that was not ours.
    Exited,
    /// Its time was up.
    TimedOut,
    /// It was cancelled.
    Cancelled,
    /// It never ran.
    NotStarted {
        /// What could not be done.
        step: String,
        /// Why.
        errno: i32,
    },
    /// Something inside killed the process that keeps it together.
    KeeperKilled,
}

/// What an exec used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// From start to end.
    pub wall: Duration,
    /// Processor time in user space.
    pub user: Duration,
    /// Processor time in the kernel.
    pub system: Duration,
    /// The most memory one of its processes had.
    pub max_rss_bytes: u64,
    /// Written to standard output.
    pub stdout_bytes: u64,
    /// Written to standard error.
    pub stderr_bytes: u64,
}

/// An exec that the agent holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecInfo {
    /// The id it was started with.
    pub exec_id: String,
    /// Whether its leader runs.
    pub running: bool,
    /// The last number it has.
    pub last_seq: u64,
    /// The last number that was acknowledged.
    pub acked_seq: u64,
    /// Bytes of stdin it has accepted.
    pub stdin_accepted: u64,
}

/// Follows one exec. Dropping it leaves the exec running.
#[derive(Debug)]
pub struct Follow {
    events: Streaming<ExecEvent>,
    requests: mpsc::Sender<ExecRequest>,
    order: SequenceCheck,
}

/// The order in which events must come: numbered one by one, a start first and the exit
/// last.
#[derive(Debug)]
pub(crate) struct SequenceCheck {
    last_seq: u64,
    has_exited: bool,
}

impl Agent {
    /// Starts a command under an id of the caller's choice and follows it. Repeating
    /// the call with the same id and command follows the one that runs.
    pub async fn start(&self, exec_id: &str, command: &Command) -> Result<Follow, AgentError> {
        self.follow(Request::Start(start_request(exec_id, command)), 0)
            .await
    }

    /// Goes on following an exec after the last number the caller has, which is
    /// acknowledged by that.
    pub async fn resume(&self, exec_id: &str, after_seq: u64) -> Result<Follow, AgentError> {
        let resume = ExecResume {
            exec_id: exec_id.to_owned(),
            after_seq,
        };
        let follow = self.follow(Request::Resume(resume), after_seq).await?;
        // An acknowledgement that was under way when the last stream broke is lost.
        follow.ack(after_seq);
        Ok(follow)
    }

    async fn follow(&self, first: Request, last_seq: u64) -> Result<Follow, AgentError> {
        let (requests, outgoing) = mpsc::channel(ACKS_QUEUED_MAX);
        // The receiver is right here and the queue is empty, so this cannot fail.
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

    /// Writes to an exec's stdin, `offset` bytes after its beginning, and answers how
    /// many bytes it has accepted in all. Safe to repeat.
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

    /// Sends a signal to the exec's leader and its process group, or to all of it.
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

    /// Ends an exec and everything it started; returns when all of it is gone.
    pub async fn cancel(&self, exec_id: &str, grace: Duration) -> Result<(), AgentError> {
        let request = CancelRequest {
            exec_id: exec_id.to_owned(),
            grace_ms: millis(grace),
        };
        self.calls().cancel(request).await?;
        Ok(())
    }

    /// Every exec the agent holds.
    pub async fn list_execs(&self) -> Result<Vec<ExecInfo>, AgentError> {
        let execs = self
            .calls()
            .list_execs(ListExecsRequest {})
            .await?
            .into_inner()
            .execs;
        parse_execs(execs)
    }

    /// Drops a finished exec.
    pub async fn forget(&self, exec_id: &str) -> Result<(), AgentError> {
        self.calls()
            .forget(ForgetRequest {
                exec_id: exec_id.to_owned(),
            })
            .await?;
        Ok(())
    }

    /// Ends every exec and then the container.
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
    /// The next event; `None` after the exit and only there.
    pub async fn next(&mut self) -> Result<Option<Event>, AgentError> {
        match self.events.message().await? {
            Some(event) => self.order.take(event).map(Some),
            None if self.order.has_exited => Ok(None),
            None => Err(AgentError::Protocol("its events end before the exit")),
        }
    }

    /// Lets the agent forget everything up to `seq`. Call it for what is stored.
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

    /// Takes the next event if it is one that may come now.
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
        // Output may come first: of a command that killed its keeper before that could
        // tell of the start.
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
            Some(WireEvent::Exit(exit)) => EventKind::Exit(Exit::parse(&exit)?),
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
    fn parse(exit: &v1::Exit) -> Result<Self, AgentError> {
        let cause = match exit.cause() {
            v1::ExitCause::Exited => ExitCause::Exited,
            v1::ExitCause::TimedOut => ExitCause::TimedOut,
            v1::ExitCause::Cancelled => ExitCause::Cancelled,
            v1::ExitCause::KeeperKilled => ExitCause::KeeperKilled,
            v1::ExitCause::NotStarted => not_started(exit)?,
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
    let env = command.env.iter();
    let variable = |(name, value): &(Vec<u8>, Vec<u8>)| EnvVar {
        name: name.clone().into(),
        value: value.clone().into(),
    };
    ExecStart {
        exec_id: exec_id.to_owned(),
        argv: command.argv.iter().cloned().map(Bytes::from).collect(),
        env: env.map(variable).collect(),
        cwd: command.cwd.clone().into(),
        uid: command.user.map(|(uid, _)| uid),
        gid: command.user.map(|(_, gid)| gid),
        timeout_ms: command.timeout.map_or(0, |timeout| millis(timeout).max(1)),
        grace_ms: millis(command.grace),
        stdin: command.stdin,
        tty: command.tty.map(v1::Winsize::from),
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl Command {
    /// A command with nothing but its arguments, a `PATH` and `/` to run in.
    pub fn new<A: Into<Vec<u8>>>(argv: impl IntoIterator<Item = A>) -> Self {
        Self {
            argv: argv.into_iter().map(Into::into).collect(),
            env: vec![(b"PATH".to_vec(), b"/usr/local/bin:/usr/bin:/bin".to_vec())],
            cwd: b"/".to_vec(),
            user: None,
            timeout: None,
            grace: Duration::from_secs(3),
            stdin: false,
            tty: None,
        }
    }
}
