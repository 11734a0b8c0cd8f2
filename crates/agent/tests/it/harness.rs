//! Drives the real agent over its socket.
#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "each test file uses its own part, and all of it is for tests"
)]

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use hotcell_agent_api::bounds;
use hotcell_agent_api::v1::agent_client::AgentClient;
use hotcell_agent_api::v1::exec_event::Event;
use hotcell_agent_api::v1::exec_request::Request as Call;
use hotcell_agent_api::v1::{
    EnvVar, ExecAck, ExecEvent, ExecInfo, ExecRequest, ExecResume, ExecStart, Exit, InputRequest,
    ListExecsRequest, Stream,
};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Status, Streaming};

/// The deadline of every wait; only a hanging test reaches it.
pub(crate) const DEADLINE: Duration = Duration::from_mins(2);

/// A running agent and a connection to it.
pub(crate) struct Agent {
    child: Child,
    directory: tempfile::TempDir,
    pub client: AgentClient<Channel>,
}

impl Agent {
    pub(crate) async fn start() -> Self {
        Self::start_by(&[]).await
    }

    /// Starts the agent through a wrapper program.
    pub(crate) async fn start_by(wrapper: &[&str]) -> Self {
        Self::launch(wrapper, &[]).await
    }

    /// Starts the agent with further options.
    pub(crate) async fn start_with(options: &[&str]) -> Self {
        Self::launch(&[], options).await
    }

    async fn launch(wrapper: &[&str], options: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let anybody = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(directory.path(), anybody).unwrap();
        let socket = directory.path().join("agent");
        let mut command = wrapper.iter().map(Into::into).chain([program()]);
        let child = Command::new(command.next().unwrap())
            .args(command)
            .args([
                "init",
                "--root",
                "/tmp",
                "--linger-ms",
                "100",
                "--listen-path",
            ])
            .arg(&socket)
            .args(options)
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut agent = Self {
            child,
            directory,
            client: unconnected(),
        };
        let mut stream = None;
        // The socket's file exists a moment before anyone listens.
        until("the agent listens", || {
            stream = StdUnixStream::connect(&socket).ok();
            stream.is_some()
        })
        .await;
        let stream = stream.unwrap();
        stream.set_nonblocking(true).unwrap();
        agent.client = connect_over(UnixStream::from_std(stream).unwrap()).await;
        agent
    }

    pub(crate) fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// A second connection.
    pub(crate) async fn another_connection(&self) -> AgentClient<Channel> {
        connect(self.directory.path().join("agent")).await
    }

    pub(crate) fn socket(&self) -> std::path::PathBuf {
        self.directory.path().join("agent")
    }

    /// Runs a shell script to its end.
    pub(crate) async fn sh(&self, script: &str) -> Finished {
        self.run(shell("sh", script)).await
    }

    pub(crate) async fn run(&self, start: ExecStart) -> Finished {
        self.start_exec(start).await.unwrap().finish().await
    }

    pub(crate) async fn start_exec(&self, start: ExecStart) -> Result<Following, Status> {
        follow(&self.client, Call::Start(start)).await
    }

    pub(crate) async fn resume(&self, id: &str, after_seq: u64) -> Result<Following, Status> {
        let resume = ExecResume {
            exec_id: id.into(),
            after_seq,
        };
        follow(&self.client, Call::Resume(resume)).await
    }

    pub(crate) async fn input(
        &self,
        id: &str,
        offset: u64,
        data: impl Into<Vec<u8>>,
        eof: bool,
    ) -> Result<u64, Status> {
        let request = InputRequest {
            exec_id: id.into(),
            offset,
            data: data.into().into(),
            eof,
        };
        let reply = within(self.client.clone().input(request)).await?;
        Ok(reply.into_inner().accepted)
    }

    pub(crate) async fn cancel(&self, id: &str, grace_ms: u64) -> Result<(), Status> {
        let request = hotcell_agent_api::v1::CancelRequest {
            exec_id: id.into(),
            grace_ms,
        };
        within(self.client.clone().cancel(request))
            .await
            .map(|_| ())
    }

    pub(crate) async fn info(&self, id: &str) -> ExecInfo {
        let reply = self.client.clone().list_execs(ListExecsRequest {}).await;
        let execs = reply.unwrap().into_inner().execs;
        execs.into_iter().find(|exec| exec.exec_id == id).unwrap()
    }

