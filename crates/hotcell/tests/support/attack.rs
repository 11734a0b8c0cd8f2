//! Attacks from inside a container: who runs them, the helpers of their scripts, and their outcomes.

use std::time::Duration;

use hotcell_agent_client::{Command, EventKind, Exit, Follow, Output};
use hotcell_engine::docker::Flavor;

use super::{Ran, TestContainer, deadline, python};

/// The prelude of every attack in Python. `call` makes a system call by its number and
/// `attempt` runs a function; both return the name of the errno if there was one.
const PRELUDE: &str = r"
import ctypes, errno, os, signal, sys, time
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
def call(number, *args):
    ctypes.set_errno(0)
    args = [ctypes.c_long(a) if isinstance(a, int) else a for a in args]
    result = libc.syscall(ctypes.c_long(number), *args)
    return result if result >= 0 else errno.errorcode[ctypes.get_errno()]
def attempt(action, *args):
    try:
        return action(*args)
    except OSError as error:
        return errno.errorcode[error.errno]
def ptrace(request, pid, addr=0, data=0):
    return call(PTRACE, request, pid, addr, data)
def wait_for(check):
    while not check():
        time.sleep(0.01)
def state(pid):
    with open(f'/proc/{pid}/stat') as file:
        return file.read().rsplit(') ', 1)[1][0]
";

/// An attack in Python, with the prelude, as the container's user.
pub(crate) fn attack(script: &str) -> Command {
    let numbers = format!("PTRACE = {}\n", libc::SYS_ptrace);
    python(&format!("{PRELUDE}{numbers}{script}"))
}

/// The command as the container's root.
pub(crate) fn as_root(mut command: Command) -> Command {
    command.user = Some((0, 0));
    command
}

/// The user that runs an attack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    /// The user of a container without root.
    User,
    /// The user of a container that also has root.
    UserBesideRoot,
    /// Root of that container.
    Root,
}

/// Runs an attack as each attacker, and checks each time that the container still works
/// afterwards and leaves nothing behind.
pub(crate) async fn by_everyone(script: &str, check: impl Fn(Who, &Ran)) {
    let command = attack(script);
    let container = TestContainer::new().await;
    check(Who::User, &container.run(&command).await);
    container.answers().await;
    container.remove().await;
    let Some(container) = TestContainer::with_root_too().await else {
        return;
    };
    check(Who::UserBesideRoot, &container.run(&command).await);
    container.answers().await;
    check(Who::Root, &container.run(&as_root(command)).await);
    container.answers().await;
    container.remove().await;
}

/// The other engines on which the same attacks run.
pub(crate) const OTHERS: [Flavor; 2] = [Flavor::Docker, Flavor::Podman];

/// Checks that an attack by user and by root has this outcome on Docker and on Podman.
pub(crate) async fn other_engines_give(script: &str, expected: &str) {
    for flavor in OTHERS {
        let Some(container) = TestContainer::on(flavor, |spec| spec.allow_root = true).await else {
            return;
        };
        for command in [attack(script), as_root(attack(script))] {
            let ran = container.run(&command).await;
            assert_eq!(ran.stdout, expected, "{}: {ran:?}", flavor.name());
            assert_eq!(ran.code(), 0, "{}: {ran:?}", flavor.name());
            container.answers().await;
        }
        container.remove().await;
    }
}

/// Checks that an attack prints exactly this, whoever runs it.
pub(crate) async fn everyone_gets(script: &str, expected: &str) {
    by_everyone(script, |who, ran| {
        assert_eq!(ran.stdout, expected, "{who:?}: {ran:?}");
        assert_eq!(ran.code(), 0, "{who:?}: {ran:?}");
    })
    .await;
}

impl TestContainer {
    /// Fails unless the container still does its work: runs a command, serves a file.
    pub(crate) async fn answers(&self) {
        let ran = self.sh("echo still here").await;
        assert_eq!((ran.stdout.as_str(), ran.code()), ("still here\n", 0));
        let stat = tokio::time::timeout(deadline(), self.agent.stat(b"/workspace", true));
        stat.await
            .expect("in time")
            .expect("the workspace is there");
    }

    /// Starts a command and does not wait for its end.
    pub(crate) async fn begin(&self, command: &Command) -> Running<'_> {
        let id = self.exec_id();
        let follow = self.agent.start(&id, command).await;
        Running {
            container: self,
            follow: follow.expect("the exec starts"),
            id,
            stdout: Vec::new(),
            stderr: Vec::new(),
            exit: None,
        }
    }

    /// Starts an attack and waits for its first line of output.
    pub(crate) async fn begin_until(&self, script: &str, line: &str) -> Running<'_> {
        let mut running = self.begin(&attack(script)).await;
        running.says(line).await;
        running
    }

    /// Whether the process with this pid (as seen inside the container) is alive.
    pub(crate) async fn lives(&self, pid: &str) -> bool {
        let ran = self.sh(&format!("kill -0 {pid} 2>/dev/null")).await;
        ran.code() == 0
    }
}

/// A command that may still run.
pub(crate) struct Running<'container> {
    container: &'container TestContainer,
    follow: Follow,
    pub id: String,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    exit: Option<Exit>,
}

impl Running<'_> {
    /// Waits for a line with this prefix; returns the rest of the line.
    pub(crate) async fn says(&mut self, begin: &str) -> String {
        let said = self.says_or_ends(begin).await;
        said.unwrap_or_else(|ran| panic!("it ended first: {ran:?}"))
    }

    /// Like `says`, but returns how the command ended if it wrote no such line.
    pub(crate) async fn says_or_ends(&mut self, begin: &str) -> Result<String, Box<Ran>> {
        let work = async {
            loop {
                let text = String::from_utf8_lossy(&self.stdout).into_owned();
                let mut lines = text.split_inclusive('\n').filter(|l| l.ends_with('\n'));
                if let Some(rest) = lines.find_map(|line| line.strip_prefix(begin)) {
                    return Ok(rest.trim().to_owned());
                }
                if self.exit.is_some() {
                    return Err(Box::new(self.ran()));
                }
                self.step().await;
            }
        };
        tokio::time::timeout(deadline(), work)
            .await
            .unwrap_or_else(|_| panic!("it never said {begin:?}"))
    }

    /// Cancels the command and waits until all its processes are gone.
    pub(crate) async fn cancel(&self, grace: Duration) {
        let cancel = self.container.agent.cancel(&self.id, grace);
        tokio::time::timeout(deadline(), cancel)
            .await
            .expect("the cancel ends in time")
            .expect("the cancel works");
    }

    /// Waits for its end.
    pub(crate) async fn ended(mut self) -> Ran {
        let work = async {
            while self.exit.is_none() {
                self.step().await;
            }
        };
        tokio::time::timeout(deadline(), work)
            .await
            .expect("the exec ends in time");
        self.ran()
    }

    fn ran(&self) -> Ran {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ran {
            stdout: text(&self.stdout),
            stderr: text(&self.stderr),
            exit: self.exit.clone().expect("it has ended"),
        }
    }

    async fn step(&mut self) {
        let event = self.follow.next().await.expect("the agent answers");
        let event = event.expect("the exec has an end");
        self.follow.ack(event.seq);
        match event.kind {
            EventKind::Started(_) => {}
            EventKind::Output(Output::Stdout, data) => self.stdout.extend_from_slice(&data),
            EventKind::Output(Output::Stderr, data) => self.stderr.extend_from_slice(&data),
            EventKind::Exit(exit) => self.exit = Some(exit),
        }
    }
}
