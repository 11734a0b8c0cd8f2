//! `list_execs`: the caller's commands.

use hotcell_domain::{ContainerId, ContainerRef, ExecId};
use hotcell_service::ExecSummary;
use rmcp::model::JsonObject;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::exec_view::insert_end;
use super::paging::{ROWS_MAX, rows};
use super::{Answer, Hints, Tool, ToolError, paging};
use crate::Server;
use crate::call::Call;
use crate::text::truncate;
use hotcell_domain::rfc3339;

/// How much of a command the structured list shows.
const CMD_BYTES_MAX: usize = 512;

/// How much of a command the text shows.
const LINE_BYTES_MAX: usize = 120;

pub(super) struct ListExecs;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Params {
    /// Only of this container: id or alias
    container_id: Option<String>,
    /// Also those that ended within a day
    #[serde(default)]
    include_finished: bool,
    /// Operator only: everybody's running ones
    #[serde(default)]
    all: bool,
    /// Rows of a page, the newest
    #[serde(default = "rows")]
    #[schemars(range(min = 1, max = ROWS_MAX))]
    limit: u32,
    /// `next_cursor` of the page before
    cursor: Option<String>,
}

#[derive(JsonSchema)]
#[expect(dead_code, reason = "it is there for its schema")]
pub(super) struct Output {
    execs: Vec<ExecItem>,
    /// Leads to older ones
    next_cursor: Option<String>,
}

#[derive(JsonSchema)]
#[expect(dead_code, reason = "it is there for its schema")]
struct ExecItem {
    exec_id: String,
    principal: Option<String>,
    container_id: String,
    cmd: Vec<String>,
    status: String,
    output_bytes: Option<u64>,
    created_at: String,
    ended_at: Option<String>,
    exit_code: Option<u8>,
    signal: Option<u8>,
    reason: Option<String>,
    not_started: Option<String>,
    usage: Option<super::exec_view::UsageView>,
}

impl Tool for ListExecs {
    const NAME: &'static str = "list_execs";
    const DESCRIPTION: &'static str = "List your running commands; include_finished adds those of the last day. Older ones: pass next_cursor as cursor.";
    const HINTS: Hints = Hints::READS;
    type Params = Params;
    type Output = Output;

    async fn run(server: &Server, params: Params, call: &Call) -> Result<Answer, ToolError> {
        let target = params
            .container_id
            .as_deref()
            .map(super::container_ref)
            .transpose()?;
        let parse = |id: &str| ExecId::parse(id).ok();
        let page = paging::request(params.limit, params.cursor.as_deref(), parse)?;
        let (service, caller) = (server.service(), &call.caller);
        let listing = if params.all {
            let container = target.as_ref().map(any_container).transpose()?;
            let all = service.all_execs_page(caller, container, &page).await;
            all.map_err(|error| ToolError::from(error).with_hint("leave `all` out to see yours"))?
        } else {
            let target = target.as_ref();
            let own = service.execs_page(caller, target, params.include_finished, &page);
            own.await?
        };
        let age = |exec: &ExecSummary| (exec.created_unix_ms, exec.id.clone());
        let fitted = paging::fit(listing, |exec| listed(exec, params.all), age);
        let lines = fitted.rows.iter().map(|exec| line(exec, params.all));
        let mut text: Vec<String> = lines.collect();
        if text.is_empty() {
            text.push("no execs".to_owned());
        }
        let mut output = json!({ "execs": fitted.items });
        if let Some(next) = fitted.next_cursor {
            text.insert(0, paging::next_step(&next));
            output["next_cursor"] = next.into();
        }
        Ok(Answer::new(text.join("\n"), output))
    }
}

/// The container whose execs of all principals are requested. Only an id: an alias belongs to one
/// principal.
fn any_container(target: &ContainerRef) -> Result<&ContainerId, ToolError> {
    match target {
        ContainerRef::Id(id) => Ok(id),
        ContainerRef::Alias(_) => Err(ToolError::invalid(
            "with `all`, container_id is an id: an alias may be several principals'",
        )
        .with_hint("list_containers with `all` shows the ids")),
    }
}

/// An exec; `with_principal` if the list shows several principals.
fn listed(exec: &ExecSummary, with_principal: bool) -> Value {
    let mut object = JsonObject::new();
    object.insert("exec_id".to_owned(), exec.id.as_str().into());
    if with_principal {
        object.insert("principal".to_owned(), exec.principal.as_str().into());
    }
    object.insert("container_id".to_owned(), exec.container.as_str().into());
    object.insert("cmd".to_owned(), shortened(&exec.argv).into());
    object.insert("status".to_owned(), exec.status.as_str().into());
    object.insert(
        "created_at".to_owned(),
        rfc3339(exec.created_unix_ms).into(),
    );
    if let Some(bytes) = exec.output_bytes {
        object.insert("output_bytes".to_owned(), bytes.into());
    }
    if let Some(ended) = exec.ended_unix_ms {
        object.insert("ended_at".to_owned(), rfc3339(ended).into());
    }
    if let Some(end) = &exec.end {
        insert_end(&mut object, end);
    }
    Value::Object(object)
}

fn line(exec: &ExecSummary, with_principal: bool) -> String {
    let cmd = shortened(&exec.argv)
        .join(" ")
        .replace(char::is_control, " ");
    let (id, status, container) = (&exec.id, exec.status.as_str(), &exec.container);
    let code = exec.end.as_ref().and_then(|end| end.exit_code);
    let code = code.map(|code| format!(" ({code})")).unwrap_or_default();
    let owner = with_principal.then(|| format!("  of {}", exec.principal));
    format!(
        "{id}  {status}{code}  {container}  {}{}",
        truncate(&cmd, LINE_BYTES_MAX),
        owner.unwrap_or_default()
    )
}

/// As many arguments as fit, then a mark if there are more.
fn shortened(argv: &[String]) -> Vec<String> {
    let mut left = CMD_BYTES_MAX;
    let mut shown = Vec::new();
    for argument in argv {
        let part = truncate(argument, left);
        shown.push(part.to_owned());
        if part.len() < argument.len() {
            shown.push("…".to_owned());
            break;
        }
        left -= part.len();
    }
    shown.truncate(CMD_BYTES_MAX);
    shown
}
