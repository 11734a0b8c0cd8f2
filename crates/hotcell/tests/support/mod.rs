//! A container for a test, and the check that nothing of it is left afterwards.

#![allow(dead_code, reason = "each test file uses its own part")]

pub(crate) mod attack;
pub(crate) mod engines;
pub(crate) mod home;
pub(crate) mod http;
pub(crate) mod image;
pub(crate) mod mcp;
pub(crate) mod programs;
pub(crate) mod proxy;
pub(crate) mod registry;
pub(crate) mod served;
pub(crate) mod server;
pub(crate) mod terminal;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use hotcell_agent_client::{Agent, Command, EventKind, Exit, Output};
use hotcell_domain::{ContainerId, ContainerSpec, ImageRef, Policy};
use hotcell_engine::docker::Flavor;
use hotcell_engine::{Container, Docker, Embedded, EmbeddedConfig, Engine};
use hotcell_testkit::{Need, skip, skip_part};

/// The interval at which a condition without notification is polled.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// Why a container has no root.
const NO_ROOT: &str = "containers have no root on this host";

/// The deadline of everything that waits. It only ends tests that hang, and is generous because on
/// a busy machine everything takes several times as long.
pub(crate) fn deadline() -> Duration {
    let slow = std::env::var_os("HOTCELL_SLOW_HOST").is_some();
    Duration::from_secs(if slow { 600 } else { 120 })
}

/// A free address for a program that is started later: a free port on a random one of millions of
/// loopback addresses, so that nobody else takes it in between.
pub(crate) fn own_address() -> SocketAddr {
    let mut random = [0; 3];
    getrandom::fill(&mut random).expect("random numbers");
    let ip = Ipv4Addr::new(127, random[0] | 1, random[1], random[2] | 1);
    let free = TcpListener::bind((ip, 0)).expect("a port");
    free.local_addr().expect("an address")
}

/// The `hotcell` under test.
pub(crate) fn hotcell() -> PathBuf {
    std::env::var_os("HOTCELL_BIN").map_or_else(
        || PathBuf::from(env!("CARGO_BIN_EXE_hotcell")),
        PathBuf::from,
    )
}

/// A temporary directory, removed at the end of the test.
pub(crate) fn scratch() -> tempfile::TempDir {
    tempfile::Builder::new()
        .prefix("hotcell-test-")
        .tempdir()
        .expect("a temporary directory")
}

/// The directory of an engine's workspaces: beside its home in a state directory, else in its home.
pub(crate) fn tree(home: &Path) -> PathBuf {
    if home.ends_with("run") {
        return home.with_file_name("tree");
    }
    home.join("tree")
}

/// The workspace of a container, as the host sees it.
pub(crate) fn workspace(home: &Path, id: &ContainerId) -> PathBuf {
    let node = id.as_str().replacen("c_", "n_", 1);
    tree(home).join(node).join("fs")
}

/// An engine with its own home.
pub(crate) fn engine(home: &Path) -> Embedded {
    Embedded::open(EmbeddedConfig {
        home: home.to_owned(),
        tree: tree(home),
        launcher: hotcell(),
        agent: hotcell_agent_image::AGENT,
        cgroups: true,
        require_limits: false,
    })
    .expect("the embedded engine works here")
}

/// A new id.
pub(crate) fn new_id() -> ContainerId {
    let mut random = [0; 10];
    getrandom::fill(&mut random).expect("random numbers");
    ContainerId::from_parts(1_700_000_000_000, random)
}

/// A container, on the embedded engine unless told otherwise, and a connection to its agent.
pub(crate) struct TestContainer {
    pub engine: Arc<dyn Engine>,
    pub id: ContainerId,
    pub agent: Agent,
    pub home: tempfile::TempDir,
    execs: AtomicU32,
    /// The private engine that runs it, if that is Docker or Podman.
    private: Option<engines::Private>,
}

/// The outcome of a command.
#[derive(Debug)]
pub(crate) struct Ran {
    pub stdout: String,
    pub stderr: String,
    pub exit: Exit,
}

impl Ran {
    /// The exit code, or 128 plus the signal that killed it.
    pub(crate) fn code(&self) -> u32 {
        match (self.exit.code, self.exit.signal) {
            (Some(code), _) => code.into(),
            (None, Some(signal)) => 128 + u32::from(signal),
            (None, None) => panic!("it neither exited nor was killed: {self:?}"),
        }
    }
}

