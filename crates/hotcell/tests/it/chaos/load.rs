//! The load: containers, commands with known output, files, keys.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::caller::{Answer, Caller};
use super::memory::{Container, Exec, File, Memory};
use crate::crash::moment::Moments;
use crate::support::home::Home;

/// The largest file.
const FILE_BYTES_MAX: u64 = 100_000;

/// The most lines of output.
const LINES_MAX: u64 = 3_000;

/// One caller.
pub(crate) struct Load {
    name: String,
    moments: Moments,
    calls: u64,
    pub(crate) memory: Memory,
}

impl Load {
    pub(crate) fn new(seed: u64, number: u64) -> Self {
        Self {
            name: format!("s{seed}c{number}"),
            moments: Moments::of(seed.wrapping_mul(31).wrapping_add(number)),
            calls: 0,
            memory: Memory::default(),
        }
    }

    /// Makes calls until the server is gone, at most this many.
    pub(crate) fn work(&mut self, home: &Home, calls_max: u64) {
        let Some(mut caller) = Caller::connect(home) else {
            return;
        };
        for _ in 0..calls_max {
            if self.step(&mut caller).is_none() {
                return;
            }
        }
    }

    /// One call; `None` if the server is gone.
    fn step(&mut self, caller: &mut Caller) -> Option<()> {
        self.calls += 1;
        let usable = self.memory.usable();
        let draw = self.moments.below(100);
        if usable.is_empty() || draw < 8 && usable.len() < 3 {
            return self.spawn(caller);
        }
        let chosen = self.moments.below(usable.len() as u64);
        let container = usable[usize::try_from(chosen).unwrap()];
        match draw {
            0..50 => self.exec(caller, container),
            50..94 => self.write(caller, container),
            _ => self.kill(caller, container),
        }
    }

    fn key(&self) -> String {
        format!("{}n{}", self.name, self.calls)
    }

    fn spawn(&mut self, caller: &mut Caller) -> Option<()> {
        let is_persistent = self.moments.below(3) == 0;
        self.memory.containers.push(Container {
            key: self.key(),
            is_persistent,
            id: None,
            kill_asked: false,
            kill_answered: false,
            files: BTreeMap::new(),
        });
        let container = self.memory.containers.last_mut().unwrap();
        match caller.call("spawn", &container.spawn()) {
            Answer::Done(made) => container.id = Some(text(&made["container_id"])),
            Answer::Refused(why) => self.memory.not_made.push(why),
            Answer::Gone => return None,
        }
        Some(())
    }

    fn exec(&mut self, caller: &mut Caller, container: usize) -> Option<()> {
        let (key, lines) = (self.key(), self.moments.below(LINES_MAX));
        let exec = Exec {
            container,
            script: format!("echo {key} >> runs; seq 1 {lines}"),
            expected: numbers(lines),
            key,
            id: None,
            was_complete: false,
        };
        let mut start = exec.start(&self.memory);
        // Some are waited for, others run while the caller continues.
        start["wait_s"] = if self.moments.below(2) == 0 { 20 } else { 0 }.into();
        self.memory.execs.push(exec);
        let exec = self.memory.execs.last_mut().unwrap();
        match caller.call("exec_start", &start) {
            Answer::Done(started) => {
                exec.id = Some(text(&started["exec_id"]));
                // If its container dies meanwhile, it is reported as lost.
                exec.was_complete = started["complete"] == true && started["status"] == "succeeded";
            }
            Answer::Refused(why) => self.memory.refused.push((container, why)),
            Answer::Gone => return None,
        }
        Some(())
    }

    fn write(&mut self, caller: &mut Caller, container: usize) -> Option<()> {
        let path = format!("f{}", self.moments.below(3));
        let word = format!("{} ", self.key());
        let count = self.moments.below(FILE_BYTES_MAX / word.len() as u64);
        let content = word.repeat(usize::try_from(count).unwrap() + 1);
        let container_id = self.memory.containers[container].id().to_owned();
        let write = json!({ "container_id": container_id, "path": path, "content": content });
        let files = &mut self.memory.containers[container].files;
        let file: &mut File = files.entry(path).or_default();
        file.pending.push(content);
        match caller.call("fs_write", &write) {
            Answer::Done(_) => {
                file.acknowledged = file.pending.pop();
                file.pending.clear();
            }
            Answer::Refused(why) => self.memory.refused.push((container, why)),
            Answer::Gone => return None,
        }
        Some(())
    }

    fn kill(&mut self, caller: &mut Caller, container: usize) -> Option<()> {
        let record = &mut self.memory.containers[container];
        record.kill_asked = true;
        let kill = json!({ "container_id": record.id(), "force": true });
        match caller.call("kill", &kill) {
            Answer::Done(_) => record.kill_answered = true,
            Answer::Refused(why) => self.memory.refused.push((container, why)),
            Answer::Gone => return None,
        }
        Some(())
    }
}

impl Container {
    /// The arguments of the `spawn` that requests it.
    pub(crate) fn spawn(&self) -> Value {
        json!({ "idempotency_key": self.key, "persistent": self.is_persistent })
    }
}

impl Exec {
    /// The arguments of the `exec_start` that requests it.
    pub(crate) fn start(&self, memory: &Memory) -> Value {
        let container = memory.containers[self.container].id();
        json!({ "container_id": container, "idempotency_key": self.key,
            "cmd": ["sh", "-c", self.script] })
    }
}

/// The output of `seq 1 LAST`.
fn numbers(last: u64) -> String {
    let lines: Vec<_> = (1..=last).map(|line| format!("{line}\n")).collect();
    lines.concat()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}
