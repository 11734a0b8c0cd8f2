//! One container under test, and commands that run in it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, bail};
use hotcell_agent_client::{
    Agent, AgentError, AgentRefusal, Command, EventKind, Exit, Feature, Follow, Output,
};
use hotcell_domain::{Admitted, ContainerId, ContainerSpec};

use hotcell_engine::{Container, DiskUse, EngineError};

use super::{Outcome, Subject};

/// Most files that are counted: more than a case creates.
const FILES_MAX: u64 = 10_000;

/// A running container with a connection to its agent.
pub(super) struct TestContainer<'a> {
    pub(super) subject: &'a Subject,
    pub(super) id: ContainerId,
    pub(super) info: Container,
    pub(super) agent: Agent,
}

/// A running command. Everything received is acknowledged.
pub(super) struct Live {
    pub(super) exec_id: String,
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: Vec<u8>,
    pub(super) last_seq: u64,
    follow: Follow,
    exit: Option<Exit>,
}

/// A command that has ended.
pub(super) struct Ran {
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: Vec<u8>,
    pub(super) exit: Exit,
}

/// A unique id.
pub(super) fn new_id() -> ContainerId {
    let mut random = [0; 10];
    getrandom::fill(&mut random).expect("the kernel gives random bytes");
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let millis = now.map_or(0, |now| now.as_millis());
    ContainerId::from_parts(u64::try_from(millis).unwrap_or(0), random)
}

/// An exec id that is unique in this process.
pub(super) fn new_exec_id() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    format!("x{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Non-repeating bytes of every value, so that a lost, duplicated or moved chunk is noticed.
pub(super) fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_u32;
    let next = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_be_bytes()[0]
    };
    (0..length).map(next).collect()
}

/// Admits the subject's image with changes.
pub(super) fn admitted(
    subject: &Subject,
    change: impl FnOnce(&mut ContainerSpec),
) -> anyhow::Result<Admitted<ContainerSpec>> {
    let mut spec = ContainerSpec::new(subject.image.clone());
    change(&mut spec);
    let admitted = subject.policy.admit(spec);
    admitted.context("the subject's policy refuses the subject's image")
}

/// Fails unless the engine answers that the container does not exist.
#[track_caller]
pub(super) fn expect_not_found<T: std::fmt::Debug>(answer: &Result<T, EngineError>) {
    assert!(
        matches!(answer, Err(EngineError::NotFound { .. })),
        "not `NotFound` but {answer:?}"
    );
}

/// Fails unless the agent refused in this way.
#[track_caller]
pub(super) fn expect_refused<T: std::fmt::Debug>(
    answer: Result<T, AgentError>,
    wanted: &AgentRefusal,
) {
    match answer {
        Err(AgentError::Refused { refusal, .. }) if refusal == *wanted => {}
        Ok(_) | Err(_) => panic!("not refused as {wanted:?} but {answer:?}"),
    }
}

impl<'a> TestContainer<'a> {
    /// Creates a container with default settings.
    pub(super) async fn make(subject: &'a Subject) -> anyhow::Result<Self> {
        Self::make_with(subject, |_| ()).await
    }

    /// Whether its agent is an older one without any features.
    pub(super) fn is_older(&self, feature: Feature) -> bool {
        let is_older = !self.agent.has(feature) && !self.agent.has(Feature::Tunnel);
        if is_older {
            crate::not_claimed("an older agent cannot");
        }
        is_older
    }

    /// Its disk usage, measured by the engine or by the agent.
    pub(super) async fn disk_use(&self) -> anyhow::Result<DiskUse> {
        if let Some(used) = self.subject.engine.disk_use(&self.id).await? {
            return Ok(used);
        }
        let used = self.agent.disk_use(FILES_MAX).await?;
        Ok(DiskUse {
            bytes: used.bytes,
            files: used.files,
            is_beyond_measure: used.is_beyond_measure,
            is_busy: used.is_busy,
        })
    }

    /// Creates a container with a changed spec.
    pub(super) async fn make_with(
        subject: &'a Subject,
        change: impl FnOnce(&mut ContainerSpec),
    ) -> anyhow::Result<Self> {
        let id = new_id();
        let spec = admitted(subject, change)?;
        let info = hotcell_engine::fetch_and_create(&*subject.engine, &id, &spec)
            .await
            .context("create")?;
        Self::attach(subject, id, info).await
    }

