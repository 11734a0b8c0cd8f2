//! The MCP server, independent of the transport.
//!
//! It keeps no state between requests: a request names its target, so any server on the same state
//! can answer it. The exception are calls that wait for somebody's word: only the server that does
//! their work can go on with it.

use std::sync::Arc;

use hotcell_codemode::CodeMode;
use hotcell_service::Service;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CancelTaskParams,
    CompleteRequestParams, CompleteResult, CreateTaskResult, CustomRequest, CustomResult,
    GetPromptRequestParams, GetPromptResponse, GetTaskParams, GetTaskResult, Implementation,
    ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult, ListToolsResult,
    PaginatedRequestParams, ReadResourceRequestParams, ReadResourceResponse, ServerCapabilities,
    ServerConfig, Tool, UpdateTaskParams,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};

use crate::asking::{Repeated, Suspended};
use crate::call::{Call, caller};
use crate::egress::{self, EGRESS_METHOD};
use crate::interrupt::{self, INTERRUPT_METHOD, Interrupts};
use crate::memories::{self, MEMORY_METHOD};
use crate::reload::{self, RELOAD_METHOD, Reload};
use crate::resources::encoded_path;
use crate::tools::ToolTable;
use crate::transport::ReplyBudget;
use crate::{Options, complete, json_size, prompts, resources, task, tools};

/// The server's instructions, which a model reads before anything else.
const INSTRUCTIONS: &str = "Sealed Linux containers to work in. To run a snippet, call execute_code: it needs nothing else, and its files stay in /workspace for the next call. \
For longer work start with spawn, or list_containers to find one you have; container_id takes an id or an alias. \
A short command is one call: exec_start {container_id, cmd: [\"sh\", \"-c\", \"...\"], wait_s: 50} returns its output and exit code. A longer one goes on: call exec_poll \
with its exec_id and the last next_seq until complete=true. Files: the fs_ tools; all paths are under /workspace, absolute or relative to it. \
What a container is not: it has no network interface, its root is read-only, and commands run as user 1000, without sudo or root. \
Only /workspace (which is HOME) and a small /tmp in memory can be written. /workspace lasts as long as the container: with persistent=true until kill, else until ttl_s, idleness or \
the server's end. What it may reach is an egress profile: read hotcell://egress, name one in spawn {egress}, then pip, npm and others work as usual (execute_code: packages). \
Without one, use what the image has, spawn another image, or bring packages along as files (fs_write, fs_import) and install them below /workspace. Long answers are cut and say how to read on. Errors carry a code, a message and a hint: follow the hint.";

/// An MCP server. Clones share everything.
#[derive(Clone)]
pub struct Server {
    shared: Arc<Shared>,
}

struct Shared {
    service: Service,
    options: Options,
    tools: ToolTable,
    answers: ReplyBudget,
    interrupts: Arc<Interrupts>,
    suspended: Suspended,
}

type Context = RequestContext<RoleServer>;

impl Server {
    /// The servers that scripts can call, and what they may do.
    pub(crate) fn codemode(&self) -> &CodeMode {
        &self.shared.options.codemode
    }

    /// Creates a server on top of `service`.
    pub fn new(service: Service, options: Options) -> Self {
        let tools = ToolTable::new(options.toolsets);
        let answers = ReplyBudget::new(options.answers_bytes_max, options.answer_wait_max);
        Self {
            shared: Arc::new(Shared {
                service,
                options,
                tools,
                answers,
                interrupts: Arc::default(),
                suspended: Suspended::default(),
            }),
        }
    }

    pub(crate) fn service(&self) -> &Service {
        &self.shared.service
    }

    /// The calls that can be interrupted.
    pub(crate) fn interrupts(&self) -> &Arc<Interrupts> {
        &self.shared.interrupts
    }

    /// The work of calls that wait for somebody's word.
    pub(crate) fn suspended(&self) -> &Suspended {
        &self.shared.suspended
    }

    /// Reads the configuration again, if there is one.
    pub(crate) fn reload(&self) -> Option<&Reload> {
        self.shared.options.reload.as_ref()
    }

    /// The version reported to clients.
    pub(crate) fn version(&self) -> &str {
        &self.shared.options.version
    }

    /// The URL of a container's archive, if there is HTTP.
    pub(crate) fn archive_url(&self, container: &str, query: &[(&str, &str)]) -> Option<String> {
        let base = self
            .shared
            .options
            .public_url
            .as_deref()?
            .trim_end_matches('/');
        let query: Vec<String> = query
            .iter()
            .map(|(name, value)| format!("{name}={}", utf8_percent_encode(value, NON_ALPHANUMERIC)))
            .collect();
        Some(format!(
            "{base}/v1/containers/{container}/archive?{}",
            query.join("&")
        ))
    }

