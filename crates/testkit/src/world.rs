//! A service on the fake engine and a real store, for one test.
//!
//! Dropping it destroys its containers, even if the test failed.

#![expect(
    clippy::unwrap_used,
    missing_docs,
    reason = "for tests: what cannot go on fails, and what is called reads as what it does"
)]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hotcell_domain::{
    Caller, Command, ContainerRef, ExecId, ExecStatus, Name, Principal, Stdin, Stream,
};
use hotcell_engine::Engine;
use hotcell_service::{
    ExecView, Poll, Service, ServiceError, Settings, Spawn, Start, SystemClock, SystemRandom,
};
use hotcell_store::Store;
use tempfile::TempDir;

use crate::agent;
use crate::fake::{Fake, Faults};

/// The timeout of everything that a test waits for: it only ends tests that hang.
pub const PATIENCE: Duration = Duration::from_mins(2);

/// One server with its state and its containers.
pub struct World {
    pub service: Service,
    pub caller: Caller,
    pub engine: Arc<dyn Engine>,
    settings: Settings,
    state: TempDir,
    engines: TempDir,
}

/// Rounds of destroying leftovers.
const DESTROY_ROUNDS_MAX: usize = 20;

/// An exec that has ended, with its complete output.
#[derive(Debug)]
pub struct Ended {
    pub view: ExecView,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

impl World {
    pub async fn new() -> Self {
        Self::with(Settings::default(), Faults::none()).await
    }

    pub async fn with(settings: Settings, faults: Faults) -> Self {
        Self::on(settings, faults, |fake| Arc::new(fake)).await
    }

    /// Uses an engine that wraps the fake one.
    pub async fn on(
        settings: Settings,
        faults: Faults,
        wrap: impl FnOnce(Fake) -> Arc<dyn Engine>,
    ) -> Self {
        let state = tempfile::tempdir().unwrap();
        let engines = tempfile::tempdir().unwrap();
        let engine = Fake::new(agent::program(), engines.path().to_owned(), faults);
        let engine = wrap(engine);
        let service = start(&engine, &state, &settings).await;
        Self {
            service,
            caller: Caller::local(),
            engine,
            settings,
            state,
            engines,
        }
    }

    /// Ends the server as if it had been killed, and starts the next one.
    pub async fn restart(self) -> Self {
        self.restart_after(async || {}).await
    }

    /// Like [`World::restart`], with something that happens while there is no server.
    pub async fn restart_after(mut self, meanwhile: impl AsyncFnOnce()) -> Self {
        // Dropping the last clone ends all tasks.
        let old = std::mem::replace(&mut self.service, placeholder(&self.settings).await);
        drop(old);
        until_unlocked(&self.state).await;
        meanwhile().await;
        self.service = start(&self.engine, &self.state, &self.settings).await;
        self
    }

    /// The directory of logs.
    pub fn logs(&self) -> PathBuf {
        self.state.path().join("logs")
    }

    /// The directory of a container's files.
    pub fn root(&self, container: &ContainerRef) -> PathBuf {
        let ContainerRef::Id(id) = container else {
            panic!("tests name containers by id");
        };
        self.engines.path().join(id.as_str()).join("root")
    }

    pub async fn spawn(&self) -> ContainerRef {
        let mut attempts = 0;
        loop {
            attempts += 1;
            let request = Spawn {
                is_persistent: true,
                ..Spawn::default()
            };
            match self.service.spawn(&self.caller, request).await {
                Ok(view) => return ContainerRef::Id(view.id),
                Err(error) => assert!(attempts < 30, "no container: {error}"),
            }
        }
    }

    pub async fn start(&self, container: &ContainerRef, command: Command) -> ExecId {
        let request = Start {
            command,
            key: None,
            abandonment: hotcell_service::Abandonment::default(),
        };
        let started = self.service.exec_start(&self.caller, container, request);
        started.await.unwrap()
    }

    pub async fn poll(&self, id: &ExecId, after_seq: u64, wait: Duration) -> ExecView {
        let poll = Poll {
            after_seq,
            wait,
            bytes_max: 1 << 20,
            until_end: false,
        };
        self.service
            .exec_poll(&self.caller, id, poll)
            .await
            .unwrap()
    }

    /// Waits until an exec has written this to its standard output.
    pub async fn until_wrote(&self, id: &ExecId, text: &str) -> ExecView {
        let deadline = Instant::now() + PATIENCE;
        let mut all = Vec::new();
        let mut after_seq = 0;
        loop {
            let view = self.poll(id, after_seq, Duration::from_secs(1)).await;
            after_seq = view.next_seq;
            for message in &view.messages {
                all.extend_from_slice(&message.data);
            }
            if String::from_utf8_lossy(&all).contains(text) {
                return view;
            }
            assert!(!view.is_complete, "{view:?}, never wrote {text:?}");
            assert!(Instant::now() < deadline, "{id} never wrote {text:?}");
        }
    }

