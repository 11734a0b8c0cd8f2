//! The properties that must hold afterwards, whatever was killed.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::caller::{Answer, Caller};
use super::memory::{Container, Exec, Memory};
use crate::support::home::Home;
use crate::support::wait_until;

pub(crate) struct Proof<'a> {
    pub(crate) seed: u64,
    pub(crate) home: &'a Home,
    /// Containers whose agent was killed.
    pub(crate) struck: &'a BTreeSet<String>,
    /// Whether Docker was killed, so that there may have been none to ask.
    pub(crate) engine_died: bool,
    pub(crate) memories: Vec<&'a Memory>,
}

impl Proof<'_> {
    /// Checks that everything that was acknowledged exists exactly once.
    pub(crate) fn demand(&self) {
        let mut caller = Caller::connect(self.home).unwrap();
        let recorded = Recorded::read(self.home);
        for memory in &self.memories {
            self.refusals_have_a_reason(memory);
            for container in &memory.containers {
                self.container(&mut caller, container, &recorded);
            }
            for exec in &memory.execs {
                self.exec(&mut caller, memory, exec, &recorded);
            }
        }
        self.nothing_disagrees("while the server runs");
    }

    /// Ends all remaining containers.
    pub(crate) fn end_all(&self) {
        let mut caller = Caller::connect(self.home).unwrap();
        let listed = caller.ok("list_containers", &json!({ "limit": 200 }));
        for container in listed["containers"].as_array().unwrap() {
            let id = &container["container_id"];
            caller.ok("kill", &json!({ "container_id": id, "force": true }));
        }
    }

    pub(crate) fn nothing_disagrees(&self, when: &str) {
        for command in [["state", "check"], ["audit", "verify"]] {
            let ran = self.home.run(&[&command[..], &["--json"]].concat());
            let said = String::from_utf8_lossy(&ran.stdout);
            let seed = self.seed;
            let said = format!("{said}{}", String::from_utf8_lossy(&ran.stderr));
            assert!(
                ran.status.success(),
                "seed {seed}, {when}: {command:?} {said}"
            );
        }
    }

    fn is_struck(&self, container: &Container) -> bool {
        let id = container.id.as_ref();
        id.is_some_and(|id| self.struck.contains(id))
    }

    /// Only what is about a container that was killed may be refused, or what found no engine.
    fn refusals_have_a_reason(&self, memory: &Memory) {
        let found_no_engine = |why: &Value| self.engine_died && why["code"] == "unavailable";
        for why in &memory.not_made {
            // An agent that was killed may have been that of a new container. Its caller was told
            // that there is none; that nothing is left of it is looked at below.
            let is_explained = !self.struck.is_empty() && why["code"] != "internal";
            let seed = self.seed;
            assert!(is_explained || found_no_engine(why), "seed {seed}: {why}");
        }
        for (container, why) in &memory.refused {
            let container = &memory.containers[*container];
            let is_explained =
                container.kill_asked || self.is_struck(container) || found_no_engine(why);
            let key = &container.key;
            assert!(is_explained, "seed {}: {why}: {key}", self.seed);
        }
    }

    fn container(&self, caller: &mut Caller, container: &Container, recorded: &Recorded) {
        let seed = self.seed;
        let Some(id) = &container.id else {
            // It is unknown whether it was created; if requested again, it exists once.
            let first = caller.ok("spawn", &container.spawn());
            let second = caller.ok("spawn", &container.spawn());
            assert_eq!(first["container_id"], second["container_id"], "seed {seed}");
            return;
        };
        recorded.has(seed, "CONTAINER_SPAWN", id);
        if container.kill_answered {
            recorded.has(seed, "CONTAINER_KILL", id);
            let show = json!({ "container_id": id, "path": "." });
            let shown = caller.call("fs_list", &show);
            assert!(
                matches!(shown, Answer::Refused(_)),
                "seed {seed}: {shown:?}"
            );
        }
        if container.kill_asked || (self.is_struck(container) && !container.is_persistent) {
            return;
        }
        let again = caller.ok("spawn", &container.spawn());
        assert_eq!(
            again["container_id"], **id,
            "seed {seed}: another container"
        );
        if self.is_struck(container) {
            self.wait_until_it_answers(caller, id);
        }
        self.files(caller, container, recorded);
    }

    /// Waits until a persistent container whose agent died has been restarted.
    fn wait_until_it_answers(&self, caller: &mut Caller, id: &str) {
        wait_until(&format!("{id} answers, seed {}", self.seed), || {
            let list = json!({ "container_id": id, "path": "." });
            matches!(caller.call("fs_list", &list), Answer::Done(_))
        });
    }

    fn files(&self, caller: &mut Caller, container: &Container, recorded: &Recorded) {
        let (seed, id) = (self.seed, container.id());
        for (path, file) in &container.files {
            let read = json!({ "container_id": id, "path": path, "limit": 1 << 20 });
            let content = match caller.call("fs_read", &read) {
                Answer::Done(read) => Some(read["content"].as_str().unwrap().to_owned()),
                Answer::Refused(why) if why["code"] == "not_found" => None,
                other @ (Answer::Refused(_) | Answer::Gone) => {
                    panic!("seed {seed}: {path} in {id}: {other:?}")
                }
            };
            let is_old = content == file.acknowledged;
            let is_new = content
                .as_ref()
                .is_some_and(|now| file.pending.contains(now));
            assert!(
                is_old || is_new,
                "seed {seed}: {path} in {id} has {:?} bytes, not {:?} or those of {} others",
                content.map(|content| content.len()),
                file.acknowledged.as_ref().map(String::len),
                file.pending.len(),
            );
            if file.acknowledged.is_some() {
                recorded.has(seed, "FS_WRITE", id);
            }
        }
    }

    fn exec(&self, caller: &mut Caller, memory: &Memory, exec: &Exec, recorded: &Recorded) {
        let container = &memory.containers[exec.container];
        if let Some(id) = &exec.id {
            recorded.has(self.seed, "EXEC_START", id);
            let is_cut = container.kill_asked || self.is_struck(container);
            self.output(caller, exec, id, is_cut && !exec.was_complete);
        }
        if container.kill_asked || (self.is_struck(container) && !container.is_persistent) {
            return;
        }
        if !self.is_struck(container) {
            self.key(caller, memory, exec);
        }
        self.runs(caller, memory, exec);
    }

    /// Checks that every byte of its output is there once; if its container was killed, a prefix of
    /// it.
    fn output(&self, caller: &mut Caller, exec: &Exec, id: &str, is_cut: bool) {
        let (output, end) = caller.follow(id);
        let place = format!("seed {}: {id}: {}", self.seed, end["status"]);
        if is_cut && end["status"] != "succeeded" {
            assert!(exec.expected.starts_with(&output), "{place}: other output");
            return;
        }
        assert_eq!(end["status"], "succeeded", "{place}: {end}");
        let (found, wanted) = (output.len(), exec.expected.len());
        assert!(
            output == exec.expected,
            "{place}: {found} bytes, not {wanted}"
        );
    }

    /// Repeats the request with its key, which returns the same exec, or runs it if it never
    /// arrived.
    fn key(&self, caller: &mut Caller, memory: &Memory, exec: &Exec) {
        let again = caller.ok("exec_start", &exec.start(memory));
        let found = again["exec_id"].as_str().unwrap();
        if let Some(id) = &exec.id {
            assert_eq!(found, id, "seed {}: it ran under another id", self.seed);
        } else {
            self.output(caller, exec, found, false);
        }
    }

    /// Checks that it ran once. One whose container was killed may not have started.
    fn runs(&self, caller: &mut Caller, memory: &Memory, exec: &Exec) {
        let container = &memory.containers[exec.container];
        let read = json!({ "container_id": container.id(), "path": "runs", "limit": 1 << 20 });
        let content = match caller.call("fs_read", &read) {
            Answer::Done(read) => read["content"].as_str().unwrap().to_owned(),
            Answer::Refused(why) if why["code"] == "not_found" => String::new(),
            other @ (Answer::Refused(_) | Answer::Gone) => panic!("seed {}: {other:?}", self.seed),
        };
        let count = content.lines().filter(|line| *line == exec.key).count();
        let may_be_missing = self.is_struck(container) && !exec.was_complete;
        let is_right = count == 1 || count == 0 && may_be_missing;
        assert!(
            is_right,
            "seed {}: {} ran {count} times",
            self.seed, exec.key
        );
    }
}

/// Events of the audit log by name, with their targets and the ids that they created.
struct Recorded(BTreeMap<String, BTreeSet<String>>);

impl Recorded {
    fn read(home: &Home) -> Self {
        let exported = home.run(&["audit", "export"]);
        assert!(exported.status.success(), "{exported:?}");
        let mut events: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for line in String::from_utf8(exported.stdout).unwrap().lines() {
            let event: Value = serde_json::from_str(line).unwrap();
            let name = event["event"].as_str().unwrap().to_owned();
            let about = ["target", "created"].map(|field| event[field].as_str());
            let about = about.into_iter().flatten().map(str::to_owned);
            events.entry(name).or_default().extend(about);
        }
        Self(events)
    }

    fn has(&self, seed: u64, event: &str, target: &str) {
        let targets = self.0.get(event);
        let has = targets.is_some_and(|targets| targets.contains(target));
        assert!(has, "seed {seed}: the audit log has no {event} of {target}");
    }
}
