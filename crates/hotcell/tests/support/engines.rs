//! Private engines for tests, started once and shared by all of them.

use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use hotcell_agent_client::{Agent, Command as Exec, EventKind, Output};
use hotcell_domain::{ImageRef, Policy};
use hotcell_engine::docker::{DockerConfig, Flavor, Host};
use hotcell_engine::{Docker, Engine};
use hotcell_testkit::conformance::{Reopen, Subject, Traits};

/// The image that each engine starts with.
pub(crate) const IMAGE: &str = "localhost/hotcell-test:box";

/// An image that is loaded when a test asks for it.
const PYTHON: &str = "localhost/hotcell-test:python";

/// The script that starts an engine or finds a running one.
const STARTER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/engines/start");

/// A handle on a private engine, which runs as long as a handle exists.
pub(crate) struct Private {
    pub socket: PathBuf,
    flavor: Flavor,
    directory: PathBuf,
    _lock: File,
}

impl Private {
    /// Finds or starts the engine. Returns `None` and skips the test where it is not installed.
    pub(crate) fn start(flavor: Flavor) -> Option<Self> {
        Self::start_as(flavor, flavor.name(), &[])
    }

    /// Like `start`, for a test that also needs this OCI runtime.
    pub(crate) fn start_with(flavor: Flavor, runtime: Option<&str>) -> Option<Self> {
        match runtime {
            Some(runtime) if !is_program(runtime) => {
                let reason = format!("{runtime} is not installed");
                hotcell_testkit::skip(hotcell_testkit::Need::Engines, &reason);
                None
            }
            _ => Self::start(flavor),
        }
    }

    /// Starts an engine that no other test uses, with these environment variables.
    pub(crate) fn start_own(flavor: Flavor, variables: &[(&str, &str)]) -> Option<Self> {
        let id = super::new_id().to_string();
        let name = format!("{}-{}", flavor.name(), &id[id.len() - 5..]);
        Self::start_as(flavor, &name, variables)
    }

    fn start_as(flavor: Flavor, name: &str, variables: &[(&str, &str)]) -> Option<Self> {
        // Short, because Podman refuses directories with paths longer than 50 characters.
        let directory = std::env::temp_dir().join(format!("hc-{name}"));
        if !is_installed(flavor) {
            let reason = format!("{} is not installed, or we are not root", flavor.name());
            hotcell_testkit::skip(hotcell_testkit::Need::Engines, &reason);
            return None;
        }
        let lock = lock(&directory.with_extension("lock"));
        let started = starter(flavor)
            .arg(&directory)
            .envs(variables.iter().copied())
            .status();
        let started = started.expect("bash is there");
        assert!(started.success(), "{} does not start", flavor.name());
        Some(Self {
            socket: directory.join("sock"),
            flavor,
            directory,
            _lock: lock,
        })
    }

    /// Kills it (SIGKILL).
    pub(crate) fn kill(&self) {
        self.command(&["kill"]);
    }

    /// Starts it again, after it was killed.
    pub(crate) fn start_again(&self, variables: &[(&str, &str)]) {
        let mut command = self.starter(&["again"]);
        let started = command.envs(variables.iter().copied()).status();
        assert!(started.expect("bash is there").success());
    }

    /// Ends the processes of containers that the engine does not know, and returns a line for each.
    /// Docker forgets a container if it is killed while it starts it.
    pub(crate) fn end_forgotten(&self) -> Vec<String> {
        let found = self.command(&["forgotten"]);
        found.lines().map(str::to_owned).collect()
    }

    /// The output of the engine's own command line.
    pub(crate) fn says(&self, words: &[&str]) -> String {
        self.command(&[&["do"], words].concat())
    }

