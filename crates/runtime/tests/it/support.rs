//! A launcher, containers that are removed when dropped, and checks for leftovers.

#![allow(dead_code, reason = "each test file uses a part")]
#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests panic when the setup fails"
)]

use std::fs::{self, File};
use std::io::Read;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

use hotcell_runtime::{
    IdMap, LaunchError, LaunchSpec, Launched, Launcher, Limits, Root, USER_ID, ids,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Only a test that hangs takes longer.
const DEADLINE: Duration = Duration::from_mins(2);

/// The program that acts as init: dynamically linked, so the root must have its libraries.
pub(crate) fn shell() -> Vec<u8> {
    fs::read("/bin/sh").unwrap()
}

pub(crate) fn launcher() -> Launcher {
    Launcher::start(
        Path::new(env!("CARGO_BIN_EXE_hotcell-launcher-test")),
        &shell(),
    )
    .unwrap()
}

/// A workspace and the spec of a container that runs a shell script.
pub(crate) struct TestContainer {
    pub workspace: tempfile::TempDir,
    pub spec: LaunchSpec,
}

impl TestContainer {
    pub(crate) fn new(script: &str) -> Self {
        let workspace = tempfile::tempdir().unwrap();
        let ids = ids::choose(|| ids::range_base(7).unwrap());
        own(workspace.path(), ids);
        let argv = ["sh", "-c", script].map(str::to_owned).to_vec();
        let spec = LaunchSpec {
            name: unique_name(),
            root: Root::Host,
            workspace: workspace.path().to_owned(),
            workspace_ids: None,
            ids,
            limits: limits(),
            allow_root: false,
            cgroup: true,
            argv,
            env: vec![
                "PATH=/usr/bin:/bin".to_owned(),
                "HOME=/workspace".to_owned(),
            ],
        };
        Self { workspace, spec }
    }

    /// Starts it with a pipe as descriptors 2 and 3.
    pub(crate) fn start(&self, launcher: &Launcher) -> Result<Running, LaunchError> {
        let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
        let container = launcher.launch(&self.spec, write.as_fd(), &[write.as_fd()])?;
        Ok(Running {
            launched: container,
            output: File::from(read),
        })
    }

    /// Runs the script until it exits and returns what it wrote to descriptors 2 and 3.
    pub(crate) fn output(&self, launcher: &Launcher) -> String {
        self.start(launcher).unwrap().finish()
    }
}

/// The output of a script in a new container.
pub(crate) fn run(script: &str) -> String {
    TestContainer::new(script).output(&launcher())
}

/// Gives a directory to the container's user.
pub(crate) fn own(path: &Path, ids: IdMap) {
    let (uid, gid) = (ids.host_uid(USER_ID), ids.host_gid(USER_ID));
    std::os::unix::fs::chown(path, uid, gid).unwrap();
}

pub(crate) fn limits() -> Limits {
    Limits {
        memory_bytes: 256 << 20,
        cpu_millis: 1000,
        pids: 64,
        tmp_bytes: 4 << 20,
        shm_bytes: 1 << 20,
        open_files: 256,
    }
}

fn unique_name() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!(
        "test-{}-{}",
        std::process::id(),
        NEXT.fetch_add(1, Ordering::Relaxed)
    )
}

/// A container that is killed and removed when dropped.
pub(crate) struct Running {
    pub launched: Launched,
    pub output: File,
}

impl Running {
    /// Reads until the last process has closed its end.
    pub(crate) fn finish(mut self) -> String {
        let mut text = Vec::new();
        let mut chunk = [0; 4096];
        loop {
            assert!(
                readable(&self.output),
                "the container did not end; so far: {text:?}"
            );
            match self.output.read(&mut chunk).unwrap() {
                0 => break,
                len => text.extend_from_slice(&chunk[..len]),
            }
        }
        self.await_end();
        String::from_utf8(text).unwrap()
    }

    pub(crate) fn line(&mut self) -> String {
        let mut text = String::new();
        let mut byte = [0];
        loop {
            assert!(readable(&self.output), "no line in time");
            match self.output.read(&mut byte).unwrap() {
                0 => return text,
                _ if byte[0] == b'\n' => return text,
                _ => text.push(char::from(byte[0])),
            }
        }
    }

    pub(crate) fn await_end(&self) {
        assert!(
            readable(&self.launched.pidfd),
            "the container did not end in time"
        );
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        hotcell_runtime::kill(&self.launched.pidfd).unwrap();
        self.await_end();
        self.launched.cgroup.remove().unwrap();
    }
}

pub(crate) fn readable(fd: &impl AsFd) -> bool {
    let timeout = Timespec::try_from(DEADLINE).unwrap();
    poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&timeout)).unwrap() > 0
}

/// Polls until the condition holds, or panics after [`DEADLINE`].
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < DEADLINE, "never: {what}");
        std::thread::yield_now();
    }
}

/// Cgroups that containers of this process have left behind.
pub(crate) fn groups_left() -> Vec<String> {
    let ours = format!("test-{}-", std::process::id());
    let host = hotcell_runtime::cgroup::HostCgroups::detect();
    host.names()
        .into_iter()
        .filter(|name| name.starts_with(&ours))
        .collect()
}

/// Number of open descriptors of a process.
pub(crate) fn descriptors(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}

/// Children of a process, including zombies.
pub(crate) fn children(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap()
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
