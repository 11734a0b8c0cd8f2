//! `hotcell upstream`: the user's other MCP servers, from the shell; and how a server finds them.

mod add;
mod args;
mod show;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use hotcell_upstream::sources::{self, Places};
use hotcell_upstream::{NoObserver, ServerName, Settings, ToolCall, Upstreams, Visible};
use serde_json::json;
use serde_json::value::RawValue;

pub(crate) use self::args::UpstreamArgs;
use self::args::{
    ApproveArgs, CallArgs, ListArgs, PlaceArgs, TestArgs, ToolsArgs, UpstreamCommand,
};
use crate::cli::DiscoveryArgs;
use crate::config::{Config, Tables};
use crate::state;

/// Where the catalogue is, below the state directory.
const DIRECTORY: &str = "upstream";

/// All servers: those of the file first, then those of the variable, then those that are discovered.
pub(crate) fn settings(arguments: &DiscoveryArgs, tables: &Tables) -> Settings {
    let places = Places::of_this_process(arguments.codemode_allow_self);
    let mut all = Settings {
        servers: tables.upstreams.clone(),
        findings: Vec::new(),
    };
    let config = arguments
        .upstream_config
        .as_ref()
        .filter(|config| !config.is_empty());
    let more = config.map(|config| sources::configured(config, &places));
    let found = arguments.discover.then(|| sources::discovered(&places));
    for settings in [more, found].into_iter().flatten() {
        all.servers.extend(settings.servers);
        all.findings.extend(settings.findings);
    }
    for finding in &all.findings {
        let file = finding
            .source
            .file
            .as_ref()
            .map(|file| file.display().to_string());
        let entry = finding.entry.as_deref();
        let (source, message) = (finding.source.program, &finding.message);
        tracing::info!(
            source,
            file,
            entry,
            message,
            "found an MCP server that is not used, or a file that is none"
        );
    }
    all
}

/// Opens them with their catalogue. Starts none.
pub(crate) fn open(settings: Settings, directory: &Path) -> Result<Upstreams> {
    let upstreams = Upstreams::open(settings, &directory.join(DIRECTORY), Arc::new(NoObserver));
    upstreams.context("open the catalogue of MCP servers")
}

/// Runs the subcommand.
pub(crate) fn manage(arguments: &UpstreamArgs, config: &Config) -> Result<ExitCode> {
    if let UpstreamCommand::Add(arguments) = &arguments.command {
        return add::add(arguments, config);
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.context("start a runtime")?.block_on(async {
        match &arguments.command {
            UpstreamCommand::List(arguments) => list(arguments, config),
            UpstreamCommand::Tools(arguments) => tools(arguments, config).await,
            UpstreamCommand::Call(arguments) => call(arguments, config).await,
            UpstreamCommand::Approve(arguments) => approve(arguments, config).await,
            UpstreamCommand::Test(arguments) => test(arguments, config).await,
            UpstreamCommand::Add(_) => Ok(ExitCode::SUCCESS),
        }
    })
}

/// The servers of the user of this shell.
fn opened(place: &PlaceArgs, config: &Config) -> Result<(Upstreams, Visible)> {
    let directory = state::directory(place.state.state_dir.clone())?;
    state::prepare(&directory)?;
    let upstreams = open(settings(&place.discovery, &config.tables), &directory)?;
    let visible = upstreams.visible_to("local");
    Ok((upstreams, visible))
}

fn named(visible: &Visible, server: &str) -> Result<ServerName> {
    let found = visible.find(server);
    found.ok_or_else(|| anyhow!("there is no MCP server `{server}`; see `hotcell upstream list`"))
}

fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}").context("write to stdout")
}

fn list(arguments: &ListArgs, config: &Config) -> Result<ExitCode> {
    let (upstreams, visible) = opened(&arguments.place, config)?;
    print(&show::servers(
        &visible.servers(),
        &upstreams.findings(),
        arguments.place.json,
    ))?;
    Ok(ExitCode::SUCCESS)
}

async fn tools(arguments: &ToolsArgs, config: &Config) -> Result<ExitCode> {
    let (upstreams, visible) = opened(&arguments.place, config)?;
    let server = named(&visible, &arguments.server)?;
    let definitions = if arguments.refresh {
        visible.refresh(&server).await
    } else {
        visible.definitions(&server).await
    };
    upstreams.stop().await;
    let definitions = definitions?;
    let pins = |tool: &str| visible.pin(&server, tool);
    print(&show::tools(&definitions, pins, arguments.place.json))?;
    Ok(ExitCode::SUCCESS)
}

async fn call(arguments: &CallArgs, config: &Config) -> Result<ExitCode> {
    let (upstreams, visible) = opened(&arguments.place, config)?;
    let server = named(&visible, &arguments.server)?;
    let parsed = RawValue::from_string(arguments.arguments.clone()).ok();
    let parsed = parsed.filter(|value| value.get().starts_with('{'));
    let Some(object) = parsed else {
        bail!("the arguments must be a JSON object");
    };
    let call = ToolCall {
        server,
        tool: arguments.tool.clone(),
        arguments: object,
        timeout: arguments.timeout_s,
        progress: None,
    };
    let answer = visible.call_tool(call).await;
    upstreams.stop().await;
    let answer = answer?;
    print(&show::answer(&answer, arguments.place.json)?)?;
    Ok(ExitCode::from(u8::from(answer.is_error)))
}

async fn approve(arguments: &ApproveArgs, config: &Config) -> Result<ExitCode> {
    let (upstreams, visible) = opened(&arguments.place, config)?;
    let server = named(&visible, &arguments.server)?;
    let listed = visible.refresh(&server).await;
    upstreams.stop().await;
    listed?;
    let count = visible.approve(&server, arguments.tool.as_deref())?;
    if arguments.place.json {
        print(&json!({ "server": server.as_str(), "approved": count }).to_string())?;
    } else {
        print(&format!(
            "approved {count} new or changed tools of {server}"
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn test(arguments: &TestArgs, config: &Config) -> Result<ExitCode> {
    let (upstreams, visible) = opened(&arguments.place, config)?;
    let servers = match arguments.servers.as_slice() {
        [] => visible
            .servers()
            .into_iter()
            .map(|server| server.name)
            .collect(),
        names => names
            .iter()
            .map(|name| named(&visible, name))
            .collect::<Result<Vec<_>>>()?,
    };
    let mut tested = Vec::new();
    for server in &servers {
        let begun = std::time::Instant::now();
        let outcome = visible
            .refresh(server)
            .await
            .map_err(|error| error.to_string());
        tested.push(show::Tested {
            server: server.clone(),
            outcome,
            took: begun.elapsed(),
        });
    }
    upstreams.stop().await;
    print(&show::tested(&tested, arguments.place.json))?;
    let is_bad = tested.iter().any(|one| one.outcome.is_err());
    Ok(ExitCode::from(u8::from(is_bad)))
}
