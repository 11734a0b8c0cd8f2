//! A server that can be killed: this test program, started once more.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use hotcell_agent_client::Command as Exec;
use hotcell_domain::{ContainerId, Lifetime};
use hotcell_engine::Engine;

use super::moment::{connect, parent_of, spec};
use crate::support::{engine, eventually, new_id, pids};

/// The variable with the driver's task.
const ROLE: &str = "HOTCELL_CRASH_ROLE";

/// The variable with the engine's directory.
const HOME: &str = "HOTCELL_CRASH_HOME";

/// What lines of the driver begin with, to be told from those of the test harness.
const MARK: &str = "@ ";

/// How many containers a driver makes at most.
const CONTAINERS: usize = 12;

/// A running driver.
pub(crate) struct Driver {
    child: Child,
    lines: BufReader<ChildStdout>,
    pub ids: Vec<ContainerId>,
}

impl Driver {
    pub(crate) fn start(role: &str, home: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args([
                "crash::driver::the_server_that_is_killed",
                "--exact",
                "--nocapture",
            ])
            .env(ROLE, role)
            .env(HOME, home)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("this program starts");
        let lines = BufReader::new(child.stdout.take().expect("a pipe"));
        Self {
            child,
            lines,
            ids: Vec::new(),
        }
    }

    /// The next thing it says: a word and a container.
    pub(crate) fn next(&mut self) -> Option<(String, ContainerId)> {
        loop {
            let mut line = String::new();
            if self.lines.read_line(&mut line).expect("its words") == 0 {
                return None;
            }
            let Some((word, id)) = line
                .trim_end()
                .strip_prefix(MARK)
                .and_then(|line| line.split_once(' '))
            else {
                continue;
            };
            // The last line may be cut off by the end.
            let Ok(id) = ContainerId::parse(id) else {
                continue;
            };
            if !self.ids.contains(&id) {
                self.ids.push(id.clone());
            }
            return Some((word.to_owned(), id));
        }
    }

    /// Waits until it says this.
    pub(crate) fn wait_for(&mut self, wanted: &str) -> ContainerId {
        loop {
            let (word, id) = self.next().expect("it is not dead yet");
            if word == wanted {
                return id;
            }
        }
    }

    /// Kills it; returns every container that it named.
    pub(crate) async fn kill(mut self) -> Vec<ContainerId> {
        let own = self.child.id();
        let children: Vec<_> = pids()
            .into_iter()
            .filter(|pid| parent_of(*pid) == own)
            .collect();
        self.child.kill().expect("it is ours");
        self.child.wait().expect("it is ours");
        while self.next().is_some() {}
        // Its launcher ends with it.
        eventually("its children are gone", || async {
            let is_orphan = |pid: &&u32| {
                let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                command.starts_with(b"hotcell-launcher")
            };
            children.iter().filter(is_orphan).count() == 0
        })
        .await;
        self.ids
    }
}

fn say(word: &str, id: &ContainerId) {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{MARK}{word} {id}").expect("somebody listens");
    stdout.flush().expect("somebody listens");
}

/// The other tests start it and kill it; by itself it has nothing to do.
#[tokio::test]
async fn the_server_that_is_killed() {
    let (Ok(role), Some(home)) = (std::env::var(ROLE), std::env::var_os(HOME)) else {
        return;
    };
    let engine = engine(Path::new(&home));
    let spec = spec(Lifetime::UntilDestroyed);
    let mut made = Vec::new();
    let count = if role == "exec" { 1 } else { CONTAINERS };
    for _ in 0..count {
        let id = new_id();
        say("making", &id);
        hotcell_engine::fetch_and_create(&engine, &id, &spec)
            .await
            .unwrap();
        say("made", &id);
        made.push(id);
    }
    if role == "destroy" {
        for id in &made {
            say("unmaking", id);
            engine.destroy(id).await.unwrap();
        }
    }
    if role == "exec" {
        let agent = connect(&engine, &made[0]).await;
        let mut counting = Exec::new([
            "/bin/sh",
            "-c",
            "i=0; while :; do i=$((i+1)); echo $i; done",
        ]);
        counting.cwd = b"/workspace".to_vec();
        let mut follow = agent.start("counting", &counting).await.unwrap();
        loop {
            let event = follow.next().await.unwrap().unwrap();
            say(&format!("event-{}", event.seq), &made[0]);
            follow.ack(event.seq);
        }
    }
    std::future::pending::<()>().await;
}
