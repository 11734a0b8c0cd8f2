//! Requests of a script, answered.

use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::policy::Verdict;
use crate::ports::{CallEnd, CallError, CallStart, EarlierOutcome, SaveMemory};
use crate::request::{Call, Request};
use crate::serve::Answers;
use crate::{Asked, Decision, Failure, MemoryRow, Question, Run, ToolCall, ToolDefinition};

/// Characters of arguments that somebody who decides is shown.
const SHOWN_CHARS_MAX: usize = 2000;

/// Search hits in one answer.
const HITS_MAX: u64 = 50;

/// Progress updates of one call that wait to be sent.
const PROGRESS_MAX: usize = 16;

/// How long the last updates of a call that has ended may take.
const LAST_PROGRESS_MAX: Duration = Duration::from_secs(1);

const MEMORY: &str = "memory";
const TOOL: &str = "tool";

impl Run {
    pub(crate) async fn answer(
        &self,
        number: u32,
        request: Request,
        answers: &Answers,
    ) -> Result<Value, Failure> {
        let (servers, memory) = (&self.parts.servers, &self.parts.memory);
        match request {
            Request::Call(call) => self.call(number, call, answers).await,
            Request::Tools { server } => {
                let tools = servers.definitions(self.granted(&server)?).await?;
                Ok(tools.iter().map(|tool| tool.json.clone()).collect())
            }
            Request::Servers {} => Ok(self.listed()),
            Request::Search {
                query,
                limit,
                servers: among,
            } => {
                let limit = limit.unwrap_or(5).clamp(1, HITS_MAX);
                let limit = usize::try_from(limit).unwrap_or(1);
                Ok(servers.search(&query, among.as_deref(), limit).into())
            }
            Request::Summary {} => Ok(crate::capabilities::summary(&servers.list()).into()),
            Request::Resources { server } => servers.resources(self.granted(&server)?).await,
            Request::ReadResource { server, uri } => {
                servers.read_resource(self.granted(&server)?, &uri).await
            }
            Request::Prompts { server } => servers.prompts(self.granted(&server)?).await,
            Request::Prompt {
                server,
                name,
                arguments,
            } => {
                let server = self.granted(&server)?;
                servers.prompt(server, &name, arguments).await
            }
            Request::MemorySave {
                key,
                value,
                metadata,
                if_version,
            } => {
                let row = SaveMemory {
                    key,
                    value: value.to_string(),
                    metadata: metadata.map(|metadata| metadata.to_string()),
                    if_version,
                };
                let version = memory.save(MEMORY, row).await?;
                Ok(json!({ "version": version }))
            }
            Request::MemoryLoad { key } => {
                let found = memory.load(MEMORY, &key).await?;
                Ok(found.map_or(Value::Null, |row| told(&row, true)))
            }
            Request::MemoryDelete { key } => Ok(memory.delete(MEMORY, &key).await?.into()),
            Request::MemoryList { prefix } => {
                let rows = memory.list(MEMORY, &prefix).await?;
                Ok(rows.iter().map(|row| told(row, false)).collect())
            }
            Request::ToolSave {
                name,
                source,
                description,
            } => {
                let row = SaveMemory {
                    key: name,
                    value: Value::String(source).to_string(),
                    metadata: description.map(|text| Value::String(text).to_string()),
                    if_version: None,
                };
                let version = memory.save(TOOL, row).await?;
                Ok(json!({ "version": version }))
            }
            Request::ToolLoad { name } => {
                let found = memory.load(TOOL, &name).await?;
                Ok(found.map_or(Value::Null, |row| json!({"source": parsed(&row.value)})))
            }
            Request::ToolList {} => {
                let rows = memory.list(TOOL, "").await?;
                let one = |row: &MemoryRow| json!({"name": row.key, "version": row.version});
                Ok(rows.iter().map(one).collect())
            }
            Request::Hello { .. } | Request::Cancel {} | Request::End(_) => {
                Err(Failure::invalid("this is not a request"))
            }
        }
    }

