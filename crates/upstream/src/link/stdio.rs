//! A server that is a child process.
//!
//! It is the leader of a process group of its own, gets only the variables that its entry names
//! and a few of ours without secrets, and ends when its standard input does, after SIGTERM, or after
//! SIGKILL. What it started goes with it: the whole group is killed when the leader has ended.

use std::process::{ExitStatus, Stdio as Pipe};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::lines::{Line, answered_id, read_line};
use crate::bounds::{
    OUTGOING_MESSAGES_MAX, RESULT_BYTES_MAX, STDERR_LINE_BYTES_MAX, STDERR_LINES_PER_MINUTE_MAX,
    STOP_GRACE,
};
use crate::rpc::{Failure, Peer};
use crate::settings::{Environment, Program, Redactor, Resolved};
use crate::text::on_one_line;

/// Variables of ours that a server gets, because programs do not start without them.
const INHERITED: [&str; 12] = [
    "PATH",
    "HOME",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "USER",
    "LOGNAME",
    "SHELL",
    "TERM",
    "TMPDIR",
    "XDG_RUNTIME_DIR",
];

/// A running child.
pub(crate) struct Stdio {
    outgoing: mpsc::Sender<Bytes>,
    peer: Arc<Peer>,
    stop: CancellationToken,
    #[expect(dead_code, reason = "dropped, they end, and the child with them")]
    tasks: [AbortOnDropHandle<()>; 4],
}

impl Stdio {
    /// Starts the program. The error names no path and no value.
    pub(crate) fn start(
        program: &Program,
        environment: Environment<'_>,
        peer: &Arc<Peer>,
    ) -> Result<(Self, Redactor), String> {
        let (mut command, redactor) = command(program, environment)?;
        let mut child = command.spawn().map_err(|error| not_started(&error))?;
        let (stdin, stdout, stderr) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let streams = stdin.zip(stdout).zip(stderr);
        let ((stdin, stdout), stderr) = streams.ok_or("its streams could not be opened")?;
        let group = Group::led_by(&child);
        let (outgoing, queue) = mpsc::channel(OUTGOING_MESSAGES_MAX);
        let stop = CancellationToken::new();
        let tasks = [
            tokio::spawn(write(stdin, queue, stop.clone())),
            tokio::spawn(read(stdout, Arc::clone(peer), outgoing.clone())),
            tokio::spawn(log(stderr, Arc::clone(peer), redactor.clone())),
            tokio::spawn(watch(child, group, Arc::clone(peer), stop.clone())),
        ]
        .map(AbortOnDropHandle::new);
        let link = Self {
            outgoing,
            peer: Arc::clone(peer),
            stop,
            tasks,
        };
        Ok((link, redactor))
    }

    pub(crate) async fn send(&self, body: Bytes) -> Result<(), Failure> {
        match self.outgoing.send(body).await {
            Ok(()) => Ok(()),
            Err(_) => Err(Failure::Closed(self.peer.closed().await)),
        }
    }

    pub(crate) async fn stop(&self) {
        self.stop.cancel();
        self.peer.closed().await;
    }
}

fn not_started(error: &std::io::Error) -> String {
    use std::io::ErrorKind;
    let kind = error.kind();
    if kind == ErrorKind::NotFound {
        return "its program or working directory does not exist".to_owned();
    }
    format!("its program could not be executed ({kind})")
}