impl TestContainer {
    /// A container with the defaults.
    pub(crate) async fn new() -> Self {
        Self::with(|_| ()).await
    }

    /// A container whose execs may be root. Where the host can map only one user id there is
    /// no such container: returns `None` and skips the test.
    pub(crate) async fn with_root() -> Option<Self> {
        let container = Self::if_it_has_root().await;
        if container.is_none() {
            skip(Need::ContainerRoot, NO_ROOT);
        }
        container
    }

    /// Like `with_root`, for a test that has already checked something without root.
    pub(crate) async fn with_root_too() -> Option<Self> {
        let container = Self::if_it_has_root().await;
        if container.is_none() {
            skip_part(Need::ContainerRoot, NO_ROOT);
        }
        container
    }

    async fn if_it_has_root() -> Option<Self> {
        let container = Self::with(|spec| spec.allow_root = true).await;
        if container.agent.hello().can_switch_user {
            return Some(container);
        }
        container.remove().await;
        None
    }

    /// A container with changes to the defaults.
    pub(crate) async fn with(change: impl FnOnce(&mut ContainerSpec)) -> Self {
        let home = scratch();
        let engine = Arc::new(engine(home.path()));
        Self::make(engine, ImageRef::Host, change, home, None).await
    }

    /// A container on a private engine, from an image with Python. Returns `None` and skips the test
    /// where there is no such engine.
    pub(crate) async fn on(
        flavor: Flavor,
        change: impl FnOnce(&mut ContainerSpec),
    ) -> Option<Self> {
        Self::on_runtime(flavor, None, change).await
    }

    /// Like `on`, with an OCI runtime other than the engine's own choice.
    pub(crate) async fn on_runtime(
        flavor: Flavor,
        runtime: Option<&str>,
        change: impl FnOnce(&mut ContainerSpec),
    ) -> Option<Self> {
        let private = engines::Private::start_with(flavor, runtime)?;
        let image = ImageRef::parse(private.python()).expect("a reference");
        let engine = Arc::new(Docker::new(private.config(flavor, runtime)));
        Some(Self::make(engine, image, change, scratch(), Some(private)).await)
    }

    async fn make(
        engine: Arc<dyn Engine>,
        image: ImageRef,
        change: impl FnOnce(&mut ContainerSpec),
        home: tempfile::TempDir,
        private: Option<engines::Private>,
    ) -> Self {
        let mut spec = ContainerSpec::new(image);
        change(&mut spec);
        let policy = Policy {
            allow_rootfs: true,
            allow_root: true,
            ..Policy::default()
        };
        let spec = policy.admit(spec).expect("this policy admits it");
        let id = new_id();
        hotcell_engine::fetch_and_create(&*engine, &id, &spec)
            .await
            .unwrap_or_else(|error| panic!("{}", chain(&error)));
        let stream = engine.open(&id).await.expect("the agent's socket is there");
        let agent = Agent::connect(stream).await.expect("the agent says hello");
        Self {
            engine,
            id,
            agent,
            home,
            execs: AtomicU32::new(0),
            private,
        }
    }

    pub(crate) async fn inspect(&self) -> Container {
        self.engine
            .inspect(&self.id)
            .await
            .expect("the container is there")
    }

    /// An exec id that was not used yet.
    pub(crate) fn exec_id(&self) -> String {
        format!("t{}", self.execs.fetch_add(1, Ordering::Relaxed))
    }

    /// Runs a shell script as the container's user.
    pub(crate) async fn sh(&self, script: &str) -> Ran {
        self.run(&shell(script)).await
    }

    /// Runs a shell script as the container's root.
    pub(crate) async fn sh_as_root(&self, script: &str) -> Ran {
        let mut command = shell(script);
        command.user = Some((0, 0));
        self.run(&command).await
    }

    /// Runs a Python script as the container's user.
    pub(crate) async fn python(&self, script: &str) -> Ran {
        self.run(&python(script)).await
    }

    /// Runs a Python script as the container's root.
    pub(crate) async fn python_as_root(&self, script: &str) -> Ran {
        let mut command = python(script);
        command.user = Some((0, 0));
        self.run(&command).await
    }

