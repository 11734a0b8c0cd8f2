//! A server on the fake engine and a real store, and its clients, for one test.
//!
//! Dropping it destroys its containers, whether or not the test passed.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use hotcell_domain::{Caller, Name, Principal};
use hotcell_engine::Engine;
use hotcell_mcp::{Options, Server};
use hotcell_service::{Service, Settings, SystemClock, SystemRandom};
use hotcell_store::Store;
use hotcell_testkit::fake::{Fake, Faults};
use rmcp::model::{
    CallToolRequestParams, CallToolResult, ClientCapabilities, ClientConfig, Implementation,
    JsonObject, ProgressNotificationParam,
};
use rmcp::service::{NotificationContext, RunningService};
use rmcp::{ClientHandler, RoleClient, ServiceExt as _};
use serde_json::{Value, json};
use tempfile::TempDir;

/// The deadline of every wait; only a hanging test reaches it.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);

/// One server with its state and its containers.
pub(crate) struct World {
    pub service: Service,
    pub engine: Arc<Fake>,
    _state: TempDir,
    _engines: TempDir,
}

/// A client and the notifications it received.
#[derive(Clone)]
pub(crate) struct Listener {
    takes_tasks: bool,
    pub progress: Arc<Mutex<Vec<ProgressNotificationParam>>>,
}

pub(crate) type Client = RunningService<RoleClient, Listener>;

/// A tool's answer.
#[derive(Debug)]
pub(crate) struct Said {
    pub is_error: bool,
    pub text: String,
    pub structured: Value,
    pub result: CallToolResult,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(Settings::default()).await
    }

    pub(crate) async fn with(settings: Settings) -> Self {
        let state = tempfile::tempdir().unwrap();
        let engines = tempfile::tempdir().unwrap();
        let engine = Fake::new(
            hotcell_testkit::agent::program(),
            engines.path().to_owned(),
            Faults::none(),
        );
        let engine = Arc::new(engine);
        let store = Store::open(state.path()).unwrap();
        let (clock, random) = (Arc::new(SystemClock), Arc::new(SystemRandom));
        let service = Service::start(Arc::clone(&engine) as _, store, settings, clock, random);
        Self {
            service: service.await.unwrap(),
            engine,
            _state: state,
            _engines: engines,
        }
    }

    /// A client of the local caller.
    pub(crate) async fn client(&self) -> Client {
        self.client_with(Options::default(), false).await
    }

    /// A client of a server with these options.
    pub(crate) async fn client_with(&self, options: Options, takes_tasks: bool) -> Client {
        let (near, far) = tokio::io::duplex(1 << 20);
        let server = Server::new(self.service.clone(), options);
        tokio::spawn(async move {
            let running = Box::pin(server.serve(far)).await.unwrap();
            let _ = running.waiting().await;
        });
        let listener = Listener {
            takes_tasks,
            progress: Arc::default(),
        };
        listener.serve(near).await.unwrap()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let engine = Arc::clone(&self.engine);
        // A separate runtime, which cannot be created on a thread that has one.
        let destroy = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                for container in engine.list().await.unwrap_or_default() {
                    let _ = engine.destroy(&container.id).await;
                }
            });
        });
        let _ = destroy.join();
    }
}

impl ClientHandler for Listener {
    fn get_info(&self) -> ClientConfig {
        let capabilities = if self.takes_tasks {
            ClientCapabilities::builder().enable_tasks().build()
        } else {
            ClientCapabilities::default()
        };
        ClientConfig::new(capabilities, Implementation::new("stories", "1"))
    }

    async fn on_progress(
        &self,
        progress: ProgressNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        self.progress.lock().unwrap().push(progress);
    }
}

/// Options of a server for another principal, who is not an admin.
pub(crate) fn somebody(principal: &str) -> Options {
    Options {
        caller: Caller {
            principal: Principal::new(Name::parse(principal).unwrap()),
            is_admin: false,
            ..Caller::local()
        },
        ..Options::default()
    }
}

pub(crate) fn request(tool: &str, arguments: Value) -> CallToolRequestParams {
    let arguments: JsonObject = serde_json::from_value(arguments).unwrap();
    CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments)
}

/// Calls a tool.
pub(crate) async fn call(client: &Client, tool: &str, arguments: Value) -> Said {
    let calling = client.call_tool(request(tool, arguments));
    let result = tokio::time::timeout(PATIENCE, calling).await;
    let result = result.expect("it answers in time").expect("it answers");
    let text = result.content[0].as_text().expect("a text comes first");
    Said {
        is_error: result.is_error == Some(true),
        text: masked(&text.text),
        // There is none beside a picture.
        structured: result.structured_content.clone().unwrap_or_default(),
        result,
    }
}

/// Calls a tool that must succeed.
pub(crate) async fn ok(client: &Client, tool: &str, arguments: Value) -> Said {
    let said = call(client, tool, arguments).await;
    assert!(!said.is_error, "{}", said.text);
    said
}

/// Calls a tool that must fail; returns its message.
pub(crate) async fn refused(client: &Client, tool: &str, arguments: Value) -> String {
    let said = call(client, tool, arguments).await;
    assert!(said.is_error, "{}", said.text);
    assert!(said.structured["hint"].is_string() && said.structured["message"].is_string());
    let code = said.structured["code"].as_str().unwrap();
    assert!(said.text.starts_with(&format!("{code}: ")), "{}", said.text);
    said.text
}

/// A new container's id.
pub(crate) async fn spawn(client: &Client) -> String {
    let said = ok(client, "spawn", json!({})).await;
    said.structured["container_id"].as_str().unwrap().to_owned()
}

/// Runs a shell command to its end.
pub(crate) async fn sh(client: &Client, container: &str, script: &str) -> Said {
    let cmd = ["/bin/sh", "-c", script];
    ok(
        client,
        "exec_start",
        json!({"container_id": container, "cmd": cmd, "wait_s": 30}),
    )
    .await
}

/// A text without what differs from run to run: ids, times, etags, durations.
pub(crate) fn masked(text: &str) -> String {
    let mut words = String::new();
    let mut word = String::new();
    for c in text.chars().chain(['\0']) {
        if c.is_ascii_alphanumeric() || "_-:.".contains(c) {
            word.push(c);
            continue;
        }
        words.push_str(&mask(&word));
        word.clear();
        if c != '\0' {
            words.push(c);
        }
    }
    words.replace("DURATION ms", "N ms")
}

fn mask(word: &str) -> String {
    let is_id = |prefix: &str| word.starts_with(prefix) && word.len() == 28;
    let is_etag = word.len() >= 16 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_time = word.len() == 24 && word.ends_with('Z') && word.contains('T');
    match word {
        _ if is_id("c_") => "c_ID".to_owned(),
        _ if is_id("e_") => "e_ID".to_owned(),
        _ if is_etag => "ETAG".to_owned(),
        _ if is_time => "TIME".to_owned(),
        _ => word.to_owned(),
    }
}

/// A value with what differs from run to run masked.
pub(crate) fn shown(value: &Value) -> String {
    let mut value = value.clone();
    for usage in ["wall_ms", "user_ms", "system_ms", "max_rss_bytes"] {
        if let Some(number) = value.get_mut("usage").and_then(|all| all.get_mut(usage)) {
            *number = "N".into();
        }
    }
    masked(&serde_json::to_string_pretty(&value).unwrap())
}
