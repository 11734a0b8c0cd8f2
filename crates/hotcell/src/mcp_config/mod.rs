//! `hotcell mcp-config`: the entry with which a client finds Hotcell, printed or written.
//!
//! [`clients`] is a table with one row per client. [`edit`] changes one entry of a file and nothing
//! else; [`install`] replaces the file as a whole and keeps a backup beside it.

mod args;
mod clients;
mod edit;
mod install;
mod jsonc;
mod node;
mod server;
#[cfg(test)]
mod tests;
mod toml_table;
mod yaml;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Parser;
use serde_json::json;

pub(crate) use self::args::{EXAMPLES, McpConfigArgs};
use self::clients::{Base, Client};
use self::install::Outcome;
use self::server::{Server, Via};
use crate::cli::Cli;
use crate::config;

/// What `--client` takes, without aliases.
pub(crate) fn client_names() -> Vec<&'static str> {
    clients::CLIENTS.iter().map(|client| client.name).collect()
}

/// Whether `--client` takes this name.
pub(crate) fn is_client(name: &str) -> bool {
    clients::by_name(name).is_some()
}

/// Prints, writes or undoes the entry.
pub(crate) fn run(arguments: &McpConfigArgs, config: Option<&Path>) -> Result<ExitCode> {
    let client = clients::by_name(&arguments.client).context("there is no such client")?;
    if arguments.undo {
        let file = file(client, arguments)?;
        let outcome = install::undo(client, &file, &arguments.name)?;
        return report(client, arguments, &file, outcome);
    }
    let server = server(arguments, config)?;
    let entry = (client.entry)(&server, &arguments.name);
    if !arguments.write {
        let text = edit::with_entry(client, "", &arguments.name, &entry)?;
        return print(client, arguments, &text);
    }
    if arguments.via == Some(Via::Wsl) && arguments.file.is_none() {
        bail!(
            "{} on Windows keeps its servers in {}: name that file as WSL sees it (/mnt/c/Users/…) with --file",
            client.title,
            client.places.windows
        );
    }
    let file = file(client, arguments)?;
    let outcome = install::write(client, &file, &arguments.name, &entry)?;
    report(client, arguments, &file, outcome)
}

fn server(arguments: &McpConfigArgs, config: Option<&Path>) -> Result<Server> {
    if let Some(url) = &arguments.remote {
        let token = arguments.token.clone();
        return Ok(Server::Remote {
            url: url.clone(),
            token,
        });
    }
    let mut flags = arguments.serve.clone();
    // A client starts us in a directory that we do not know.
    if let Some(config) = config.filter(|config| !config::is_found_everywhere(config)) {
        let config = std::path::absolute(config).context("find the configuration file")?;
        let config = config
            .to_str()
            .context("the path of the configuration file is not UTF-8")?;
        flags.extend(["--config".to_owned(), config.to_owned()]);
    }
    // A client would only say that the server did not start.
    let words = ["hotcell", "serve", "--transport", "stdio"].map(str::to_owned);
    Cli::try_parse_from(words.into_iter().chain(flags.clone()))?;
    let program = std::env::current_exe().context("find this program")?;
    Server::program(&program, arguments.via.as_ref(), &flags)
}

/// The file to write to.
fn file(client: &Client, arguments: &McpConfigArgs) -> Result<PathBuf> {
    if let Some(file) = &arguments.file {
        return Ok(file.clone());
    }
    if arguments.project {
        let title = client.title;
        let path = client
            .places
            .project
            .with_context(|| format!("{title} has no file for a project; leave out --project"))?;
        return Ok(std::env::current_dir()
            .context("find this directory")?
            .join(path));
    }
    let absolute = |name| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let below_home = |name: &str| absolute("HOME").map(|home| home.join(name));
    let base = match client.places.base {
        Base::Home => absolute("HOME"),
        Base::Config => absolute("XDG_CONFIG_HOME").or_else(|| below_home(".config")),
        Base::Codex => absolute("CODEX_HOME").or_else(|| below_home(".codex")),
    };
    Ok(base
        .context("HOME is not set; use --file")?
        .join(client.places.path))
}

/// The entry goes to stdout and what to do with it to stderr, so that the entry can be piped.
fn print(client: &Client, arguments: &McpConfigArgs, text: &str) -> Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    if arguments.json {
        let file = file(client, arguments).ok();
        let places = &client.places;
        let answer = json!({
            "client": client.name, "file": file, "mac_file": places.mac, "windows_file": places.windows,
            "text": text, "next": client.next,
        });
        writeln!(out, "{answer}").context("write to stdout")?;
        return Ok(ExitCode::SUCCESS);
    }
    out.write_all(text.as_bytes()).context("write to stdout")?;
    let place = match arguments.via {
        Some(Via::Wsl) => format!("{} on Windows", client.places.windows),
        Some(Via::Ssh(_)) => format!(
            "{} on macOS, {} on Windows",
            client.places.mac, client.places.windows
        ),
        None => file(client, arguments)?.display().to_string(),
    };
    eprintln!(
        "\n{} keeps this in {place}; --write adds it there.\nThen: {}.",
        client.title, client.next
    );
    Ok(ExitCode::SUCCESS)
}

fn report(
    client: &Client,
    arguments: &McpConfigArgs,
    file: &Path,
    outcome: Outcome,
) -> Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    let name = &arguments.name;
    let shown = file.display();
    let line = if arguments.json {
        json!({ "client": client.name, "file": file, "name": name, "outcome": outcome.word() })
            .to_string()
    } else {
        let next = client.next;
        match outcome {
            Outcome::Unchanged => format!("{shown} has this entry already; nothing changed"),
            Outcome::Created => format!("wrote {shown}\nThen: {next}. `--undo` removes it."),
            Outcome::Written => format!(
                "wrote `{name}` to {shown}; the file as it was is {}\nThen: {next}. `--undo` puts it back.",
                install::backup_of(file).display()
            ),
            Outcome::Absent => format!("{shown} has no entry `{name}`; nothing changed"),
            Outcome::Restored => format!("put {shown} back as it was"),
            Outcome::Removed => format!("removed {shown}, which held nothing else"),
        }
    };
    writeln!(out, "{line}").context("write to stdout")?;
    Ok(ExitCode::SUCCESS)
}
