//! Every way to ask about a handle.

use std::fmt;

use hotcell_testkit::arguments::{Handles, base, is_handle};
use serde_json::{Value, json};

use crate::support::http::Http;
use crate::support::mcp::Client;

/// Methods of HTTP; those that a path does not have are tried too.
const METHODS: [&str; 7] = ["GET", "HEAD", "PUT", "POST", "DELETE", "PATCH", "OPTIONS"];

/// Requests about a task, which is an exec.
const TASK_METHODS: [&str; 3] = ["tasks/get", "tasks/update", "tasks/cancel"];

/// Fields that look like handles and are words of the caller's own: the same word of two principals
/// names two things.
const OWN_WORDS: [&str; 2] = ["session_id", "session"];

/// A principal with a token.
pub(crate) struct Person {
    pub(crate) token: String,
    pub(crate) url: String,
    pub(crate) mcp: Client,
}

impl Person {
    pub(crate) fn new(url: &str, token: &str) -> Self {
        Self {
            token: token.to_owned(),
            url: url.to_owned(),
            mcp: Client::taking_tasks_by_token(url, token),
        }
    }
}

/// One way to name a container or an exec.
pub(crate) enum Ask {
    Tool { name: String, takes_container: bool },
    Resource { template: String },
    Completion { template: String, argument: String },
    Prompt { name: String, argument: String },
    Task { method: &'static str },
    Path { method: &'static str, path: String },
}

/// All ways, derived from what the server lists to an admin. The one that ends the container comes
/// last.
pub(crate) fn asks(operator: &mut Client) -> Vec<Ask> {
    let mut asks = Vec::new();
    for template in listed(operator, "resources/templates/list", "resourceTemplates") {
        let template = text(&template["uriTemplate"]);
        // Other MCP servers are the operator's. Who may use which, the crate `upstream` tests.
        if template.contains("{server}") {
            continue;
        }
        for argument in variables(&template) {
            let template = template.clone();
            asks.push(Ask::Completion { template, argument });
        }
        asks.push(Ask::Resource { template });
    }
    for prompt in listed(operator, "prompts/list", "prompts") {
        for argument in prompt["arguments"].as_array().into_iter().flatten() {
            let (name, argument) = (text(&prompt["name"]), text(&argument["name"]));
            if is_handle(&argument) {
                asks.push(Ask::Prompt { name, argument });
            }
        }
    }
    asks.extend(TASK_METHODS.map(|method| Ask::Task { method }));
    for path in hotcell_http::endpoints::container_paths() {
        let path = path.to_owned();
        asks.extend(METHODS.map(|method| Ask::Path {
            method,
            path: path.clone(),
        }));
    }
    asks.extend(
        listed(operator, "tools/list", "tools")
            .iter()
            .filter_map(tool),
    );
    asks.sort_by_key(|ask| matches!(ask, Ask::Tool { name, .. } if name == "kill"));
    asks
}

/// A tool that names something; one that no test knows fails here.
fn tool(tool: &Value) -> Option<Ask> {
    let name = text(&tool["name"]);
    assert!(
        base(&name, &no_handles()).is_some(),
        "{name} has no line in testkit's arguments"
    );
    let fields = tool["inputSchema"]["properties"].as_object().unwrap();
    for field in fields.keys() {
        let looks_like_it = field.ends_with("_id") || field == "session" || field == "container";
        assert!(
            is_handle(field) || OWN_WORDS.contains(&field.as_str()) || !looks_like_it,
            "{field} of {name} may be a handle"
        );
    }
    let takes_container = fields.contains_key("container_id");
    let names_something = fields.keys().any(|field| is_handle(field));
    names_something.then_some(Ask::Tool {
        name,
        takes_container,
    })
}

fn no_handles() -> Handles {
    hotcell_testkit::arguments::nobody()
}

fn listed(client: &mut Client, method: &str, field: &str) -> Vec<Value> {
    let listed = client.request(method, json!({})).unwrap();
    let listed = listed[field].as_array().unwrap().clone();
    assert!(!listed.is_empty(), "{method}");
    listed
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

/// The names in braces.
fn variables(template: &str) -> Vec<String> {
    let parts = template.split('{').skip(1);
    let names = parts.filter_map(|part| part.split_once('}'));
    names.map(|(name, _)| name.to_owned()).collect()
}

/// A template with everything filled in; a new variable needs a line here.
fn filled(template: &str, on: &Handles) -> String {
    let mut filled = template.to_owned();
    for name in variables(template) {
        let value = match name.as_str() {
            "container_id" | "id" => &on.container,
            "exec_id" => &on.exec,
            "path" | "*path" => "d/file",
            "port" => "8000",
            other => panic!("{other} of {template} has no line here"),
        };
        filled = filled.replace(&format!("{{{name}}}"), value);
    }
    filled
}

impl Ask {
    /// The whole answer to a person, without the handles.
    pub(crate) fn answer(&self, person: &mut Person, on: &Handles) -> String {
        let answer = self.ask(person, on);
        answer
            .replace(&on.container, "CONTAINER")
            .replace(&on.exec, "EXEC")
    }

    fn ask(&self, person: &mut Person, on: &Handles) -> String {
        let (method, params) = match self {
            Self::Tool {
                name,
                takes_container,
            } => {
                let mut arguments = base(name, on).unwrap();
                if *takes_container {
                    arguments["container_id"] = on.container.as_str().into();
                }
                let params = json!({ "name": name, "arguments": arguments });
                ("tools/call", params)
            }
            Self::Resource { template } => {
                ("resources/read", json!({ "uri": filled(template, on) }))
            }
            Self::Completion { template, argument } => {
                let known = json!({ "container_id": on.container, "exec_id": on.exec });
                let params = json!({
                    "ref": { "type": "ref/resource", "uri": template },
                    "argument": { "name": argument, "value": "" },
                    "context": { "arguments": known },
                });
                ("completion/complete", params)
            }
            Self::Prompt { name, argument } => {
                let arguments = json!({ argument: on.container });
                (
                    "prompts/get",
                    json!({ "name": name, "arguments": arguments }),
                )
            }
            Self::Task { method } => {
                let params = json!({ "taskId": on.exec, "inputResponses": {} });
                (*method, params)
            }
            Self::Path { method, path } => return by_http(person, method, &filled(path, on)),
        };
        match person.mcp.request(method, params) {
            Ok(result) => result.to_string(),
            Err(error) => format!("error {error}"),
        }
    }

    /// The text that a refusal contains.
    pub(crate) fn refusal(&self) -> Option<&'static str> {
        match self {
            Self::Tool { .. } => Some("not_found"),
            Self::Resource { .. } | Self::Task { .. } => Some("error"),
            Self::Completion { .. } => Some(r#""values":[]"#),
            Self::Prompt { .. } => None,
            Self::Path { method, path } => match *method {
                "GET" | "HEAD" | "PUT" => Some("404"),
                // Whatever a server inside takes.
                _ if path.contains("/ports/") => Some("404"),
                _ => Some("405"),
            },
        }
    }

    /// Whether the owner gets a different answer. A prompt is a text that looks up nothing, and a
    /// list of completions contains all names.
    pub(crate) fn tells_owners_apart(&self) -> bool {
        match self {
            Self::Tool { .. } | Self::Resource { .. } | Self::Task { .. } => true,
            Self::Completion { argument, .. } => argument == "path",
            Self::Prompt { .. } => false,
            Self::Path { method, .. } => matches!(*method, "GET" | "HEAD" | "PUT"),
        }
    }
}

fn by_http(person: &Person, method: &str, path: &str) -> String {
    // Two empty blocks: an archive without members, and a file like any other.
    let body = if matches!(method, "PUT" | "POST" | "PATCH") {
        vec![0; 1024]
    } else {
        Vec::new()
    };
    let headers = [("Content-Type", "application/x-tar".to_owned())];
    let mut http = Http::connect(&person.url).with_token(&person.token);
    http.send(method, path, &headers, body.len() as u64);
    // It may be refused before all of it is sent.
    let _ = http.try_write(&body);
    http.read_answer(method == "HEAD")
}

impl fmt::Display for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tool { name, .. } => write!(f, "{name}"),
            Self::Resource { template } => write!(f, "resource {template}"),
            Self::Completion { template, argument } => {
                write!(f, "completion of {argument} in {template}")
            }
            Self::Prompt { name, argument } => write!(f, "prompt {name} with {argument}"),
            Self::Task { method } => write!(f, "{method}"),
            Self::Path { method, path } => write!(f, "{method} {path}"),
        }
    }
}
