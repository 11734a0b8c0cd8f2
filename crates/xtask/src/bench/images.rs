//! `hotcell pull` compared with `podman pull`: both pull the same layer from the same registry, in
//! turns, into an empty store.

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::readme::{Readme, p50};
use super::report::Report;
use super::samples::Samples;
use super::timed;

/// Pulls with each program.
const ROUNDS: usize = 5;

/// Number of files in the layer, and half the size of each: one half of a file is random and does not compress.
const FILES: usize = 2000;
const HALF_BYTES: usize = 50_000;

/// How long a registry may take to answer.
const START_TIMEOUT: Duration = Duration::from_secs(20);

const OURS: &str = "hotcell pull, layer of 100 MB";
const THEIRS: &str = "podman pull, layer of 100 MB";

/// A registry with the image, and a directory for the stores that pull it.
struct PullBench {
    directory: PathBuf,
    registry: Child,
    host: String,
}

/// Measures, or reports which program is not installed.
pub(super) fn run(program: &Path, report: &Report, readme: &mut Readme) -> Result<()> {
    let programs = ["podman", "runc", "docker-registry"];
    let is_missing = |name: &&str| Command::new(name).arg("--version").output().is_err();
    if let Some(missing) = programs.into_iter().find(is_missing) {
        report.unmeasured(&format!("images: {missing} is not installed"));
        return Ok(());
    }
    let bench = PullBench::make()?;
    let mut samples = Samples::default();
    for _ in 0..ROUNDS {
        samples.add(OURS, bench.ours(program)?);
        samples.add(THEIRS, bench.theirs()?);
    }
    samples.print();
    samples.at_most_times(report, OURS, 1.0, THEIRS);
    readme.table();
    readme.row(
        "pull and unpack a layer of 100 MB",
        &p50(&samples, OURS),
        &format!("`podman pull` {}", p50(&samples, THEIRS)),
    );
    Ok(())
}

impl PullBench {
    fn make() -> Result<Self> {
        let name = format!("hotcell-images-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        fs::create_dir_all(&directory)?;
        let host = free_address()?;
        let config = format!(
            "version: 0.1\nlog:\n  level: error\n  accesslog:\n    disabled: true\nstorage:\n  \
             filesystem:\n    rootdirectory: {}\nhttp:\n  addr: {host}\n",
            directory.join("registry").display()
        );
        let file = directory.join("registry.yml");
        fs::write(&file, config)?;
        let registry = Command::new("docker-registry")
            .arg("serve")
            .arg(&file)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("start a registry")?;
        let bench = Self {
            directory,
            registry,
            host,
        };
        bench.wait_until_ready()?;
        bench.push()?;
        Ok(bench)
    }

    fn wait_until_ready(&self) -> Result<()> {
        let deadline = Instant::now() + START_TIMEOUT;
        while TcpStream::connect(&self.host).is_err() {
            ensure!(Instant::now() < deadline, "the registry does not answer");
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Builds the image and pushes it with Podman.
    fn push(&self) -> Result<()> {
        let root = self.directory.join("root");
        write_files(&root)?;
        let archive = self.directory.join("layer.tar");
        let mut tar = Command::new("tar");
        tar.arg("-C").arg(&root).arg("-cf").arg(&archive).arg(".");
        succeed(&mut tar)?;
        fs::remove_dir_all(&root)?;
        let archive = archive.to_str().context("a plain temporary directory")?;
        self.podman(&["import", "--quiet", archive, "localhost/bench"])?;
        let image = self.image();
        self.podman(&[
            "push",
            "--quiet",
            "--tls-verify=false",
            "localhost/bench",
            &image,
        ])?;
        self.clear()
    }

    fn image(&self) -> String {
        format!("{}/bench:latest", self.host)
    }

    fn ours(&self, program: &Path) -> Result<Duration> {
        let mut pull = Command::new(program);
        pull.args(["pull", &self.image(), "--allowed-registries", &self.host])
            .env("HOTCELL_STATE_DIR", self.directory.join("store"));
        self.measure(|| succeed(&mut pull))
    }

    fn theirs(&self) -> Result<Duration> {
        let policy = self.directory.join("policy.json");
        fs::write(
            &policy,
            r#"{"default": [{"type": "insecureAcceptAnything"}]}"#,
        )?;
        let policy = policy.to_str().context("a plain temporary directory")?;
        let pull = [
            "pull",
            "--quiet",
            "--tls-verify=false",
            "--signature-policy",
            policy,
        ];
        let image = self.image();
        self.measure(|| self.podman(&[&pull[..], &[&image]].concat()))
    }

    /// Times one pull. Syncs first, so that it does not compete with writes of the previous one.
    fn measure(&self, pull: impl FnOnce() -> Result<()>) -> Result<Duration> {
        rustix::fs::sync();
        let time = timed(pull)?;
        self.clear()?;
        Ok(time)
    }

    fn podman(&self, arguments: &[&str]) -> Result<()> {
        let store = self.directory.join("store");
        let mut podman = Command::new("podman");
        podman
            .arg("--root")
            .arg(store.join("root"))
            .arg("--runroot")
            .arg(store.join("run"))
            .arg("--tmpdir")
            .arg(store.join("tmp"))
            .args(["--runtime", "runc", "--cgroup-manager", "cgroupfs"])
            .args(["--events-backend", "file", "--storage-driver", "overlay"])
            .args(arguments);
        succeed(&mut podman)
    }

    /// Empties the store. Podman leaves a bind mount on its overlay directory, which is unmounted first.
    fn clear(&self) -> Result<()> {
        let store = self.directory.join("store");
        let _ = Command::new("umount")
            .arg(store.join("root/overlay"))
            .stderr(Stdio::null())
            .status();
        fs::remove_dir_all(&store).context("empty the store")
    }
}

impl Drop for PullBench {
    fn drop(&mut self) {
        let _ = self.registry.kill();
        let _ = self.registry.wait();
        let _ = self.clear();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn free_address() -> Result<String> {
    let free = std::net::TcpListener::bind("127.0.0.1:0")?;
    Ok(free.local_addr()?.to_string())
}

/// Writes files with different content each.
fn write_files(root: &Path) -> Result<()> {
    let text = b"the quick brown fox jumps over the lazy dog\n";
    let mut content = vec![0; HALF_BYTES];
    content.extend(text.iter().cycle().take(HALF_BYTES));
    for number in 0..FILES {
        let directory = root.join(format!("usr/share/d{}", number % 50));
        fs::create_dir_all(&directory)?;
        getrandom::fill(&mut content[..HALF_BYTES])?;
        fs::write(directory.join(format!("f{number}")), &content)?;
    }
    Ok(())
}

fn succeed(command: &mut Command) -> Result<()> {
    let output = command.stdin(Stdio::null()).output()?;
    let program = command.get_program().to_string_lossy();
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program}: {}", said.trim());
    Ok(())
}
