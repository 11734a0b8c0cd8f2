//! What the tests of warmed interpreters share.
#![allow(clippy::unwrap_used, reason = "a test fails where it cannot go on")]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use hotcell_agent_api::v1::{ExecStart, Interpreter, WarmUpRequest};

use super::harness::{Agent, DEADLINE, Finished, command, variable};

/// Prints whether a warmed interpreter runs it: only its command line tells.
const TELL: &str = "print('hotcell' in open('/proc/self/cmdline').read())";

/// An agent with a directory of scripts, and a warmed interpreter once there is one.
pub(crate) struct Warmed {
    pub(crate) agent: Agent,
    directory: tempfile::TempDir,
    count: std::cell::Cell<u64>,
}

impl Warmed {
    /// Starts an agent and waits for its interpreter.
    pub(crate) async fn start() -> Self {
        Self::start_by(&[]).await
    }

    /// Starts the agent through a wrapper program and waits for its interpreter.
    pub(crate) async fn start_by(wrapper: &[&str]) -> Self {
        let warmed = Self::with(Agent::start_by(wrapper).await);
        warmed.warm_up().await;
        warmed.until_warm().await;
        warmed
    }

    /// Asks for an interpreter, and does not wait for it.
    pub(crate) async fn warm_up(&self) {
        let request = WarmUpRequest {
            interpreter: Interpreter::Python.into(),
            program: "python3".into(),
            env: self.python(&[]).env,
        };
        self.agent.client.clone().warm_up(request).await.unwrap();
    }

    /// Starts an agent that nobody asks to warm anything up.
    pub(crate) async fn start_cold() -> Self {
        Self::with(Agent::start().await)
    }

    fn with(agent: Agent) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let anybody = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(directory.path(), anybody).unwrap();
        Self {
            agent,
            directory,
            count: std::cell::Cell::default(),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn write(&self, name: &str, source: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path().join(name);
        std::fs::write(&path, source).unwrap();
        path
    }

    /// A request for `python3` with these arguments, in the directory of scripts.
    pub(crate) fn python(&self, arguments: &[&str]) -> ExecStart {
        self.count.set(self.count.get() + 1);
        let argv: Vec<_> = std::iter::once(&"python3")
            .chain(arguments)
            .copied()
            .collect();
        let home = self.path().to_str().unwrap();
        let mut start = command(&format!("e_{}", self.count.get()), &argv);
        start
            .env
            .extend([variable("HOME", home), variable("LANG", "C.UTF-8")]);
        start.cwd = home.as_bytes().to_vec().into();
        start
    }

    /// The same for a warmed interpreter.
    pub(crate) fn warm_python(&self, arguments: &[&str]) -> ExecStart {
        let mut start = self.python(arguments);
        start.set_warm_interpreter(Interpreter::Python);
        start
    }

    /// Runs a script that a warmed interpreter may run.
    pub(crate) async fn run(&self, source: &str) -> Finished {
        self.write("script.py", source);
        self.agent.run(self.warm_python(&["script.py"])).await
    }

    /// What such a script prints.
    pub(crate) async fn said(&self, source: &str) -> String {
        let finished = self.run(source).await;
        let stderr = String::from_utf8_lossy(&finished.stderr);
        assert_eq!(finished.exit.code, Some(0), "{stderr}");
        String::from_utf8(finished.stdout)
            .unwrap()
            .trim()
            .to_owned()
    }

    /// Whether a script is run by a warmed interpreter.
    pub(crate) async fn is_warm(&self) -> bool {
        self.said(TELL).await == "True"
    }

    pub(crate) async fn until_warm(&self) {
        let deadline = Instant::now() + DEADLINE;
        while !self.is_warm().await {
            assert!(Instant::now() < deadline, "an interpreter is warmed up");
        }
    }
}
