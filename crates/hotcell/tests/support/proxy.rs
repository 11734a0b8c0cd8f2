//! A proxy in front of an engine's socket that injects faults.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinHandle;

/// Buffer for the head of a request or a response.
const BUFFER_BYTES: usize = 64 << 10;

/// A fault of one call. Each call has its own connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The request does not reach the engine.
    Refused,
    /// The engine answers with an error of its own.
    Failed,
    /// The engine answers that its disk is full.
    Full,
    /// The request reaches the engine, but its response is lost.
    Unanswered,
    /// The request reaches the engine, but half of its response is lost.
    Cut,
    /// This call and all later ones are refused until the faults are cleared.
    Gone,
}

/// The faults to come.
#[derive(Debug, Default)]
struct Plan {
    calls: u32,
    fault: Option<(u32, Fault)>,
    is_gone: bool,
    /// Calls whose first line has these words fail, this many times.
    failing: Option<(&'static str, u32)>,
    /// The first line of each call.
    lines: Vec<String>,
}

pub(crate) struct Proxy {
    pub socket: PathBuf,
    plan: Arc<Mutex<Plan>>,
    task: JoinHandle<()>,
    _directory: tempfile::TempDir,
}

impl Proxy {
    /// Forwards everything to this socket.
    pub(crate) fn start(engine: &Path) -> Self {
        let directory = super::scratch();
        let socket = directory.path().join("sock");
        let listener = UnixListener::bind(&socket).expect("a socket");
        let plan = Arc::new(Mutex::new(Plan::default()));
        let (engine, shared) = (engine.to_owned(), Arc::clone(&plan));
        let task = tokio::spawn(async move {
            while let Ok((ours, _)) = listener.accept().await {
                let fault = shared.lock().expect("not poisoned").next();
                tokio::spawn(pass_on(ours, engine.clone(), fault, Arc::clone(&shared)));
            }
        });
        Self {
            socket,
            plan,
            task,
            _directory: directory,
        }
    }

    /// Injects the fault into the nth call from now, counted from one.
    pub(crate) fn spoil(&self, call: u32, fault: Fault) {
        let mut plan = self.plan.lock().expect("not poisoned");
        *plan = Plan {
            fault: Some((call, fault)),
            ..Plan::default()
        };
    }

    /// Lets the next `times` calls fail whose first line contains these words.
    pub(crate) fn fail(&self, words: &'static str, times: u32) {
        let mut plan = self.plan.lock().expect("not poisoned");
        *plan = Plan {
            failing: Some((words, times)),
            ..Plan::default()
        };
    }

    /// How many calls there were whose first line `is_counted`.
    pub(crate) fn count(&self, is_counted: impl Fn(&str) -> bool) -> usize {
        let plan = self.plan.lock().expect("not poisoned");
        plan.lines.iter().filter(|line| is_counted(line)).count()
    }

    /// Clears the faults; returns the number of calls so far.
    pub(crate) fn mend(&self) -> u32 {
        std::mem::take(&mut *self.plan.lock().expect("not poisoned")).calls
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Plan {
    fn next(&mut self) -> Option<Fault> {
        self.calls += 1;
        if self.is_gone {
            return Some(Fault::Gone);
        }
        let (call, fault) = self.fault?;
        self.is_gone = call == self.calls && fault == Fault::Gone;
        (call == self.calls).then_some(fault)
    }

    fn fails(&mut self, request: &[u8]) -> bool {
        let request = String::from_utf8_lossy(request);
        let line = request.lines().next().unwrap_or_default();
        self.lines.push(line.to_owned());
        match &mut self.failing {
            Some((words, times)) if *times > 0 && line.contains(*words) => {
                *times -= 1;
                true
            }
            Some(_) | None => false,
        }
    }
}

async fn pass_on(
    mut ours: UnixStream,
    engine: PathBuf,
    mut fault: Option<Fault>,
    plan: Arc<Mutex<Plan>>,
) {
    if matches!(fault, Some(Fault::Refused | Fault::Gone)) {
        return;
    }
    let mut request = vec![0; BUFFER_BYTES];
    let count = ours.read(&mut request).await.unwrap_or(0);
    if plan.lock().expect("not poisoned").fails(&request[..count]) {
        fault = Some(Fault::Failed);
    }
    let refusal = match fault {
        Some(Fault::Failed) => Some("no luck"),
        Some(Fault::Full) => Some("write /data/x: no space left on device"),
        Some(Fault::Refused | Fault::Unanswered | Fault::Cut | Fault::Gone) | None => None,
    };
    if let Some(refusal) = refusal {
        let body = format!("{{\"message\":\"{refusal}\"}}");
        let answer = format!(
            "HTTP/1.1 500 Internal Server Error\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
        let _ = ours.write_all(answer.as_bytes()).await;
        return;
    }
    let Ok(mut theirs) = UnixStream::connect(engine).await else {
        return;
    };
    let _ = theirs.write_all(&request[..count]).await;
    if fault.is_none() {
        let _ = tokio::io::copy_bidirectional(&mut ours, &mut theirs).await;
        return;
    }
    let (mut reading, mut writing) = theirs.split();
    let (mut asking, mut answering) = ours.split();
    let mut answer = vec![0; BUFFER_BYTES];
    // Forward the request until the engine begins to respond.
    let count = tokio::select! {
        count = reading.read(&mut answer) => count.unwrap_or(0),
        () = async {
            let _ = tokio::io::copy(&mut asking, &mut writing).await;
            std::future::pending::<()>().await;
        } => 0,
    };
    if fault == Some(Fault::Cut) {
        let _ = answering.write_all(&answer[..count / 2]).await;
    }
}
