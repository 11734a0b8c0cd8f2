//! The state directory of a test, and the check that nothing of it is left afterwards.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use hotcell_domain::ContainerId;
use hotcell_engine::Engine;

use super::server::{Server, output};
use super::{deadline, engine, leftovers, scratch};

/// A state directory. Dropping it fails the test if a container, a mount, a cgroup or a process
/// is left.
pub(crate) struct Home {
    path: PathBuf,
    variables: Vec<(String, String)>,
    has_cgroups: bool,
    _scratch: tempfile::TempDir,
}

impl Home {
    pub(crate) fn new() -> Self {
        let scratch = scratch();
        Self::at(scratch.path().to_owned(), scratch)
    }

    /// Makes every HTTP client of its servers an admin.
    pub(crate) fn operated() -> Self {
        Self::new().with("HOTCELL_ADMIN_OVER_HTTP", "true")
    }

    /// A directory whose path is too long for a socket address.
    pub(crate) fn far_down() -> Self {
        let scratch = scratch();
        Self::at(scratch.path().join(["far-down"; 25].join("/")), scratch)
    }

    /// Below another directory than that of temporary files.
    pub(crate) fn below(directory: &Path) -> Self {
        let scratch = tempfile::tempdir_in(directory).expect("a directory there");
        Self::at(scratch.path().to_owned(), scratch)
    }

    fn at(path: PathBuf, scratch: tempfile::TempDir) -> Self {
        Self {
            path,
            variables: Vec::new(),
            has_cgroups: true,
            _scratch: scratch,
        }
    }

    /// Adds an environment variable for everything that is started.
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Hides the cgroups from everything that is started, which takes root.
    pub(crate) fn without_cgroups(mut self) -> Self {
        self.has_cgroups = false;
        self
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Where the engine keeps its containers.
    pub(crate) fn engine_home(&self) -> PathBuf {
        self.path().join("run")
    }

    /// `hotcell` with this state directory.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = if self.has_cgroups {
            Command::new(super::hotcell())
        } else {
            // The shell executes the program, so the process id stays the same.
            let hide = "mount -t tmpfs none /sys/fs/cgroup && exec \"$@\"";
            let mut command = Command::new("unshare");
            command
                .args(["--mount", "sh", "-c", hide, "sh"])
                .arg(super::hotcell());
            command
        };
        command
            .args(arguments)
            .env("HOTCELL_STATE_DIR", self.path())
            .env_remove("HOTCELL_LOG")
            .env("XDG_CONFIG_HOME", self.path())
            // No test fails because the machine is small.
            .env("HOTCELL_MEMORY_TOTAL", "16t")
            .env("HOTCELL_PIDS_TOTAL", "4194304")
            .envs(self.variables.iter().cloned())
            .stdin(Stdio::null());
        command
    }

    /// Runs `hotcell` with this state directory; fails if that takes too long.
    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        output(&mut self.command(arguments))
    }

    /// Starts an HTTP server on a free port.
    pub(crate) fn serve(&self) -> Server {
        self.serve_with(&[])
    }

    /// Like `serve`, with more arguments.
    pub(crate) fn serve_with(&self, arguments: &[&str]) -> Server {
        Server::start(self, arguments)
    }

    /// Containers that have a directory.
    pub(crate) fn containers(&self) -> Vec<ContainerId> {
        let entries = std::fs::read_dir(self.engine_home().join("containers"));
        let names = entries.into_iter().flatten().flatten();
        names
            .filter_map(|entry| ContainerId::parse(entry.file_name().to_str()?).ok())
            .collect()
    }

    /// Workspaces that have a directory.
    pub(crate) fn workspaces(&self) -> Vec<String> {
        let entries = std::fs::read_dir(super::tree(&self.engine_home()));
        let names = entries.into_iter().flatten().flatten();
        names
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| name.starts_with("n_"))
            .collect()
    }

    /// Waits until no container exists and nothing of those in `ids` is left.
    pub(crate) fn assert_empty(&self, ids: &[ContainerId]) {
        let until = Instant::now() + deadline();
        loop {
            let left: Vec<String> = ids
                .iter()
                .chain(&self.containers())
                .flat_map(|id| leftovers(id, &self.engine_home()))
                .collect();
            if left.is_empty() {
                return;
            }
            assert!(Instant::now() < until, "left behind: {left:#?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn remove_containers(&self) {
        let ids = self.containers();
        if ids.is_empty() {
            return;
        }
        let engine = engine(&self.engine_home());
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        for id in ids {
            // The test has failed already.
            let _ = runtime.block_on(engine.destroy(&id));
        }
    }

    /// Processes of this test: those that have its directory in their environment or arguments.
    fn processes(&self) -> Vec<String> {
        let path = self.path().to_str().expect("a plain path").to_owned();
        let is_ours = |pid: &u32| {
            ["environ", "cmdline"].iter().any(|file| {
                let text = std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
                String::from_utf8_lossy(&text).contains(&path)
            })
        };
        let mut pids = super::pids();
        pids.retain(is_ours);
        let name = |pid| {
            let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let command = String::from_utf8_lossy(&command).replace('\0', " ");
            format!("process {pid}: {command}")
        };
        pids.into_iter().map(name).collect()
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let remove = || self.remove_containers();
            std::thread::scope(|scope| scope.spawn(remove).join()).ok();
            return;
        }
        let until = Instant::now() + deadline();
        loop {
            let containers = self.containers().into_iter().map(|id| id.to_string());
            let left = containers.chain(self.workspaces()).chain(self.processes());
            let left: Vec<String> = left.collect();
            if left.is_empty() {
                return;
            }
            if Instant::now() > until {
                self.remove_containers();
                panic!("left behind: {left:#?}");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