    /// Runs a command to its end and collects what it wrote.
    pub(crate) async fn run(&self, command: &Command) -> Ran {
        let work = async {
            let id = self.exec_id();
            let mut follow = self
                .agent
                .start(&id, command)
                .await
                .expect("the exec starts");
            let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
            while let Some(event) = follow.next().await.expect("the agent answers") {
                follow.ack(event.seq);
                match event.kind {
                    EventKind::Started(_) => {}
                    EventKind::Output(Output::Stdout, data) => stdout.extend_from_slice(&data),
                    EventKind::Output(Output::Stderr, data) => stderr.extend_from_slice(&data),
                    EventKind::Exit(exit) => {
                        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                        return Ran {
                            stdout: text(&stdout),
                            stderr: text(&stderr),
                            exit,
                        };
                    }
                }
            }
            panic!("the exec has no end")
        };
        tokio::time::timeout(deadline(), work)
            .await
            .expect("the exec ends in time")
    }

    /// Removes the container and looks for what is left of it.
    pub(crate) async fn remove(self) {
        self.engine
            .destroy(&self.id)
            .await
            .unwrap_or_else(|error| panic!("{}", chain(&error)));
        if self.private.is_some() {
            // Monitor processes of Docker and Podman may live a little longer; they end with the engine.
            let listed = self.engine.list().await.expect("it lists");
            assert!(listed.iter().all(|one| one.id != self.id), "{listed:?}");
        } else {
            assert_nothing_left(&self.id, self.home.path());
        }
    }
}

/// Removes the container of a failed test.
impl Drop for TestContainer {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let (engine, id) = (Arc::clone(&self.engine), self.id.clone());
        let work = move || {
            let runtime = tokio::runtime::Runtime::new().expect("a runtime");
            // It may be gone already; the test has failed anyway.
            let _ = runtime.block_on(engine.destroy(&id));
        };
        let _ = std::thread::spawn(work).join();
    }
}

/// Fails if a process, mount, cgroup or file of the container still exists.
pub(crate) fn assert_nothing_left(id: &ContainerId, home: &Path) {
    let left = leftovers(id, home);
    assert!(left.is_empty(), "left behind: {left:#?}");
}

/// What still exists of a container.
pub(crate) fn leftovers(id: &ContainerId, home: &Path) -> Vec<String> {
    let mut left = Vec::new();
    let directory = home.join("containers").join(id.as_str());
    let workspace = workspace(home, id);
    for path in [&directory, workspace.parent().expect("it is in a node")] {
        if path.exists() {
            left.push(path.display().to_string());
        }
    }
    for pid in pids() {
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        if String::from_utf8_lossy(&command).contains(id.as_str()) {
            left.push(format!("process {pid}"));
        }
    }
    for file in ["/proc/self/mountinfo", "/proc/1/mountinfo"] {
        let mounts = std::fs::read_to_string(file).unwrap_or_default();
        left.extend(
            mounts
                .lines()
                .filter(|line| line.contains(&id.as_str()["c_".len()..]))
                .map(str::to_owned),
        );
    }
    find_cgroups(Path::new("/sys/fs/cgroup"), id.as_str(), 6, &mut left);
    left
}

/// Every process on the host.
pub(crate) fn pids() -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").expect("proc is mounted");
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect()
}

fn find_cgroups(directory: &Path, name: &str, depth: u32, found: &mut Vec<String>) {
    let Some(depth) = depth.checked_sub(1) else {
        return;
    };
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        if entry.file_name().to_string_lossy().contains(name) {
            found.push(entry.path().display().to_string());
        }
        find_cgroups(&entry.path(), name, depth, found);
    }
}

/// A shell script as a command.
pub(crate) fn shell(script: &str) -> Command {
    let mut command = Command::new(["/bin/sh", "-c", script]);
    command.cwd = b"/workspace".to_vec();
    command.timeout = Some(deadline() / 2);
    command
}

/// A Python script as a command.
pub(crate) fn python(script: &str) -> Command {
    let mut command = Command::new(["/usr/bin/python3", "-c", script]);
    command.cwd = b"/workspace".to_vec();
    command.timeout = Some(deadline() / 2);
    command
}

/// An error with all its causes.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

/// Waits until something is true.
pub(crate) fn wait_until(what: &str, mut check: impl FnMut() -> bool) {
    let until = Instant::now() + deadline();
    while !check() {
        assert!(Instant::now() < until, "never: {what}");
        std::thread::sleep(LOOK_INTERVAL);
    }
}

/// Like `wait_until`, without blocking the async runtime.
pub(crate) async fn eventually<F: Future<Output = bool>>(what: &str, mut check: impl FnMut() -> F) {
    let work = async {
        while !check().await {
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    };
    tokio::time::timeout(deadline(), work)
        .await
        .unwrap_or_else(|_| panic!("never: {what}"));
}