    /// The URL of a file, if there is HTTP.
    pub(crate) fn file_url(&self, container: &str, path: &[u8]) -> Option<String> {
        let base = self
            .shared
            .options
            .public_url
            .as_deref()?
            .trim_end_matches('/');
        Some(format!(
            "{base}/v1/containers/{container}/files/{}",
            encoded_path(path)
        ))
    }

    fn call(&self, context: &Context) -> Call {
        Call::new(context, &self.shared.options.caller, &self.shared.answers)
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_resources()
            .enable_prompts()
            .enable_completions()
            .enable_tasks()
            .build();
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("hotcell", self.version()).with_title("Hotcell"))
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        context: Context,
    ) -> Result<ListToolsResult, ErrorData> {
        let caller = caller(&context, &self.shared.options.caller);
        let tools = self.shared.tools.list_for(self.codemode(), &caller);
        Ok(ListToolsResult::with_all_items(tools))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.shared.tools.find(name)
    }

    async fn call_tool(
        &self,
        mut request: CallToolRequestParams,
        context: Context,
    ) -> Result<CallToolResponse, ErrorData> {
        let mut call = self.call(&context);
        call.repeated = Repeated::take(&mut request);
        let arguments = request.arguments.unwrap_or_default();
        let table = &self.shared.tools;
        let called = table.call(self, &request.name, arguments, &call).await;
        let mut outcome = called.ok_or_else(|| unknown_tool(&request.name))?;
        let task = outcome.as_mut().ok().and_then(|answer| answer.task.take());
        if let Some(task) = task {
            return Ok(CallToolResponse::Task(CreateTaskResult::new(task)));
        }
        let input = outcome.as_mut().ok().and_then(|answer| answer.input.take());
        if let Some(input) = input {
            return Ok(CallToolResponse::InputRequired(*input));
        }
        let changes = !table.is_read_only(&request.name);
        Ok(bounded(tools::result(outcome), changes, &call).await.into())
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: Context,
    ) -> Result<ListResourcesResult, ErrorData> {
        let cursor = request.and_then(|request| request.cursor);
        resources::list(self, &self.call(&context).caller, cursor.as_deref()).await
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(ListResourceTemplatesResult::with_all_items(
            resources::templates(),
        ))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: Context,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let call = self.call(&context);
        let read = async {
            let read = resources::read(self, &call, &request.uri).await?;
            call.keep_room(json_size::of(&read)).await?;
            Ok(read)
        };
        let read = read.await;
        Ok(read.map_err(tools::ToolError::into_protocol)?.into())
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Result<ListPromptsResult, ErrorData> {
        Ok(ListPromptsResult::with_all_items(prompts::list()))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _: Context,
    ) -> Result<GetPromptResponse, ErrorData> {
        let arguments = request.arguments.unwrap_or_default();
        Ok(prompts::get(&request.name, &arguments)?.into())
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        context: Context,
    ) -> Result<CompleteResult, ErrorData> {
        complete::complete(self, &self.call(&context).caller, request).await
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        context: Context,
    ) -> Result<GetTaskResult, ErrorData> {
        let call = self.call(&context);
        let task = task::get(self, &call.caller, &request.task_id).await?;
        let room = call.keep_room(json_size::of(&task)).await;
        room.map_err(tools::ToolError::into_protocol)?;
        Ok(task)
    }

    /// Our tasks never ask for input, so no response can belong to one.
    async fn update_task(
        &self,
        request: UpdateTaskParams,
        context: Context,
    ) -> Result<(), ErrorData> {
        task::get(self, &self.call(&context).caller, &request.task_id).await?;
        Ok(())
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        context: Context,
    ) -> Result<(), ErrorData> {
        task::cancel(self, &self.call(&context).caller, &request.task_id).await
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: Context,
    ) -> Result<CustomResult, ErrorData> {
        let caller = caller(&context, &self.shared.options.caller);
        match request.method.as_str() {
            RELOAD_METHOD => reload::answer(self, caller).await,
            INTERRUPT_METHOD => interrupt::answer(self.interrupts(), &caller, request.params),
            EGRESS_METHOD => egress::answer(self, &caller, request.params).await,
            MEMORY_METHOD => memories::answer(self, &caller, request.params).await,
            _ => Err(reload::unknown()),
        }
    }
}

/// Returns the result, or an error if there is no memory for it. The result of a tool that changes
/// something is always returned: such results are short.
async fn bounded(result: CallToolResult, changes: bool, call: &Call) -> CallToolResult {
    match call.keep_room(json_size::of_result(&result)).await {
        Err(error) if !changes => tools::result(Err(error)),
        Ok(()) | Err(_) => result,
    }
}

fn unknown_tool(name: &str) -> ErrorData {
    let name = crate::text::truncate(name, 64);
    ErrorData::invalid_params(format!("unknown tool: {name}"), None)
}