fn command(program: &Program, environment: Environment<'_>) -> Result<(Command, Redactor), String> {
    let missing = |name: String| format!("the environment variable {name} is not set");
    let resolve =
        |template: &crate::settings::Template| template.resolve(environment).map_err(missing);
    let mut command = Command::new(resolve(&program.command)?.expose());
    let mut secrets: Vec<Resolved> = Vec::new();
    for argument in &program.arguments {
        let value = resolve(argument)?;
        command.arg(value.expose());
        // A plain argument is in the entry for everybody to see; a variable is not.
        secrets.extend(argument.variables().next().is_some().then_some(value));
    }
    command.env_clear();
    for name in INHERITED {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    for (name, template) in &program.environment {
        let value = resolve(template)?;
        command.env(name, value.expose());
        secrets.push(value);
    }
    if let Some(directory) = &program.directory {
        command.current_dir(directory);
    }
    command
        .stdin(Pipe::piped())
        .stdout(Pipe::piped())
        .stderr(Pipe::piped());
    command.process_group(0).kill_on_drop(true);
    Ok((command, Redactor::new(secrets.iter())))
}

/// Writes what is sent, until the server is to end or does not read any more.
async fn write(mut stdin: ChildStdin, mut queue: mpsc::Receiver<Bytes>, stop: CancellationToken) {
    let write = async {
        while let Some(body) = queue.recv().await {
            let written = async {
                stdin.write_all(&body).await?;
                stdin.write_all(b"\n").await?;
                stdin.flush().await
            };
            if written.await.is_err() {
                break;
            }
        }
    };
    tokio::select! {
        () = write => {}
        () = stop.cancelled() => {}
    }
    // Dropping stdin tells the server to end.
}

/// Reads messages, and queues answers to those that want one; a server that floods us with requests
/// and does not read gets none.
async fn read(stdout: ChildStdout, peer: Arc<Peer>, outgoing: mpsc::Sender<Bytes>) {
    let mut reader = BufReader::with_capacity(64 << 10, stdout);
    let mut buffer = Vec::new();
    loop {
        match read_line(&mut reader, &mut buffer, RESULT_BYTES_MAX).await {
            Ok(Line::Whole) => {
                receive(&buffer, &peer, &outgoing);
                // What a large answer needed is not kept for the next.
                buffer.shrink_to(64 << 10);
            }
            Ok(Line::TooLong { start, end }) => {
                peer.note_garbage("(a line that is too long)");
                if let Some(id) = answered_id(&start, &end) {
                    peer.settle(id, Err(Failure::TooLarge));
                }
            }
            Ok(Line::End) | Err(_) => return,
        }
    }
}

fn receive(line: &[u8], peer: &Peer, outgoing: &mpsc::Sender<Bytes>) {
    match std::str::from_utf8(line) {
        Ok(text) if text.trim().is_empty() => {}
        Ok(text) => {
            for reply in peer.receive(text) {
                let _ = outgoing.try_send(reply.into());
            }
        }
        Err(_) => peer.note_garbage(&String::from_utf8_lossy(&line[..line.len().min(512)])),
    }
}

/// Logs what the server writes to stderr: so many lines a minute, each cut and escaped.
async fn log(stderr: ChildStderr, peer: Arc<Peer>, redactor: Redactor) {
    let mut reader = BufReader::with_capacity(8 << 10, stderr);
    let (mut buffer, mut minute, mut lines) = (Vec::new(), Instant::now(), 0_u32);
    loop {
        let text = match read_line(&mut reader, &mut buffer, STDERR_LINE_BYTES_MAX).await {
            Ok(Line::Whole) => String::from_utf8_lossy(&buffer).into_owned(),
            Ok(Line::TooLong { start, .. }) => format!("{}…", String::from_utf8_lossy(&start)),
            Ok(Line::End) | Err(_) => return,
        };
        if minute.elapsed() > Duration::from_mins(1) {
            if lines > STDERR_LINES_PER_MINUTE_MAX {
                let left_out = lines - STDERR_LINES_PER_MINUTE_MAX;
                tracing::warn!(upstream = %peer.server(), left_out, "an MCP server wrote too much to stderr");
            }
            (minute, lines) = (Instant::now(), 0);
        }
        lines = lines.saturating_add(1);
        if lines <= STDERR_LINES_PER_MINUTE_MAX && !text.trim().is_empty() {
            let text = on_one_line(&redactor.redact(&text), STDERR_LINE_BYTES_MAX);
            tracing::info!(upstream = %peer.server(), "{text}");
        }
    }
}

/// Waits for the child's end, or ends it; closes the connection then.
async fn watch(mut child: Child, group: Group, peer: Arc<Peer>, stop: CancellationToken) {
    let ended = tokio::select! {
        ended = child.wait() => Some(ended),
        () = stop.cancelled() => None,
    };
    let why = match ended {
        Some(Ok(status)) => described(status),
        Some(Err(_)) => "its process is gone".to_owned(),
        None => {
            end(&mut child, &group).await;
            "it was stopped".to_owned()
        }
    };
    drop(group);
    peer.close(why);
}

async fn end(child: &mut Child, group: &Group) {
    if timeout(STOP_GRACE, child.wait()).await.is_ok() {
        return;
    }
    group.signal(Signal::TERM);
    if timeout(STOP_GRACE, child.wait()).await.is_err() {
        group.signal(Signal::KILL);
        let _ = child.wait().await;
    }
}

fn described(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("its process ended with exit code {code}"),
        (None, Some(signal)) => format!("its process was ended by signal {signal}"),
        (None, None) => "its process ended".to_owned(),
    }
}

/// The processes that a server consists of. Dropped, all of them are killed.
struct Group(Option<Pid>);

impl Group {
    fn led_by(child: &Child) -> Self {
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        Self(id.and_then(Pid::from_raw))
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.0 {
            // It may have ended.
            let _ = kill_process_group(group, signal);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The number is not given to another group before the last process of this one is gone, and
        // the kernel counts through all others before it gives out the leader's again.
        self.signal(Signal::KILL);
    }
}
