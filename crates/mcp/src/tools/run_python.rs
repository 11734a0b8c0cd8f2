//! `run_python`: runs a script that calls other MCP servers.

use std::sync::Arc;
use std::time::Duration;

use hotcell_codemode::{Asker, MAIN, Run, RunParts, ServerSummary, files_for};
use hotcell_domain::RunId;
use hotcell_service::{Abandonment, Progress, SNIPPET_BYTES_MAX, ScriptRequest, ScriptRun};
use schemars::JsonSchema;
use serde::Deserialize;

use super::run_view::{Output, RunView};
use super::{Answer, Code, Hints, Tool, ToolError, arguments};
use crate::asking::{Attended, Ongoing};
use crate::call::Call;
use crate::codemode::{Host, Records, Running, earlier};
use crate::{Server, Toolset};

/// Bytes that a character may have as JSON.
const CHAR_BYTES_MAX: usize = 6;

/// Servers that one call may name.
const SERVERS_MAX: usize = 64;

/// How long the agent waits beyond the run's own deadline, which does not count the time in which
/// somebody decides on a call.
const DECISIONS_MAX: Duration = Duration::from_mins(30);

pub(super) struct RunPython;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Params {
    /// Source, top-level await allowed
    code: String,
    /// MCP servers it may call; default: those that need not be named
    servers: Option<Vec<String>>,
    /// Seconds; default 30
    #[schemars(range(min = 1, max = 120))]
    timeout: Option<u64>,
    /// Run there; default: a new container
    session: Option<String>,
    /// Id of a failed run, to not repeat finished calls
    resume: Option<String>,
}

impl Tool for RunPython {
    const NAME: &'static str = "run_python";
    const DESCRIPTION: &'static str =
        "Run Python with top-level await that can call the user's other MCP servers.";
    const HINTS: Hints = Hints::DESTROYS_ELSEWHERE;
    const SET: Toolset = Toolset::Codemode;
    type Params = Params;
    type Output = Output;

    async fn run(server: &Server, params: Params, call: &Call) -> Result<Answer, ToolError> {
        let running = match &call.repeated {
            None => params.start(server, call).await?,
            Some(repeated) => {
                let is_meant = |running: &Running| running.run.is_of(&params.code);
                let resumed = Ongoing::resume(server, call, repeated, is_meant);
                resumed.ok_or_else(gone)?
            }
        };
        match running.attend(server, call).await? {
            Attended::Asks(input) => Ok(Answer::needs(input)),
            Attended::Ended(running, script) => {
                let (run, timeout) = running.answered();
                ended(server, &run, &script, timeout, call).await
            }
        }
    }
}

async fn ended(
    server: &Server,
    run: &Run,
    script: &ScriptRun,
    timeout: Duration,
    call: &Call,
) -> Result<Answer, ToolError> {
    let service = server.service();
    call.room(2 * CHAR_BYTES_MAX * service.code_output_chars_max())
        .await?;
    let output = service.code_output(&call.caller, &script.exec, &script.end, &script.owner);
    let output = output.await?;
    let view = RunView {
        run,
        script,
        output,
        timeout,
    };
    Ok(view.answer(server.codemode().settings().output))
}

fn gone() -> ToolError {
    let message = "no script of yours waits for this decision: it waited for ten minutes at most, or the server was restarted";
    ToolError::new(Code::NotFound, message)
        .with_hint("call run_python again, with `resume` to not repeat finished calls")
}

