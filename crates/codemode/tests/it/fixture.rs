//! A run without a container.

#![expect(clippy::unwrap_used, reason = "a test may fail here")]

use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use hotcell_codemode::{
    Asked, Asker, Budget, CallEnd, CallStart, Directory, EarlierCall, Failure, Journal,
    JournalledCall, MAIN, Memory, MemoryRow, Policy, Question, Report, Run, RunParts, SaveMemory,
    files_for,
};
use hotcell_upstream::{
    Entry, Launch, NoObserver, Principals, Program, ServerName, Settings, Source, Template,
    Timeouts, Upstreams,
};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixListener;

pub(crate) struct World {
    directory: TempDir,
    pub(crate) upstreams: Upstreams,
    pub(crate) records: Arc<Records>,
    pub(crate) policy: Policy,
    pub(crate) budget: Budget,
    pub(crate) answer: Asked,
    pub(crate) timeout: Duration,
}

/// What was written down.
#[derive(Default)]
pub(crate) struct Records {
    pub(crate) begun: Mutex<Vec<CallStart>>,
    pub(crate) ended: Arc<Mutex<Vec<(String, CallEnd)>>>,
    pub(crate) refused: Mutex<Vec<String>>,
    pub(crate) asked: Mutex<Vec<Question>>,
}

struct Recorded(String, Arc<Mutex<Vec<(String, CallEnd)>>>);
struct Answerer(Arc<Records>, Asked);

#[async_trait]
impl Journal for Records {
    async fn begin_call(&self, call: CallStart) -> Result<Box<dyn JournalledCall>, Failure> {
        let recorded = Recorded(call.digest.clone(), Arc::clone(&self.ended));
        self.begun.lock().unwrap().push(call);
        Ok(Box::new(recorded))
    }

    async fn refuse_call(&self, call: CallStart, _: &Failure) {
        self.refused.lock().unwrap().push(call.tool);
    }
}

#[async_trait]
impl JournalledCall for Recorded {
    async fn end(self: Box<Self>, end: &CallEnd) {
        self.1.lock().unwrap().push((self.0, end.clone()));
    }
}

#[async_trait]
impl Memory for Records {
    async fn save(&self, _: &'static str, _: SaveMemory) -> Result<u64, Failure> {
        Ok(1)
    }
    async fn load(&self, _: &'static str, _: &str) -> Result<Option<MemoryRow>, Failure> {
        Ok(None)
    }
    async fn delete(&self, _: &'static str, _: &str) -> Result<bool, Failure> {
        Ok(false)
    }
    async fn list(&self, _: &'static str, _: &str) -> Result<Vec<MemoryRow>, Failure> {
        Ok(Vec::new())
    }
}

#[async_trait]
impl Asker for Answerer {
    async fn ask(&self, question: Question) -> Asked {
        self.0.asked.lock().unwrap().push(question);
        self.1
    }
}

impl World {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in files_for("mcp") {
            std::fs::write(directory.path().join(name), text).unwrap();
        }
        let script = directory.path().join("echo_server.py");
        std::fs::write(&script, include_str!("echo_server.py")).unwrap();
        let settings = Settings {
            servers: vec![entry("echo", &script)],
            findings: Vec::new(),
        };
        let state = directory.path().join("state");
        Self {
            upstreams: Upstreams::open(settings, &state, Arc::new(NoObserver)).unwrap(),
            directory,
            records: Arc::default(),
            policy: Policy::default(),
            budget: Budget::default(),
            answer: Asked::Nobody,
            timeout: Duration::from_mins(1),
        }
    }

    pub(crate) async fn run(&self, code: &str) -> Report {
        self.run_after(code, Vec::new()).await
    }

    /// Runs a script that continues an earlier one.
    pub(crate) async fn run_after(&self, code: &str, earlier: Vec<EarlierCall>) -> Report {
        let (run, secret) = self.prepared(code, earlier);
        let socket = self.directory.path().join(run.id().as_str());
        let listener = UnixListener::bind(&socket).unwrap();
        let mut python = tokio::process::Command::new("python3")
            .arg(self.directory.path().join(MAIN))
            .current_dir(self.directory.path())
            .stdin(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let line = format!("{} {secret}\n", socket.display());
        let mut stdin = python.stdin.take().unwrap();
        stdin.write_all(line.as_bytes()).await.unwrap();
        drop(stdin);
        let (stream, _) = listener.accept().await.unwrap();
        tokio::select! {
            () = run.serve(stream) => {}
            () = run.until_overdue() => {}
        }
        run.report()
    }

    /// A run whose script nobody has started, and its secret.
    pub(crate) fn prepared(&self, code: &str, earlier: Vec<EarlierCall>) -> (Arc<Run>, String) {
        let servers = Directory::visible_to(&self.upstreams, "local");
        let parts = RunParts {
            principal: "local".to_owned(),
            code: code.to_owned(),
            granted: servers.list(),
            others: Vec::new(),
            timeout: self.timeout,
            earlier,
            policy: Arc::new(self.policy.clone()),
            budget: self.budget,
            rate: Arc::default(),
            servers,
            journal: Arc::<Records>::clone(&self.records),
            memory: Arc::<Records>::clone(&self.records),
            asker: Arc::new(Answerer(Arc::clone(&self.records), self.answer)),
        };
        let (id, secret) = Run::new_id();
        (Run::new(id, secret.clone(), parts), secret)
    }

    /// The server `echo` with another description of one of its tools, in another process.
    pub(crate) fn change(&self, from: &str, to: &str) {
        let path = self.directory.path().join("echo_server.py");
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{from}");
        std::fs::write(path, text.replace(from, to)).unwrap();
    }
}

fn entry(server: &str, script: &Path) -> Entry {
    let script = script.to_str().unwrap();
    let template = |text: &str| Template::parse(text).unwrap();
    Entry {
        name: ServerName::parse(server).unwrap(),
        source: Source {
            program: "hotcell.toml",
            is_discovered: false,
            file: None,
        },
        launch: Launch::Stdio(Program {
            command: template("python3"),
            arguments: vec![template(script)],
            environment: Vec::new(),
            directory: None,
        }),
        timeouts: Timeouts::default(),
        principals: Principals::all(),
        summary: None,
        default: None,
    }
}