    /// Waits until an exec has a status.
    pub async fn until(&self, id: &ExecId, status: ExecStatus) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let view = self.poll(id, 0, Duration::ZERO).await;
            if view.status == status {
                return;
            }
            assert!(Instant::now() < deadline, "{id} stays {view:?}");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Reads the whole output of an exec, message by message, until it is complete.
    pub async fn finish(&self, id: &ExecId) -> Ended {
        let deadline = Instant::now() + PATIENCE;
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let mut after_seq = 0;
        loop {
            let view = self.poll(id, after_seq, Duration::from_secs(5)).await;
            for message in &view.messages {
                after_seq += 1;
                assert_eq!(message.seq, after_seq, "numbered one by one");
                match message.stream {
                    Stream::Stdout => stdout.extend_from_slice(&message.data),
                    Stream::Stderr => stderr.extend_from_slice(&message.data),
                }
            }
            assert_eq!(view.next_seq, after_seq);
            if view.is_complete {
                return Ended {
                    view,
                    stdout,
                    stderr,
                };
            }
            assert!(Instant::now() < deadline, "{id} does not end: {view:?}");
        }
    }

    pub async fn run(&self, container: &ContainerRef, script: &str) -> Ended {
        let id = self.start(container, sh(script)).await;
        self.finish(&id).await
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // Over the same directory, but without faults, which would hide containers.
        let engine = Fake::new(
            agent::program(),
            self.engines.path().to_owned(),
            Faults::none(),
        );
        // In a thread of its own, because a runtime cannot be started inside another one.
        let destroy = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(destroy_all(&engine))
        });
        let is_empty = destroy.join().unwrap_or(false);
        assert!(is_empty || std::thread::panicking(), "containers are left");
    }
}

/// Destroys containers until none is left: the service may be removing some at the same time.
async fn destroy_all(engine: &Fake) -> bool {
    for _ in 0..DESTROY_ROUNDS_MAX {
        let left = engine.list().await.unwrap_or_default();
        if left.is_empty() {
            return true;
        }
        for container in left {
            let _ = engine.destroy(&container.id).await;
        }
    }
    false
}

async fn start(engine: &Arc<dyn Engine>, state: &TempDir, settings: &Settings) -> Service {
    let engine = Arc::clone(engine);
    let store = Store::open(state.path()).unwrap();
    let (clock, random) = (Arc::new(SystemClock), Arc::new(SystemRandom));
    Service::start(engine, store, settings.clone(), clock, random)
        .await
        .unwrap()
}

/// A service without content, as a placeholder for the next one.
async fn placeholder(settings: &Settings) -> Service {
    let (state, engines) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let engine = Fake::new(agent::program(), engines.path().to_owned(), Faults::none());
    let engine: Arc<dyn Engine> = Arc::new(engine);
    start(&engine, &state, settings).await
}

async fn until_unlocked(state: &TempDir) {
    let deadline = Instant::now() + PATIENCE;
    while let Err(error) = Store::open(state.path()) {
        assert!(Instant::now() < deadline, "the state stays in use: {error}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// A shell command.
pub fn sh(script: &str) -> Command {
    Command::new(vec!["/bin/sh".into(), "-c".into(), script.into()]).unwrap()
}

/// A shell command whose standard input is open.
pub fn open_sh(script: &str) -> Command {
    let mut command = sh(script);
    command.set_stdin(Stdin::Open).unwrap();
    command
}

pub fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

pub fn caller(principal: &str, client: &str) -> Caller {
    Caller {
        principal: Principal::new(name(principal)),
        client: Some(name(client)),
        is_admin: false,
        ..Caller::local()
    }
}

/// The message of an error, after its kind.
pub fn said<T: std::fmt::Debug>(result: Result<T, ServiceError>) -> String {
    let error = result.expect_err("it should have been refused");
    let kind = match error {
        ServiceError::Invalid { .. } => "invalid",
        ServiceError::NotFound { .. } => "not found",
        ServiceError::AlreadyExists { .. } => "exists",
        ServiceError::Conflict { .. } => "conflict",
        ServiceError::Denied { .. } | ServiceError::Refused(_) => "denied",
        ServiceError::Exhausted { .. } | ServiceError::OverQuota(_) => "exhausted",
        ServiceError::Deadline { .. } => "deadline",
        ServiceError::Batch { .. } => "batch",
        ServiceError::Unavailable { .. } | ServiceError::Halted { .. } => "unavailable",
        ServiceError::Internal { .. } => "internal",
    };
    format!("{kind}: {error}")
}

/// Waits until a condition holds.
pub async fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// The number of processes on this host with this text in their command line.
pub fn processes_with(text: &str) -> usize {
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    all.filter(|entry| {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(text)
    })
    .count()
}