impl Params {
    async fn start(&self, server: &Server, call: &Call) -> Result<Ongoing<Running>, ToolError> {
        let timeout = Duration::from_secs(self.timeout.unwrap_or(30).clamp(1, 120));
        let (forms, next) = call.asking.open();
        let asker = Arc::new(forms.clone());
        let (run, secret) = self.prepare(server, call, timeout, asker).await?;
        let session = self.session.as_deref();
        let session = session.map(|name| arguments::session(Some(name)));
        let request = ScriptRequest {
            files: files_for(&self.code),
            main: MAIN,
            secret,
            welcome: run.welcome(),
            session: session.transpose()?,
            timeout: timeout + DECISIONS_MAX,
            host: Arc::new(Host(Arc::clone(&run))),
            note: vec![
                ("run", run.id().to_string()),
                ("code_bytes", self.code.len().to_string()),
                (
                    "servers",
                    self.servers.clone().unwrap_or_default().join(","),
                ),
            ],
            progress: Progress::default(),
            abandonment: Abandonment::default(),
        };
        let (service, caller) = (server.service(), &call.caller);
        let running = Running::start(service, caller, run, request, timeout);
        Ok(Ongoing::begin(server, call, running, (forms, next)))
    }

    async fn prepare(
        &self,
        server: &Server,
        call: &Call,
        timeout: Duration,
        asker: Arc<dyn Asker>,
    ) -> Result<(Arc<Run>, String), ToolError> {
        if self.code.trim().is_empty() {
            return Err(ToolError::argument("code", "there is nothing to run"));
        }
        if self.code.len() > SNIPPET_BYTES_MAX {
            let message = format!("may have at most {SNIPPET_BYTES_MAX} bytes");
            return Err(ToolError::argument("code", message));
        }
        let codemode = server.codemode();
        let servers = codemode.servers(call.caller.principal.as_str());
        let (granted, others) = self.granted(servers.list())?;
        let earlier = match &self.resume {
            None => Vec::new(),
            Some(run) => {
                let run = RunId::parse(run).map_err(|_| unknown_run(run))?;
                let calls = server.service().calls_of(&call.caller, &run);
                earlier(calls.await?)
            }
        };
        let records = Arc::new(Records {
            service: server.service().clone(),
            caller: call.caller.clone(),
        });
        let settings = codemode.settings();
        let (id, secret) = Run::new_id();
        let parts = RunParts {
            principal: call.caller.principal.to_string(),
            code: self.code.clone(),
            granted,
            others,
            timeout,
            earlier,
            policy: Arc::new(settings.policy.clone()),
            budget: settings.budget,
            rate: Arc::clone(codemode.rate()),
            servers,
            journal: Arc::<Records>::clone(&records),
            memory: records,
            asker,
        };
        let run = Run::new(id, secret.clone(), parts);
        Ok((run, secret))
    }

    /// The servers that the script may use, and the others.
    fn granted(
        &self,
        all: Vec<ServerSummary>,
    ) -> Result<(Vec<ServerSummary>, Vec<ServerSummary>), ToolError> {
        let Some(named) = &self.servers else {
            return Ok(all.into_iter().partition(|server| !server.must_be_named));
        };
        if named.len() > SERVERS_MAX {
            let message = format!("may name {SERVERS_MAX} servers at most");
            return Err(ToolError::argument("servers", message));
        }
        let is =
            |server: &ServerSummary, name: &String| server.name == *name || server.alias == *name;
        if let Some(unknown) = named
            .iter()
            .find(|name| !all.iter().any(|server| is(server, name)))
        {
            let shown = crate::text::truncate(unknown, 64);
            let known: Vec<&str> = all
                .iter()
                .take(50)
                .map(|server| server.name.as_str())
                .collect();
            let known = if known.is_empty() {
                "none".to_owned()
            } else {
                known.join(", ")
            };
            let message = format!("there is no server `{shown}`; there are: {known}");
            return Err(ToolError::argument("servers", message));
        }
        let is_named = |server: &ServerSummary| named.iter().any(|name| is(server, name));
        Ok(all.into_iter().partition(is_named))
    }
}

fn unknown_run(run: &str) -> ToolError {
    let shown = crate::text::truncate(run, 64);
    ToolError::argument(
        "resume",
        format!("`{shown}` is no run_id: it is `r_` and 26 characters"),
    )
}
