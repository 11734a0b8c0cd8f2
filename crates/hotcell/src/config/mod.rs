//! The configuration: flags, `HOTCELL_*` variables, `hotcell.toml`, old names, defaults.
//!
//! No setting is defined here. [`catalogue`] derives every setting from the command line of
//! `hotcell serve`; [`table`] lists the sections that are not flags. A file is accepted or rejected
//! as a whole, so a broken one changes nothing.

mod aliases;
mod assigned;
mod catalogue;
mod difference;
mod document;
mod egress;
mod file;
mod init;
mod kind;
mod load;
mod old_names;
mod problem;
mod quotas;
mod reference;
mod rules;
mod schema;
mod secrets;
mod show;
mod table;
mod toml_text;
mod upstreams;
mod variables;

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::CommandFactory;

pub(crate) use self::catalogue::Catalogue;
pub(crate) use self::difference::Difference;
use self::document::Document;
pub(crate) use self::load::{Config, LoadError, Loaded, load};
pub(crate) use self::table::Tables;
pub(crate) use self::toml_text::quoted;
use crate::cli::{CheckArgs, Cli, ConfigArgs, ConfigCommand};

/// Runs `hotcell config`.
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

/// The user's own file, which need not exist.
pub(crate) fn user_file() -> Result<std::path::PathBuf> {
    let place = file::user_place();
    place.context("neither XDG_CONFIG_HOME nor HOME is set; name the file")
}

/// Whether a server finds this file whatever its working directory is.
pub(crate) fn is_found_everywhere(path: &std::path::Path) -> bool {
    path.is_absolute() && file::usual_places().iter().any(|place| place == path)
}

/// Says what is wrong with a text that is to become a configuration file.
pub(crate) fn check_text(path: &std::path::Path, text: &str) -> Result<()> {
    let catalogue = Catalogue::of(&Cli::command());
    Document::read(path, text, &catalogue)?;
    Ok(())
}

/// Checks a file as a server would.
fn check(arguments: &CheckArgs, catalogue: &Catalogue) -> Result<String> {
    let file = file::find(Some(&arguments.file))?.context("there is no file")?;
    let document = Document::read(&file.path, &file.text, catalogue)?;
    let (path, count) = (file.path.display(), document.values.len());
    Ok(format!("{path} is valid; it sets {count} settings\n"))
}
