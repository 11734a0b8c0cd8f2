//! A private Docker for comparison: its own directories and socket, and an image made of one static
//! program.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

/// How long a Docker engine may take to answer.
const START_TIMEOUT: Duration = Duration::from_mins(1);

/// A name that marks a local image, for Docker and for us.
pub(super) const IMAGE: &str = "localhost/hotcell-bench:box";

pub(super) struct Docker {
    engine: Child,
    directory: PathBuf,
    live: String,
}

impl Docker {
    /// Starts an engine with one running container, if Docker and a static busybox are installed
    /// and we are root.
    pub(super) fn start() -> Result<Option<Self>> {
        let busybox = Path::new("/bin/busybox");
        let root = Command::new("id").arg("-u").output()?.stdout == b"0\n";
        if !root || !busybox.exists() || Command::new("dockerd").arg("--version").output().is_err()
        {
            return Ok(None);
        }
        let directory = std::env::temp_dir().join(format!("hotcell-docker-{}", std::process::id()));
        std::fs::create_dir_all(&directory)?;
        let engine = Command::new("dockerd")
            .arg("--data-root")
            .arg(directory.join("data"))
            .arg("--exec-root")
            .arg(directory.join("exec"))
            .arg("--pidfile")
            .arg(directory.join("pid"))
            .arg("-H")
            .arg(format!("unix://{}", directory.join("sock").display()))
            .args(["--iptables=false", "--ip6tables=false"])
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(directory.join("log"))?)
            .spawn()
            .context("start dockerd")?;
        let mut this = Self {
            engine,
            directory,
            live: String::new(),
        };
        this.wait_until_ready()?;
        this.import(busybox)?;
        let run = [
            "run",
            "-d",
            "--network=none",
            IMAGE,
            "/bin/busybox",
            "sleep",
            "100000",
        ];
        this.docker(&run)?.trim().clone_into(&mut this.live);
        Ok(Some(this))
    }

    /// As users usually run it.
    pub(super) fn run_true(&self) -> Result<()> {
        self.docker(&["run", "--rm", IMAGE, "/bin/busybox", "true"])
            .map(drop)
    }

    /// Without a network, like our containers.
    pub(super) fn run_true_alone(&self) -> Result<()> {
        self.docker(&[
            "run",
            "--rm",
            "--network=none",
            IMAGE,
            "/bin/busybox",
            "true",
        ])
        .map(drop)
    }

    /// The counterpart of our spawn: a container that stays.
    pub(super) fn run_detached(&self) -> Result<String> {
        let run = [
            "run",
            "-d",
            "--network=none",
            IMAGE,
            "/bin/busybox",
            "sleep",
            "100",
        ];
        Ok(self.docker(&run)?.trim().to_owned())
    }

    pub(super) fn remove(&self, container: &str) -> Result<()> {
        self.docker(&["rm", "-f", container]).map(drop)
    }

    /// The address, in the format of `DOCKER_HOST`.
    pub(super) fn host(&self) -> String {
        format!("unix://{}", self.directory.join("sock").display())
    }

    pub(super) fn exec_true(&self) -> Result<()> {
        self.docker(&["exec", &self.live, "/bin/busybox", "true"])
            .map(drop)
    }

    /// Copies a file of the host into the running container.
    pub(super) fn copy_in(&self, file: &Path) -> Result<()> {
        let from = file.to_str().context("a plain path")?;
        self.docker(&["cp", from, &format!("{}:/f", self.live)])
            .map(drop)
    }

    /// Copies it out again.
    pub(super) fn copy_out(&self, file: &Path) -> Result<()> {
        let to = file.to_str().context("a plain path")?;
        self.docker(&["cp", &format!("{}:/f", self.live), to])
            .map(drop)
    }

    fn wait_until_ready(&mut self) -> Result<()> {
        let deadline = Instant::now() + START_TIMEOUT;
        while self.docker(&["version"]).is_err() {
            if Instant::now() > deadline || self.engine.try_wait()?.is_some() {
                let log = std::fs::read_to_string(self.directory.join("log")).unwrap_or_default();
                bail!(
                    "dockerd does not answer: {}",
                    log.lines().last().unwrap_or_default()
                );
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    fn import(&self, busybox: &Path) -> Result<()> {
        let archive = busybox_archive(busybox, &self.directory)?;
        let archive = archive.to_str().context("a plain temporary directory")?;
        self.docker(&["import", archive, IMAGE]).map(drop)
    }

    fn docker(&self, arguments: &[&str]) -> Result<String> {
        let output = Command::new("docker")
            .arg("-H")
            .arg(self.host())
            .args(arguments)
            .output()
            .context("run docker")?;
        ensure!(
            output.status.success(),
            "docker {}: {}",
            arguments.join(" "),
            String::from_utf8_lossy(&output.stderr).trim()
        );
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// Packs a root with nothing but a static busybox; returns the archive.
pub(super) fn busybox_archive(busybox: &Path, directory: &Path) -> Result<PathBuf> {
    let root = directory.join("root");
    std::fs::create_dir_all(root.join("bin"))?;
    std::fs::copy(busybox, root.join("bin/busybox"))?;
    std::os::unix::fs::symlink("busybox", root.join("bin/true"))?;
    let archive = directory.join("root.tar");
    let tar = Command::new("tar")
        .arg("-C")
        .arg(&root)
        .arg("-cf")
        .arg(&archive)
        .arg(".")
        .status()?;
    ensure!(tar.success(), "tar failed");
    Ok(archive)
}

impl Drop for Docker {
    fn drop(&mut self) {
        let _ = self.docker(&["rm", "-f", &self.live]);
        let terminated = Command::new("kill")
            .arg(self.engine.id().to_string())
            .status();
        if terminated.is_err() {
            let _ = self.engine.kill();
        }
        let _ = self.engine.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