    /// Connects to an existing container.
    pub(super) async fn attach(
        subject: &'a Subject,
        id: ContainerId,
        info: Container,
    ) -> anyhow::Result<Self> {
        let stream = subject.engine.open(&id).await.context("open")?;
        let agent = Agent::connect(stream).await.context("hello")?;
        Ok(Self {
            subject,
            id,
            info,
            agent,
        })
    }

    /// Another connection.
    pub(super) async fn connect(&self) -> anyhow::Result<Agent> {
        let stream = self.subject.engine.open(&self.id).await.context("open")?;
        Agent::connect(stream).await.context("hello")
    }

    /// The directory below which the agent serves files.
    pub(super) fn root(&self) -> &str {
        &self.agent.hello().root
    }

    /// A path below the root, as processes in the container write it.
    pub(super) fn beneath(&self, path: &str) -> String {
        format!("{}/{path}", self.root())
    }

    /// A shell script, run in the root directory.
    pub(super) fn sh(&self, script: &str) -> Command {
        let mut command = Command::new(["/bin/sh", "-c", script]);
        command.cwd = self.root().into();
        command
    }

    /// Runs a command to its end.
    pub(super) async fn run(&self, command: &Command) -> anyhow::Result<Ran> {
        Live::start(&self.agent, command).await?.end().await
    }

    /// Runs a shell script to its end.
    pub(super) async fn shell(&self, script: &str) -> anyhow::Result<Ran> {
        self.run(&self.sh(script)).await
    }

    /// The stdout of a shell script that must succeed.
    pub(super) async fn said(&self, script: &str) -> anyhow::Result<String> {
        let ran = self.shell(script).await?;
        if ran.exit.code != Some(0) {
            bail!(
                "`{script}` ended with {:?}: {}",
                ran.exit,
                ran.stderr_text()
            );
        }
        Ok(ran.stdout_text())
    }

    /// Destroys the container.
    pub(super) async fn end(self) -> Outcome {
        let destroyed = self.subject.engine.destroy(&self.id).await;
        destroyed.context("destroy")
    }
}

impl Live {
    /// Starts a command under a new id.
    pub(super) async fn start(agent: &Agent, command: &Command) -> anyhow::Result<Self> {
        let exec_id = new_exec_id();
        let follow = agent.start(&exec_id, command).await.context("start")?;
        Ok(Self {
            exec_id,
            stdout: Vec::new(),
            stderr: Vec::new(),
            last_seq: 0,
            follow,
            exit: None,
        })
    }

    /// Continues over another connection, after the last received event.
    pub(super) async fn move_to(&mut self, agent: &Agent) -> Outcome {
        let resumed = agent.resume(&self.exec_id, self.last_seq).await;
        self.follow = resumed.context("resume")?;
        Ok(())
    }

    /// Receives the next event; false if the exec has ended.
    pub(super) async fn step(&mut self) -> Result<bool, AgentError> {
        let Some(event) = self.follow.next().await? else {
            return Ok(false);
        };
        self.last_seq = event.seq;
        match event.kind {
            EventKind::Started(_) => {}
            EventKind::Output(Output::Stdout, data) => self.stdout.extend_from_slice(&data),
            EventKind::Output(Output::Stderr, data) => self.stderr.extend_from_slice(&data),
            EventKind::Exit(exit) => self.exit = Some(exit),
        }
        self.follow.ack(event.seq);
        Ok(true)
    }

    /// Waits until stdout contains the text.
    pub(super) async fn until(&mut self, text: &str) -> Outcome {
        while !self.stdout_text().contains(text) {
            if !self.step().await? {
                bail!("ended before it said {text:?}: {}", self.stdout_text());
            }
        }
        Ok(())
    }

    /// Waits for the end.
    pub(super) async fn end(mut self) -> anyhow::Result<Ran> {
        while self.step().await? {}
        let exit = self.exit.context("the events ended without an exit")?;
        Ok(Ran {
            stdout: self.stdout,
            stderr: self.stderr,
            exit,
        })
    }

    /// Its stdout so far.
    pub(super) fn stdout_text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Whether its exit was received.
    pub(super) fn has_ended(&self) -> bool {
        self.exit.is_some()
    }
}

impl Ran {
    pub(super) fn stdout_text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    pub(super) fn stderr_text(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }
}
