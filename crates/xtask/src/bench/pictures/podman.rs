//! A private Podman for comparison: stores of its own, and the same image as Docker's.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::super::docker::{IMAGE, busybox_archive};

/// Without a network, like our containers, and with limits that a root with few rights can set, too.
const ALONE: [&str; 5] = [
    "--network=none",
    "--ulimit",
    "nofile=1024:1024",
    "--ulimit",
    "nproc=4096:4096",
];

pub(super) struct Podman {
    directory: PathBuf,
}

impl Podman {
    /// One running container, if Podman and a static busybox are installed and we are root.
    pub(super) fn start() -> Result<Option<Self>> {
        let busybox = Path::new("/bin/busybox");
        let is_there = |name: &str| Command::new(name).arg("--version").output().is_ok();
        if !rustix::process::getuid().is_root()
            || !busybox.exists()
            || !is_there("podman")
            || !is_there("runc")
        {
            return Ok(None);
        }
        let directory = std::env::temp_dir().join(format!("hotcell-podman-{}", std::process::id()));
        std::fs::create_dir_all(&directory)?;
        let archive = busybox_archive(busybox, &directory)?;
        let this = Self { directory };
        let archive = archive.to_str().context("a plain temporary directory")?;
        this.podman(&["import", "--quiet", archive, IMAGE])?;
        let run = ["run", "--detach", "--name", "live"];
        let program = [IMAGE, "/bin/busybox", "sleep", "100000"];
        this.podman(&[&run[..], &ALONE, &program].concat())?;
        Ok(Some(this))
    }

    pub(super) fn run_true(&self) -> Result<()> {
        let program = [IMAGE, "/bin/busybox", "true"];
        self.podman(&[&["run", "--rm"], &ALONE[..], &program].concat())
    }

    pub(super) fn exec_true(&self) -> Result<()> {
        self.podman(&["exec", "live", "/bin/busybox", "true"])
    }

    fn podman(&self, arguments: &[&str]) -> Result<()> {
        let of = |name: &str| self.directory.join(name);
        let output = Command::new("podman")
            .arg("--root")
            .arg(of("store"))
            .arg("--runroot")
            .arg(of("run"))
            .arg("--tmpdir")
            .arg(of("tmp"))
            .args(["--runtime", "runc", "--cgroup-manager", "cgroupfs"])
            .args(["--events-backend", "file", "--storage-driver", "overlay"])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .output()
            .context("run podman")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success(),
            "podman {}: {}",
            arguments.join(" "),
            said.trim()
        );
        Ok(())
    }
}

impl Drop for Podman {
    fn drop(&mut self) {
        let _ = self.podman(&["rm", "--force", "--time", "0", "live"]);
        // Podman leaves a bind mount on its overlay directory.
        let _ = Command::new("umount")
            .arg(self.directory.join("store/overlay"))
            .stderr(Stdio::null())
            .status();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
