//! The directory of one container: its root, its socket, and who its agent is.
//!
//! ```text
//! c_…/root         the directory that the agent serves
//! c_…/agent.sock   the agent's socket
//! c_…/agent.log    the agent's log
//! c_…/process      its PID and start time; missing while it is being created
//! c_…/spec         the requested spec
//! c_…/image        the image that every name referred to when it was created, if set
//! ```

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use hotcell_domain::{ContainerId, ContainerSpec, Lifetime, Phase};
use hotcell_engine::{Container, Enforced, Enforcement, StoredSpec};
use tokio::net::UnixStream;

use super::process::Process;

/// The agent's socket in its container's directory.
const SOCKET: &str = "agent.sock";

/// How long an agent may take to listen.
const LISTEN_TIMEOUT: Duration = Duration::from_mins(1);

/// Pause between two connection attempts.
const LISTEN_INTERVAL: Duration = Duration::from_millis(1);

/// The fake engine enforces no limits.
pub(super) const UNLIMITED: Enforced = Enforced {
    memory: Enforcement::None,
    cpus: Enforcement::None,
    pids: Enforcement::None,
    disk: Enforcement::Watched,
};

/// The directory of one container.
#[derive(Debug, Clone)]
pub(super) struct Home {
    id: ContainerId,
    path: PathBuf,
}

/// A container that is being created. Dropping it undoes everything, except the files of one that
/// is being restarted.
pub(super) struct Making {
    home: Home,
    process: Option<Process>,
    is_new: bool,
    done: bool,
}

impl Home {
    pub(super) fn new(directory: &Path, id: &ContainerId) -> Self {
        Self {
            id: id.clone(),
            path: directory.join(id.as_str()),
        }
    }

    pub(super) fn exists(&self) -> bool {
        self.path.is_dir()
    }

    /// The agent's process, once there is one.
    pub(super) fn process(&self) -> Option<Process> {
        let text = fs::read_to_string(self.path.join("process")).ok()?;
        Process::parse(&text)
    }

    /// Connects through a short path that fits into a socket address, wherever the directory is.
    pub(super) async fn connect(&self) -> io::Result<UnixStream> {
        let directory = File::open(&self.path)?;
        let path = format!("/proc/self/fd/{}/{SOCKET}", directory.as_raw_fd());
        UnixStream::connect(path).await
    }

    pub(super) fn describe(&self) -> Container {
        let phase = match self.process() {
            None => Phase::Creating,
            Some(process) if process.is_running() => Phase::Running,
            Some(_) => Phase::Stopped,
        };
        Container {
            id: self.id.clone(),
            phase,
            lifetime: Lifetime::UntilDestroyed,
            enforced: UNLIMITED,
            oom_kills: 0,
            memory_bytes: None,
            cpu_time: None,
            image_digest: self.image_id(),
            image_id: self.image_id(),
            file_ids: None,
            spec: self.spec(),
        }
    }

    fn spec(&self) -> Option<ContainerSpec> {
        let text = fs::read_to_string(self.path.join("spec")).ok()?;
        StoredSpec::parse(&text)?.spec(Lifetime::UntilDestroyed)
    }

    fn image_id(&self) -> Option<String> {
        fs::read_to_string(self.path.join("image")).ok()
    }

    /// Removes all of it atomically. An agent that another engine over the same directory has just
    /// started is killed; one that it is starting can no longer be recorded.
    pub(super) fn remove(&self) -> io::Result<()> {
        let gone = Self {
            id: self.id.clone(),
            path: self.path.with_extension("gone"),
        };
        match fs::rename(&self.path, &gone.path) {
            // Another engine on this directory, that of a service that was dropped, was first.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            renamed => renamed?,
        }
        if let Some(process) = gone.process().filter(|process| process.is_running()) {
            process.kill_tree();
            process.wait_blocking();
        }
        fs::remove_dir_all(&gone.path)
    }

    fn socket(&self) -> PathBuf {
        self.path.join(SOCKET)
    }
}

impl Making {
    /// Creates the directory; replaces what another server left incomplete.
    pub(super) fn begin(home: Home) -> io::Result<Self> {
        if home.exists() {
            home.remove()?;
        }
        let making = Self {
            home,
            process: None,
            is_new: true,
            done: false,
        };
        fs::create_dir_all(making.home.path.join("root"))?;
        Ok(making)
    }

    /// Starts with what is left of a container whose agent has exited.
    pub(super) fn again(home: Home) -> io::Result<Self> {
        match fs::remove_file(home.socket()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        Ok(Self {
            home,
            process: None,
            is_new: false,
            done: false,
        })
    }

    /// Records the image of the container.
    pub(super) fn note_image(&self, id: &str) -> io::Result<()> {
        fs::write(self.home.path.join("image"), id)
    }

    /// Records the spec of the container.
    pub(super) fn note_spec(&self, spec: &ContainerSpec) -> io::Result<()> {
        let text = StoredSpec::of(spec).to_text();
        fs::write(self.home.path.join("spec"), text)
    }

    pub(super) fn start(&mut self, agent_program: &Path) -> io::Result<()> {
        let path = &self.home.path;
        let child = Command::new(agent_program)
            .arg("init")
            .arg("--root")
            .arg(path.join("root"))
            // Relative to its own directory: the full path may be too long for a socket address.
            .args(["--listen-path", SOCKET])
            .env_clear()
            .current_dir(path)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(path.join("agent.log"))?)
            .process_group(0)
            .spawn()?;
        // Nobody reaps it through this value, so its pid cannot be reused.
        let process = Process::now(child.id().cast_signed());
        self.process = Some(process.ok_or(io::ErrorKind::NotFound)?);
        Ok(())
    }

    /// Waits until the agent accepts connections.
    pub(super) async fn until_listening(&self) -> io::Result<()> {
        let listening = async {
            while self.home.connect().await.is_err() {
                if !self.process.is_some_and(Process::is_running) {
                    return Err(io::Error::other("the agent ended before it listened"));
                }
                if !self.home.exists() {
                    return Err(io::Error::other("the container was removed meanwhile"));
                }
                tokio::time::sleep(LISTEN_INTERVAL).await;
            }
            Ok(())
        };
        let timed = tokio::time::timeout(LISTEN_TIMEOUT, listening);
        timed.await.unwrap_or(Err(io::ErrorKind::TimedOut.into()))
    }

    /// The container is complete: keep it.
    pub(super) fn finish(mut self) -> io::Result<Container> {
        if let Some(process) = self.process {
            fs::write(self.home.path.join("process"), process.to_text())?;
        }
        self.done = true;
        Ok(self.home.describe())
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        if let Some(process) = self.process {
            process.kill_tree();
            process.wait_blocking();
        }
        if self.is_new {
            let _ = self.home.remove();
        }
    }
}
