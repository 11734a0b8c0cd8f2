//! What `hotcell upstream` prints.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use hotcell_upstream::{
    Content, Definitions, Finding, PinState, ServerName, ServerSummary, ToolResult,
};
use serde_json::{Value, json};

use crate::terminal;

/// How a test of a server ended.
pub(super) struct Tested {
    pub(super) server: ServerName,
    pub(super) outcome: Result<Arc<Definitions>, String>,
    pub(super) took: Duration,
}

pub(super) fn servers(servers: &[ServerSummary], findings: &[Finding], is_json: bool) -> String {
    if is_json {
        let servers: Vec<Value> = servers.iter().map(server).collect();
        let findings: Vec<Value> = findings.iter().map(finding).collect();
        return json!({ "servers": servers, "findings": findings }).to_string();
    }
    let mut lines = vec![row(["NAME", "ALIAS", "TRANSPORT", "TOOLS", "SOURCE"])];
    for server in servers {
        let tools = server
            .tools
            .map_or_else(|| "?".to_owned(), |tools| tools.to_string());
        let name = server.name.as_str();
        lines.push(row([
            name,
            &server.alias,
            server.transport.as_str(),
            &tools,
            server.source.program,
        ]));
    }
    for Finding {
        source,
        entry,
        message,
    } in findings
    {
        let entry = entry
            .as_ref()
            .map(|entry| format!(" `{entry}`"))
            .unwrap_or_default();
        let file = source
            .file
            .as_ref()
            .map(|file| format!(" ({})", file.display()))
            .unwrap_or_default();
        lines.push(terminal::plain(&format!(
            "{}{file}{entry}: {message}",
            source.program
        )));
    }
    lines.join("\n")
}

fn server(server: &ServerSummary) -> Value {
    json!({
        "name": server.name.as_str(),
        "alias": &*server.alias,
        "transport": server.transport.as_str(),
        "source": server.source.program,
        "file": server.source.file,
        "tools": server.tools,
        "skipped": server.skipped,
        "summary": server.summary,
    })
}

fn finding(
    Finding {
        source,
        entry,
        message,
    }: &Finding,
) -> Value {
    json!({ "source": source.program, "file": source.file, "entry": entry, "message": message })
}

fn row(cells: [&str; 5]) -> String {
    let [name, alias, transport, tools, source] = cells;
    format!("{name:<24} {alias:<24} {transport:<10} {tools:>5}  {source}")
}

pub(super) fn tools(
    definitions: &Definitions,
    pin: impl Fn(&str) -> Option<PinState>,
    is_json: bool,
) -> String {
    let state = |name: &str| match pin(name) {
        Some(PinState::New) | None => ("new", None),
        Some(PinState::Same) => ("approved", None),
        Some(PinState::Changed { difference }) => ("changed", Some(difference)),
    };
    if is_json {
        let tools: Vec<Value> = definitions
            .tools
            .iter()
            .map(|tool| {
                let (approval, difference) = state(&tool.name);
                let mut value = json!(tool);
                value["approval"] = approval.into();
                value["difference"] = difference.into();
                value
            })
            .collect();
        return json!({ "tools": tools, "skipped": definitions.skipped }).to_string();
    }
    let mut lines = Vec::new();
    for tool in &definitions.tools {
        let (approval, difference) = state(&tool.name);
        let said = tool.description.as_deref().unwrap_or_default();
        let first = said.lines().next().unwrap_or_default();
        lines.push(terminal::plain(&format!(
            "{:<32} {approval:<9} {first}",
            tool.name
        )));
        for line in difference.iter().flat_map(|difference| difference.lines()) {
            lines.push(terminal::plain(&format!("    {line}")));
        }
    }
    lines.extend(
        definitions
            .skipped
            .iter()
            .map(|reason| terminal::plain(&format!("skipped: {reason}"))),
    );
    lines.join("\n")
}

/// Structured content first; else what is text, and what the rest is.
pub(super) fn answer(answer: &ToolResult, is_json: bool) -> Result<String> {
    if is_json {
        return serde_json::to_string(answer).context("write the answer");
    }
    if let Some(structured) = &answer.structured {
        return Ok(terminal::plain(structured.get()));
    }
    let parts = answer.content.iter().map(|content| match content {
        Content::Text { text } => terminal::plain(text),
        Content::Image(blob) | Content::Audio(blob) => terminal::plain(&format!(
            "({}, {} characters of base64)",
            blob.mime_type,
            blob.data.len()
        )),
        Content::Resource { resource } => {
            let text = resource.text.as_deref().unwrap_or("(bytes)");
            terminal::plain(&format!("{}: {text}", resource.uri))
        }
        Content::ResourceLink(resource) => terminal::plain(&resource.uri),
        Content::Unknown | _ => "(something unknown)".to_owned(),
    });
    Ok(parts.collect::<Vec<_>>().join("\n"))
}

pub(super) fn tested(tested: &[Tested], is_json: bool) -> String {
    let lines = tested.iter().map(|Tested { server, outcome, took }| {
        let took_ms = took.as_millis();
        match (outcome, is_json) {
            (Ok(definitions), true) => {
                let (tools, skipped) = (definitions.tools.len(), definitions.skipped_count);
                json!({ "server": server.as_str(), "works": true, "tools": tools, "skipped": skipped, "took_ms": took_ms }).to_string()
            }
            (Err(error), true) => {
                json!({ "server": server.as_str(), "works": false, "error": error, "took_ms": took_ms }).to_string()
            }
            (Ok(definitions), false) => {
                format!("{server}: works, {} tools ({took_ms} ms)", definitions.tools.len())
            }
            (Err(error), false) => terminal::plain(error),
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}