    /// The server, if this run may use it.
    fn granted<'a>(&self, server: &'a str) -> Result<&'a str, Failure> {
        if self
            .parts
            .granted
            .iter()
            .any(|granted| granted.name == server)
        {
            return Ok(server);
        }
        let shown: String = server.chars().take(64).collect();
        Err(Failure::denied(format!(
            "server `{shown}` is not part of this run; name it in `servers` of the call"
        )))
    }

    fn listed(&self) -> Value {
        let servers = self.parts.servers.list();
        let one = |server: &crate::ServerSummary| {
            let is_granted = self.parts.granted.iter().any(|it| it.name == server.name);
            json!({
                "name": server.name,
                "alias": server.alias,
                "description": server.description,
                "tools": server.tools,
                "health": server.health,
                "in_this_run": is_granted,
            })
        };
        servers.iter().map(one).collect()
    }

    async fn call(&self, number: u32, call: Call, answers: &Answers) -> Result<Value, Failure> {
        self.granted(&call.server)?;
        let began = Instant::now();
        let order = self.reporter.begin(&call.server, &call.tool);
        let (called, status) = self.make_call(order, number, call, answers).await;
        let text = match &called {
            Ok(value) => preview(value),
            Err(failure) => failure.to_string(),
        };
        self.reporter.end(order, status, &text, began.elapsed());
        called
    }

    async fn make_call(
        &self,
        order: u64,
        number: u32,
        call: Call,
        answers: &Answers,
    ) -> (Result<Value, Failure>, &'static str) {
        let start = self.start(order, &call);
        let earlier = self.replay.take(&start.digest);
        if let Some(EarlierOutcome::Answered(result)) = earlier {
            return (Ok(parsed(&result)), "replayed");
        }
        let is_repeat = earlier.is_some();
        let admitted = self.admit(&call, &start, is_repeat).await;
        let tool = match admitted {
            Ok(tool) => tool,
            Err(failure) => {
                self.parts.journal.refuse_call(start, &failure).await;
                let status = if failure.code == "denied" {
                    "denied"
                } else {
                    "error"
                };
                return (Err(failure), status);
            }
        };
        self.send(number, call, start, &tool, answers).await
    }

    fn start(&self, number: u64, call: &Call) -> CallStart {
        let arguments = serde_json::to_vec(&call.arguments).unwrap_or_default();
        let mut hash = Sha256::new();
        for part in [call.server.as_bytes(), call.tool.as_bytes(), &arguments] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        let digest: [u8; 32] = hash.finalize().into();
        CallStart {
            run: self.id.clone(),
            number,
            server: call.server.clone(),
            tool: call.tool.chars().take(256).collect(),
            argument_names: call.arguments.keys().take(32).cloned().collect(),
            digest: crate::run::hex(&digest),
            bytes: arguments.len(),
        }
    }

    /// Decides on a call, by rules, budgets and perhaps somebody's word.
    async fn admit(
        &self,
        call: &Call,
        start: &CallStart,
        is_repeat: bool,
    ) -> Result<ToolDefinition, Failure> {
        let (budget, parts) = (&self.parts.budget, &self.parts);
        self.used.take_call(budget)?;
        self.used.take_bytes(start.bytes, budget)?;
        parts.rate.take(&parts.principal, budget.per_minute_max)?;
        let tools = parts.servers.definitions(&call.server).await?;
        let tool = tools.iter().find(|tool| tool.name == call.tool).cloned();
        let tool = tool.ok_or_else(|| {
            let shown: String = call.tool.chars().take(64).collect();
            Failure::not_found(format!("server `{}` has no tool `{shown}`", call.server))
        })?;
        let pin = parts.servers.pin(&call.server, &call.tool);
        let mut verdict = parts
            .policy
            .decide(&call.server, &tool, &pin, &call.arguments);
        if is_repeat && !tool.is_read_only && !tool.is_idempotent {
            let reason = "the run that this one continues made the same call, and nobody knows whether it was done".to_owned();
            verdict = Verdict {
                decision: verdict.decision.max(Decision::Ask),
                reason,
            };
        }
        match verdict.decision {
            Decision::Allow => Ok(tool),
            Decision::Deny => Err(Failure::denied(format!(
                "{}.{} is denied ({}); ask the operator to change the rule, or do without",
                call.server, tool.name, verdict.reason
            ))),
            Decision::Ask => self.ask(call, &verdict.reason).await.map(|()| tool),
        }
    }

    async fn ask(&self, call: &Call, reason: &str) -> Result<(), Failure> {
        let arguments = serde_json::to_string(&call.arguments).unwrap_or_default();
        let question = Question {
            server: call.server.clone(),
            tool: call.tool.clone(),
            arguments: arguments.chars().take(SHOWN_CHARS_MAX).collect(),
            reason: reason.to_owned(),
        };
        let pause = self.deadline.pause();
        let asked = self.parts.asker.ask(question).await;
        drop(pause);
        let (server, tool) = (&call.server, &call.tool);
        match asked {
            Asked::Yes => Ok(()),
            Asked::No => Err(Failure::denied(format!(
                "the user declined {server}.{tool}"
            ))),
            Asked::Nobody => Err(Failure::denied(format!(
                "{server}.{tool} needs the user's consent ({reason}), and this client cannot ask for it; the operator can allow it with a rule: [rule.NAME] server = \"{server}\", tool = \"{tool}\", action = \"allow\""
            ))),
        }
    }

    /// Sends an admitted call, once it is on record.
    async fn send(
        &self,
        number: u32,
        call: Call,
        start: CallStart,
        tool: &ToolDefinition,
        answers: &Answers,
    ) -> (Result<Value, Failure>, &'static str) {
        let Ok(_place) = self.parallel.acquire().await else {
            return (Err(Failure::new("cancelled", "the run has ended")), "error");
        };
        let journalled = match self.parts.journal.begin_call(start).await {
            Ok(journalled) => journalled,
            Err(failure) => return (Err(failure), "error"),
        };
        let time_left = self.deadline.left().min(self.parts.budget.call_timeout);
        let (progress, mut updates) = mpsc::channel(PROGRESS_MAX);
        let request = ToolCall {
            server: call.server,
            tool: call.tool,
            arguments: call.arguments,
            timeout: time_left,
            progress: call.progress.then_some(progress),
        };
        let calling = self.parts.servers.call(request);
        tokio::pin!(calling);
        let called = loop {
            tokio::select! {
                biased;
                Some(update) = updates.recv() => answers.progress(number, &update),
                called = &mut calling => break called,
            }
        };
        // Updates that came together with the result are on their way through a task.
        while let Ok(Some(update)) = timeout(LAST_PROGRESS_MAX, updates.recv()).await {
            answers.progress(number, &update);
        }
        let (end, called) = self.ended(called, tool);
        journalled.end(&end).await;
        let status = match &end {
            CallEnd::Answered { .. } => "ok",
            CallEnd::Failed(_) => "error",
            CallEnd::Unknown(_) => "unknown",
        };
        (called, status)
    }

    fn ended(
        &self,
        called: Result<Value, CallError>,
        tool: &ToolDefinition,
    ) -> (CallEnd, Result<Value, Failure>) {
        match called {
            Err(error) if error.is_outcome_unknown => {
                (CallEnd::Unknown(error.failure.clone()), Err(error.failure))
            }
            Err(error) => (CallEnd::Failed(error.failure.clone()), Err(error.failure)),
            Ok(mut value) => {
                if let Some(object) = value.as_object_mut()
                    && wraps(tool)
                {
                    object.insert("wrapped".to_owned(), true.into());
                }
                let bytes = json_bytes(&value);
                let result = self.used.keep(bytes).then(|| value.to_string());
                let end = CallEnd::Answered { result, bytes };
                let within = self.used.take_bytes(bytes, &self.parts.budget);
                (end, within.map(|()| value))
            }
        }
    }
}