    /// The name of an image with Python, for attacks written in it.
    pub(crate) fn python(&self) -> &'static str {
        static MAKING: Mutex<()> = Mutex::new(());
        let _one_at_a_time = MAKING.lock();
        self.command(&["python"]);
        PYTHON
    }

    /// Its address as an environment variable.
    pub(crate) fn address(&self) -> (&'static str, String) {
        let name = match self.flavor {
            Flavor::Docker => "DOCKER_HOST",
            Flavor::Podman => "CONTAINER_HOST",
        };
        (name, format!("unix://{}", self.socket.display()))
    }

    fn command(&self, words: &[&str]) -> String {
        let said = self.starter(words).stderr(Stdio::inherit()).output();
        let said = said.expect("bash is there");
        assert!(said.status.success(), "{words:?}: {}", said.status);
        String::from_utf8(said.stdout).expect("text")
    }

    fn starter(&self, words: &[&str]) -> Command {
        let mut command = starter(self.flavor);
        command.arg(&self.directory).args(words);
        command
    }

    /// A `hotcell` engine on it, with its own scope.
    pub(crate) fn config(&self, flavor: Flavor, runtime: Option<&str>) -> DockerConfig {
        DockerConfig {
            flavor,
            host: Host::Unix(self.socket.clone()),
            runtime: runtime.map(str::to_owned),
            scope: super::new_id().to_string(),
            agent: hotcell_agent_image::AGENT,
            require_limits: true,
        }
    }
}

fn is_program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(name).is_file())
}

/// The starter script exists only in the source tree; elsewhere there is no engine.
fn is_installed(flavor: Flavor) -> bool {
    Path::new(STARTER).exists() && starter(flavor).status().is_ok_and(|said| said.success())
}

fn starter(flavor: Flavor) -> Command {
    let mut command = Command::new("bash");
    command.arg(STARTER).arg(flavor.name()).stdin(Stdio::null());
    command
}

/// A shared lock on the file of that name, which the keeper removes when it takes the
/// engine down.
fn lock(path: &Path) -> File {
    loop {
        let file = File::options()
            .create(true)
            .append(true)
            .open(path)
            .expect("the lock's file can be made");
        file.lock_shared().expect("locks work here");
        let ours = file.metadata().expect("it is open").ino();
        if std::fs::metadata(path).is_ok_and(|there| there.ino() == ours) {
            return file;
        }
    }
}

/// The subject of the conformance suite.
pub(crate) fn subject(flavor: Flavor, runtime: Option<&str>, traits: Traits) -> Option<Subject> {
    let private = Private::start_with(flavor, runtime)?;
    let config = private.config(flavor, runtime);
    let make = move || -> Arc<dyn Engine> { Arc::new(Docker::new(config.clone())) };
    let engine = make();
    let reopen: Reopen = Box::new(move || {
        let engine = make();
        Box::pin(async { engine })
    });
    Some(Subject {
        engine,
        image: ImageRef::parse(IMAGE).expect("a reference"),
        policy: Policy {
            allow_root: true,
            ..Policy::default()
        },
        traits,
        reopen: Some(reopen),
        keep: Box::new(private),
    })
}

/// The output of a script that runs in a container as this user.
pub(crate) async fn said(agent: &Agent, script: &str, user: Option<(u32, u32)>) -> String {
    let mut command = Exec::new(["/bin/sh", "-c", script]);
    command.cwd = b"/workspace".to_vec();
    command.timeout = Some(super::deadline() / 2);
    command.user = user;
    let work = async {
        let id = super::new_id().to_string();
        let mut follow = agent.start(&id, &command).await.expect("it starts");
        let mut text = Vec::new();
        while let Some(event) = follow.next().await.expect("the agent answers") {
            follow.ack(event.seq);
            if let EventKind::Output(Output::Stdout | Output::Stderr, data) = event.kind {
                text.extend_from_slice(&data);
            }
        }
        String::from_utf8_lossy(&text).into_owned()
    };
    tokio::time::timeout(super::deadline(), work)
        .await
        .expect("in time")
}
