//! A program that measures connections, run on the host and in containers.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::origin::Origin;
use crate::bench::client::Client;

const PROGRAM: &str = include_str!("probe.py");

/// What was measured, by the program's names.
pub(super) type Measured = Vec<(String, Duration)>;

/// The program on this host, which connects directly.
pub(super) struct Direct {
    program: PathBuf,
    places: String,
}

impl Direct {
    pub(super) fn new(origin: &Origin) -> Result<Self> {
        let program = origin.directory().join("probe.py");
        std::fs::write(&program, PROGRAM)?;
        let places = origin.places().to_string();
        Ok(Self { program, places })
    }

    pub(super) fn run(&self, words: &[&str]) -> Result<Measured> {
        let ran = Command::new("/usr/bin/python3")
            .arg(&self.program)
            .arg(&self.places)
            .args(words)
            .output()?;
        let error = String::from_utf8_lossy(&ran.stderr);
        ensure!(ran.status.success(), "{words:?}: {error}");
        parse(&String::from_utf8(ran.stdout)?)
    }
}

/// A container with the program in it.
pub(super) struct Inside {
    pub(super) container: String,
}

impl Inside {
    pub(super) fn spawn(client: &mut Client, profile: &str) -> Result<Self> {
        let spawned = client.call("spawn", &json!({ "egress": profile, "cpus": 2 }))?;
        let container = spawned["container_id"].as_str().context("container_id")?;
        let container = container.to_owned();
        let file = json!({ "container_id": container, "path": "probe.py", "content": PROGRAM });
        client.call("fs_write", &file)?;
        Ok(Self { container })
    }

    /// Runs it to its end.
    pub(super) fn run(&self, client: &mut Client, words: &[&str]) -> Result<Measured> {
        let mut exec = self.exec(words);
        exec["wait_s"] = json!(50);
        let ran = client.call("exec_start", &exec)?;
        let said = text(&ran)?;
        ensure!(ran["exit_code"] == json!(0), "{words:?}: {said} {ran}");
        parse(&said)
    }

    /// Starts it, and waits until it has said something.
    pub(super) fn start(&self, client: &mut Client, words: &[&str]) -> Result<()> {
        let exec = client.call("exec_start", &self.exec(words))?;
        let poll = json!({ "exec_id": exec["exec_id"], "wait_s": 50 });
        let said = text(&client.call("exec_poll", &poll)?)?;
        ensure!(said.starts_with("idle"), "{said}");
        Ok(())
    }

    /// Starts it, without waiting for anything.
    pub(super) fn start_quiet(&self, client: &mut Client, words: &[&str]) -> Result<String> {
        let exec = client.call("exec_start", &self.exec(words))?;
        Ok(exec["exec_id"].as_str().context("exec_id")?.to_owned())
    }

    pub(super) fn kill(self, client: &mut Client) -> Result<()> {
        let kill = json!({ "container_id": self.container, "force": true });
        client.call("kill", &kill).map(drop)
    }

    fn exec(&self, words: &[&str]) -> Value {
        let places = Origin::places_inside().to_string();
        let program = ["/usr/bin/python3", "probe.py", &places];
        let command = [&program, words].concat();
        json!({ "container_id": self.container, "cmd": command })
    }
}

fn text(polled: &Value) -> Result<String> {
    let messages = polled["messages"].as_array().context("messages")?;
    let data = messages.iter().map(|message| message["data"].as_str());
    Ok(data.map(Option::unwrap_or_default).collect())
}

/// What the program has said in an answer about its exec.
pub(super) fn said(polled: &Value) -> Result<Measured> {
    parse(&text(polled)?)
}

fn parse(said: &str) -> Result<Measured> {
    let line = |line: &str| {
        let (name, time) = line.split_once(' ')?;
        Some((name.to_owned(), Duration::from_nanos(time.parse().ok()?)))
    };
    let lines = said.lines().map(|text| line(text).context(text.to_owned()));
    lines.collect()
}
