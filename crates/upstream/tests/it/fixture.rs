//! Servers to talk to.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hotcell_upstream::{
    Entry, Event, Launch, Observer, Principals, Program, ServerName, Settings, Source, Template,
    Timeouts, ToolCall, ToolResult, UpstreamError, Upstreams, Visible,
};
use serde_json::Value;
use serde_json::value::RawValue;
use tempfile::TempDir;
use tokio::sync::watch;

/// Longer than anything takes on the busiest machine.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// Upstreams with their state directory.
pub(crate) struct Bench {
    pub(crate) upstreams: Upstreams,
    pub(crate) state: Scratch,
    pub(crate) seen: Arc<Seen>,
}

/// Everything that happened.
pub(crate) struct Seen(watch::Sender<Vec<Event>>);

impl Observer for Seen {
    fn happened(&self, _: Option<&ServerName>, event: &Event) {
        self.0.send_modify(|events| events.push(event.clone()));
    }
}

impl Seen {
    /// Waits until something has happened so often.
    pub(crate) async fn wait_for(&self, times: usize, is_meant: impl Fn(&Event) -> bool) {
        let mut events = self.0.subscribe();
        let counted =
            |events: &Vec<Event>| events.iter().filter(|event| is_meant(event)).count() >= times;
        let waited = tokio::time::timeout(PATIENCE, events.wait_for(counted)).await;
        assert!(waited.is_ok(), "only {:?}", self.0.borrow());
    }
}

/// A directory that is removed in the end, also if a server that is ending still writes to it.
pub(crate) struct Scratch(TempDir);

impl Scratch {
    pub(crate) fn new() -> Self {
        Self(TempDir::new().expect("the fixture is sound"))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        while std::fs::remove_dir_all(self.path())
            .is_err_and(|error| error.kind() != ErrorKind::NotFound)
            && Instant::now() < deadline
        {
            std::thread::yield_now();
        }
    }
}

impl Bench {
    pub(crate) fn new(entries: Vec<Entry>) -> Self {
        Self::reopened(entries, Scratch::new())
    }

    pub(crate) fn reopened(entries: Vec<Entry>, state: Scratch) -> Self {
        let seen = Arc::new(Seen(watch::Sender::new(Vec::new())));
        let observer: Arc<dyn Observer> = Arc::clone(&seen) as Arc<dyn Observer>;
        let upstreams = Upstreams::open(settings(entries), state.path(), observer)
            .expect("the fixture is sound");
        Self {
            upstreams,
            state,
            seen,
        }
    }

    pub(crate) fn local(&self) -> Visible {
        self.upstreams.visible_to("local")
    }

    pub(crate) async fn call(
        &self,
        server: &str,
        tool: &str,
        arguments: &Value,
    ) -> Result<ToolResult, UpstreamError> {
        self.local().call_tool(call(server, tool, arguments)).await
    }
}

pub(crate) fn settings(servers: Vec<Entry>) -> Settings {
    Settings {
        servers,
        findings: Vec::new(),
    }
}

pub(crate) fn call(server: &str, tool: &str, arguments: &Value) -> ToolCall {
    ToolCall {
        server: name(server),
        tool: tool.to_owned(),
        arguments: RawValue::from_string(arguments.to_string()).expect("the fixture is sound"),
        timeout: PATIENCE,
        progress: None,
    }
}

pub(crate) fn name(name: &str) -> ServerName {
    ServerName::parse(name).expect("the fixture is sound")
}

/// What a tool said in its structured content.
pub(crate) fn structured(result: &ToolResult) -> Value {
    serde_json::from_str(
        result
            .structured
            .as_ref()
            .expect("structured content")
            .get(),
    )
    .expect("the fixture is sound")
}

/// The server that misbehaves.
pub(crate) fn fake(server: &str, faults: &[&str]) -> Entry {
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/it/fake_server.py");
    let mut arguments = vec![script.to_str().expect("the fixture is sound")];
    arguments.extend(faults);
    program(server, python(), &arguments)
}

/// The system's Python where there is one: another may be a script that sets variables.
pub(crate) fn python() -> &'static str {
    let system = "/usr/bin/python3";
    if Path::new(system).exists() {
        system
    } else {
        "python3"
    }
}

pub(crate) fn program(server: &str, command: &str, arguments: &[&str]) -> Entry {
    let launch = Launch::Stdio(Program {
        command: Template::literal(command),
        arguments: arguments
            .iter()
            .map(|text| Template::parse(text).expect("the fixture is sound"))
            .collect(),
        environment: Vec::new(),
        directory: None,
    });
    entry(server, launch)
}

pub(crate) fn entry(server: &str, launch: Launch) -> Entry {
    Entry {
        name: name(server),
        source: Source {
            program: "hotcell.toml",
            is_discovered: false,
            file: None,
        },
        launch,
        timeouts: Timeouts {
            start: PATIENCE,
            call: PATIENCE,
            idle: PATIENCE,
        },
        principals: Principals::all(),
        summary: None,
        default: None,
    }
}

/// The messages that a fake has logged.
pub(crate) fn logged(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

/// Waits until something is so.
pub(crate) async fn until(mut is_so: impl FnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !is_so() {
        assert!(
            tokio::time::Instant::now() < deadline,
            "it did not become so"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
