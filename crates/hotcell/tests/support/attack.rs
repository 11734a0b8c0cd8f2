//! Attacks from inside: who makes them, in what words, and what they get for an answer.

use std::time::Duration;

use hotcell_agent_client::{Command, EventKind, Exit, Follow, Output};
use hotcell_engine::docker::Flavor;

use super::{Cell, Ran, deadline, python};

/// What every attack in Python begins with. `call` makes a system call by its number and
/// `attempt` runs a function; both answer with the name of the errno if there was one.
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

/// A Python script with the words of an attacker.
pub(crate) fn attack(script: &str) -> Command {
    let numbers = format!("PTRACE = {}\n", libc::SYS_ptrace);
    python(&format!("{PRELUDE}{numbers}{script}"))
}

/// The same as the container's root.
pub(crate) fn as_root(mut command: Command) -> Command {
    command.user = Some((0, 0));
    command
}

/// Who attacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    /// The user, in a container that has no other.
    User,
    /// The user, in a container that has a root.
    UserBesideRoot,
    /// Its root.
    Root,
}

/// Runs an attack as everyone who can make it, and checks each time that the container
/// answers afterwards and leaves nothing behind.
pub(crate) async fn by_everyone(script: &str, check: impl Fn(Who, &Ran)) {
    let command = attack(script);
    let cell = Cell::new().await;
    check(Who::User, &cell.run(&command).await);
    cell.answers().await;
    cell.remove().await;
    let Some(cell) = Cell::with_root_too().await else {
        return;
    };
    check(Who::UserBesideRoot, &cell.run(&command).await);
    cell.answers().await;
    check(Who::Root, &cell.run(&as_root(command)).await);
    cell.answers().await;
    cell.remove().await;
}

/// Engines that are not ours, where the same attacks are made.
pub(crate) const OTHERS: [Flavor; 2] = [Flavor::Docker, Flavor::Podman];

/// The user's and root's attack in a container of Docker and of Podman have this outcome.
pub(crate) async fn other_engines_give(script: &str, expected: &str) {
    for flavor in OTHERS {
        let Some(cell) = Cell::on(flavor, |spec| spec.allow_root = true).await else {
            return;
        };
        for command in [attack(script), as_root(attack(script))] {
            let ran = cell.run(&command).await;
            assert_eq!(ran.stdout, expected, "{}: {ran:?}", flavor.name());
            assert_eq!(ran.code(), 0, "{}: {ran:?}", flavor.name());
            cell.answers().await;
        }
        cell.remove().await;
    }
}

/// Everyone's attack has this outcome, word for word.
pub(crate) async fn everyone_gets(script: &str, expected: &str) {
    by_everyone(script, |who, ran| {
        assert_eq!(ran.stdout, expected, "{who:?}: {ran:?}");
        assert_eq!(ran.code(), 0, "{who:?}: {ran:?}");
    })
    .await;
}

impl Cell {
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
            cell: self,
            follow: follow.expect("the exec starts"),
            id,
            stdout: Vec::new(),
            stderr: Vec::new(),
            exit: None,
        }
    }

    /// Starts an attack and waits until it has said a line.
    pub(crate) async fn begin_until(&self, script: &str, line: &str) -> Running<'_> {
        let mut running = self.begin(&attack(script)).await;
        running.says(line).await;
        running
    }

    /// Whether a process of the container lives, by its number inside.
    pub(crate) async fn lives(&self, pid: &str) -> bool {
        let ran = self.sh(&format!("kill -0 {pid} 2>/dev/null")).await;
        ran.code() == 0
    }
}

/// A command that may still run.
pub(crate) struct Running<'cell> {
    cell: &'cell Cell,
    follow: Follow,
    pub id: String,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    exit: Option<Exit>,
}

impl Running<'_> {
    /// Waits until it has written a line that begins so, and gives back the rest of it.
    pub(crate) async fn says(&mut self, begin: &str) -> String {
        let said = self.says_or_ends(begin).await;
        said.unwrap_or_else(|ran| panic!("it ended first: {ran:?}"))
    }

    /// The same, or how it ended if it did not write such a line.
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

    /// Cancels it and returns when all of it is gone.
    pub(crate) async fn cancel(&self, grace: Duration) {
        let cancel = self.cell.agent.cancel(&self.id, grace);
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
