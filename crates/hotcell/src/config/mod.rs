//! One configuration: flags, `HOTCELL_*` variables, `hotcell.toml`, old names, defaults.
//!
//! Nothing is defined here. [`catalogue`] derives every setting from the command line of
//! `hotcell serve`; [`table`] lists the sections that are no flags. A broken file changes
//! nothing: it is read as a whole or refused as a whole.

mod aliases;
mod catalogue;
mod difference;
mod document;
mod file;
mod init;
mod kind;
mod load;
mod old_names;
mod problem;
mod quotas;
mod reference;
mod schema;
mod show;
mod table;
mod toml_text;

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::CommandFactory;

pub(crate) use self::catalogue::Catalogue;
pub(crate) use self::difference::Difference;
use self::document::Document;
pub(crate) use self::load::{Config, LoadError, Loaded, load};
pub(crate) use self::table::Tables;
use crate::cli::{CheckArgs, Cli, ConfigArgs, ConfigCommand};

/// `hotcell config`.
pub(crate) fn run(arguments: &ConfigArgs, config: &Config) -> Result<ExitCode> {
    let catalogue = Catalogue::of(&Cli::command());
    let text = match &arguments.command {
        None => show::text(config, &catalogue, arguments.json)?,
        Some(ConfigCommand::Check(arguments)) => check(arguments, &catalogue)?,
        Some(ConfigCommand::Init(arguments)) => init::write(arguments, &catalogue)?,
        Some(ConfigCommand::Schema) => schema::text(&catalogue),
        Some(ConfigCommand::Reference) => reference::text(&catalogue),
    };
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).context("write to stdout")?;
    Ok(ExitCode::SUCCESS)
}

/// Reads a file as a server would.
fn check(arguments: &CheckArgs, catalogue: &Catalogue) -> Result<String> {
    let file = file::find(Some(&arguments.file))?.context("there is no file")?;
    let document = Document::read(&file.path, &file.text, catalogue)?;
    let (path, count) = (file.path.display(), document.values.len());
    Ok(format!("{path} is valid; it sets {count} settings\n"))
}