    /// Waits until all events of an exec are acknowledged.
    pub(crate) async fn until_acknowledged(&self, id: &str) {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let info = self.info(id).await;
            if info.acked_seq == info.last_seq {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "the last acknowledgement is read"
            );
        }
    }

    /// Closes the connection.
    pub(crate) fn disconnect(&mut self) {
        self.client = unconnected();
    }

    /// Waits until the agent has ended.
    pub(crate) async fn ended(&mut self) -> std::process::ExitStatus {
        let mut status = None;
        until("the agent ends", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        })
        .await;
        status.unwrap()
    }

    /// Resident memory of the agent.
    pub(crate) fn resident_bytes(&self) -> u64 {
        self.status_bytes("VmRSS:")
    }

    /// Its heap and stacks.
    pub(crate) fn anonymous_bytes(&self) -> u64 {
        self.status_bytes("RssAnon:")
    }

    fn status_bytes(&self, field: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        let kib = line.unwrap().trim().trim_end_matches(" kB");
        kib.parse::<u64>().unwrap() << 10
    }
}

impl Drop for Agent {
    /// Kills all descendants of the agent, which reaps them, and then the agent.
    fn drop(&mut self) {
        let deadline = Instant::now() + DEADLINE;
        while Instant::now() < deadline {
            let left = descendants(self.pid());
            if left.is_empty() {
                break;
            }
            for pid in left {
                signal(pid, "KILL");
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The agent built for the tests, unless a variable names another.
pub(crate) fn program() -> std::ffi::OsString {
    std::env::var_os("HOTCELL_AGENT_PROGRAM")
        .unwrap_or_else(|| env!("CARGO_BIN_EXE_hotcell-agent").into())
}

fn descendants(root: i32) -> Vec<i32> {
    let mut found = vec![root];
    let mut index = 0;
    while index < found.len() {
        found.extend(children(found[index]));
        index += 1;
    }
    found.remove(0);
    found
}

/// The children of a process, including zombies.
pub(crate) fn children(parent: i32) -> Vec<i32> {
    let numbers = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    numbers
        .filter(|pid| parent_of(*pid) == Some(parent))
        .collect()
}

fn parent_of(pid: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?
        .1
        .split_whitespace()
        .nth(1)?
        .parse()
        .ok()
}

/// Whether a process exists and is not a zombie.
pub(crate) fn is_alive(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit_once(')')
        .and_then(|(_, rest)| rest.split_whitespace().next());
    state.is_some_and(|state| state != "Z")
}

pub(crate) fn signal(pid: i32, name: &str) {
    let _ = Command::new("kill")
        .args(["-s", name, &pid.to_string()])
        .stderr(Stdio::null())
        .status();
}

async fn connect(socket: std::path::PathBuf) -> AgentClient<Channel> {
    connect_over(UnixStream::connect(socket).await.unwrap()).await
}

fn unconnected() -> AgentClient<Channel> {
    AgentClient::new(Endpoint::from_static("http://nobody").connect_lazy())
}

/// Connects over one stream; a second connection would fail.
pub(crate) async fn connect_over(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
) -> AgentClient<Channel> {
    let mut stream = Some(TokioIo::new(stream));
    let connector = tower::service_fn(move |_| {
        let stream = stream
            .take()
            .ok_or_else(|| std::io::Error::other("the stream is lost"));
        async move { stream }
    });
    let channel = Endpoint::from_static("http://agent")
        .initial_stream_window_size(bounds::STREAM_WINDOW_BYTES)
        .initial_connection_window_size(bounds::CONNECTION_WINDOW_BYTES)
        // Frames for a dropped stream are ignored only while it is remembered; with the default of
        // 10, a client that drops many streams loses the connection.
        .http2_max_concurrent_reset_streams(bounds::STREAMS_MAX as usize)
        .connect_with_connector(connector)
        .await
        .unwrap();
    AgentClient::new(channel).max_decoding_message_size(bounds::MESSAGE_BYTES_MAX)
}

async fn follow(client: &AgentClient<Channel>, first: Call) -> Result<Following, Status> {
    let (calls, receiver) = mpsc::channel(64);
    calls
        .send(ExecRequest {
            request: Some(first),
        })
        .await
        .unwrap();
    let reply = within(client.clone().exec(ReceiverStream::new(receiver))).await?;
    Ok(Following {
        calls,
        events: reply.into_inner(),
        seen: Seen::default(),
    })
}

/// An exec that is being followed.
pub(crate) struct Following {
    pub calls: mpsc::Sender<ExecRequest>,
    pub events: Streaming<ExecEvent>,
    seen: Seen,
}

#[derive(Default)]
struct Seen {
    last: Option<u64>,
    pid: Option<i32>,
    output: BTreeMap<i32, Vec<u8>>,
}

/// The events of an exec that has ended.
#[derive(Debug)]
pub(crate) struct Finished {
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub exit: Exit,
}

impl Finished {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.stdout).unwrap()
    }
}

impl Following {
    /// The next event, which must have the next number.
    pub(crate) async fn next(&mut self) -> Result<Option<ExecEvent>, Status> {
        let event = within(self.events.message()).await?;
        if let Some(event) = &event {
            if let Some(last) = self.seen.last {
                assert_eq!(event.seq, last + 1, "numbers have no gap");
            }
            self.seen.last = Some(event.seq);
            match event.event.as_ref().unwrap() {
                Event::Started(started) => self.seen.pid = Some(started.pid.cast_signed()),
                Event::Output(output) => {
                    assert!(
                        !output.data.is_empty() && output.data.len() <= bounds::CHUNK_BYTES_MAX
                    );
                    self.seen
                        .output
                        .entry(output.stream)
                        .or_default()
                        .extend(&output.data);
                }
                Event::Exit(_) => {}
            }
        }
        Ok(event)
    }

    pub(crate) async fn ack(&self, seq: u64) {
        let ack = ExecRequest {
            request: Some(Call::Ack(ExecAck { seq })),
        };
        let _ = self.calls.send(ack).await;
    }

    /// Waits for the start; returns the leader's pid.
    pub(crate) async fn started(&mut self) -> i32 {
        let event = self.next().await.unwrap().expect("an event");
        assert_eq!(event.seq, 1);
        self.seen.pid.expect("the first event is started")
    }

    /// Reads and acknowledges until stdout contains `text`.
    pub(crate) async fn until_stdout_has(&mut self, text: &str) -> String {
        loop {
            let stdout = self.stdout();
            if stdout.contains(text) {
                return stdout;
            }
            let event = self.next().await.unwrap().expect("output before the end");
            assert!(
                !matches!(event.event, Some(Event::Exit(_))),
                "ended after {stdout:?}"
            );
            self.ack(event.seq).await;
        }
    }

    pub(crate) fn stdout(&self) -> String {
        let bytes = self.seen.output.get(&(Stream::Stdout as i32));
        String::from_utf8_lossy(bytes.map_or(&[], |bytes| &bytes[..])).into_owned()
    }

    /// Reads and acknowledges to the end.
    pub(crate) async fn finish(mut self) -> Finished {
        loop {
            let event = self.next().await.unwrap().expect("an exit before the end");
            self.ack(event.seq).await;
            if let Some(Event::Exit(exit)) = event.event {
                assert!(
                    self.events.message().await.unwrap().is_none(),
                    "nothing after exit"
                );
                let mut take = |stream| self.seen.output.remove(&(stream as i32));
                return Finished {
                    stdout: take(Stream::Stdout).unwrap_or_default(),
                    stderr: take(Stream::Stderr).unwrap_or_default(),
                    exit,
                };
            }
        }
    }
}

/// A request for `sh -c script` with the usual environment.
pub(crate) fn shell(id: &str, script: &str) -> ExecStart {
    command(id, &["sh", "-c", script])
}

pub(crate) fn command(id: &str, argv: &[&str]) -> ExecStart {
    ExecStart {
        exec_id: id.into(),
        argv: argv
            .iter()
            .map(|arg| arg.as_bytes().to_vec().into())
            .collect(),
        env: vec![variable("PATH", "/usr/bin:/bin")],
        cwd: "/".into(),
        grace_ms: 2000,
        ..ExecStart::default()
    }
}

pub(crate) fn variable(name: &str, value: &str) -> EnvVar {
    EnvVar {
        name: name.as_bytes().to_vec().into(),
        value: value.as_bytes().to_vec().into(),
    }
}

pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, future)
        .await
        .expect("an answer before the deadline")
}

/// Polls until the condition holds, or panics at the deadline.
pub(crate) async fn until(what: &str, mut is_true: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !is_true() {
        assert!(Instant::now() < deadline, "{what} before the deadline");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
