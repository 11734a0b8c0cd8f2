//! `hotcell upstream add`: appends a table to hotcell.toml. What is there stays as it is, comments too.

use std::fs;
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use hotcell_upstream::ServerName;
use serde_json::json;

use super::args::AddArgs;
use crate::config::{self, Config};
use crate::whole_file;

pub(super) fn add(arguments: &AddArgs, config: &Config) -> Result<ExitCode> {
    let name = ServerName::parse(&arguments.name)?;
    let exists = config
        .tables
        .upstreams
        .iter()
        .any(|entry| entry.name == name);
    ensure!(
        !exists,
        "there is an MCP server `{name}` in the file already"
    );
    let path = config.file.clone().map_or_else(config::user_file, Ok)?;
    let before = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error).context("read the configuration file"),
    };
    let after = format!("{}{}", separated(&before), table(&name, arguments)?);
    config::check_text(&path, &after).context("the file would not be valid")?;
    whole_file::replace(&path, &after).with_context(|| format!("write {}", path.display()))?;
    let line = if arguments.json {
        json!({ "added": name.as_str(), "file": path }).to_string()
    } else {
        format!(
            "added {name} to {}; a running server takes it by `hotcell reload`",
            path.display()
        )
    };
    super::print(&line)?;
    Ok(ExitCode::SUCCESS)
}

fn separated(text: &str) -> String {
    match text.trim_end() {
        "" => String::new(),
        text => format!("{text}\n\n"),
    }
}

fn table(name: &ServerName, arguments: &AddArgs) -> Result<String> {
    let quoted = |text: &str| config::quoted(text);
    let mut lines = vec![format!("[upstream.{}]", quoted(name.as_str()))];
    if let Some((command, rest)) = arguments.command.split_first() {
        lines.push(format!("command = {}", quoted(command)));
        if !rest.is_empty() {
            let rest: Vec<_> = rest.iter().map(|argument| quoted(argument)).collect();
            lines.push(format!("args = [{}]", rest.join(", ")));
        }
    }
    lines.extend(
        arguments
            .url
            .as_ref()
            .map(|url| format!("url = {}", quoted(url))),
    );
    lines.extend(
        arguments
            .bearer
            .as_ref()
            .map(|token| format!("bearer_token = {}", quoted(token))),
    );
    let mut environment = Vec::new();
    for variable in &arguments.environment {
        let Some((name, value)) = variable.split_once('=') else {
            bail!("--env takes NAME=VALUE");
        };
        environment.push(format!("{} = {}", quoted(name), quoted(value)));
    }
    if !environment.is_empty() {
        lines.push(format!("env = {{ {} }}", environment.join(", ")));
    }
    lines.push(String::new());
    Ok(lines.join("\n"))
}