/// Whether its results are wrapped in an object only because structured content must be one.
fn wraps(tool: &ToolDefinition) -> bool {
    let schema = tool.json.get("outputSchema");
    let says = schema.and_then(|schema| schema.get("x-fastmcp-wrap-result"));
    says.and_then(Value::as_bool).unwrap_or(false)
}

/// How long a value is as JSON.
fn json_bytes(value: &Value) -> usize {
    struct Count(usize);
    impl std::io::Write for Count {
        fn write(&mut self, data: &[u8]) -> std::io::Result<usize> {
            self.0 += data.len();
            Ok(data.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    let _ = serde_json::to_writer(&mut count, value);
    count.0
}

/// What a result says, shortly: structured content, else its text.
fn preview(value: &Value) -> String {
    if let Some(structured) = value.get("structuredContent").filter(|it| !it.is_null()) {
        return cut(structured);
    }
    let blocks = value.get("content").and_then(Value::as_array);
    let first = blocks.and_then(|blocks| blocks.first());
    match first
        .and_then(|block| block.get("text"))
        .and_then(Value::as_str)
    {
        Some(text) => text.chars().take(SHOWN_CHARS_MAX).collect(),
        None => String::new(),
    }
}

/// The beginning of a value as JSON. A long one is not rendered.
fn cut(value: &Value) -> String {
    if json_bytes(value) > 64 << 10 {
        return "(long)".to_owned();
    }
    value.to_string()
}

fn told(row: &MemoryRow, with_value: bool) -> Value {
    let mut object = Map::new();
    let mut insert = |name: &str, value: Value| object.insert(name.to_owned(), value);
    insert("key", row.key.as_str().into());
    insert("version", row.version.into());
    insert("bytes", row.bytes.into());
    insert("created_unix_ms", row.created_unix_ms.into());
    insert("updated_unix_ms", row.updated_unix_ms.into());
    let metadata = row.metadata.as_deref();
    insert("metadata", metadata.map_or(Value::Null, parsed));
    if with_value {
        insert("value", parsed(&row.value));
    }
    Value::Object(object)
}

fn parsed(json: &str) -> Value {
    serde_json::from_str(json).unwrap_or_default()
}
