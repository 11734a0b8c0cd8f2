//! Loads the command and its settings from the command line, the environment and the file.
//!
//! The command line is parsed twice: first to learn which file to read, then with the values of
//! that file as defaults. So clap decides which source wins, and parses every value.
//!
//! ```text
//! flag > HOTCELL_* > hotcell.toml > old names > default
//! ```

use std::cell::LazyCell;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue};
use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory, FromArgMatches};

use super::catalogue::{Catalogue, Setting, is_secret_name, is_setting};
use super::document::Document;
use super::file;
use super::old_names;
use super::table::Tables;
use super::toml_text::MASK;
use super::variables;
use crate::cli::{Cli, Command, LogArgs};
use crate::exit;

/// The command, and the settings that apply.
pub(crate) struct Loaded {
    pub(crate) command: Command,
    pub(crate) log: LogArgs,
    pub(crate) config: Config,
}

/// The settings that are not flags, and the source of each setting.
#[derive(Clone)]
pub(crate) struct Config {
    /// The file that was read, if there is one.
    pub(crate) file: Option<PathBuf>,
    pub(crate) tables: Tables,
    /// Every setting of a server; empty for other commands.
    pub(crate) effective: Vec<Effective>,
    /// Messages for the operator about old and unknown names.
    pub(crate) notices: Vec<String>,
    /// The arguments, for loading again.
    words: Vec<OsString>,
}

/// A setting and its value. It may be a secret, so it does not implement `Debug`.
#[derive(Clone)]
pub(crate) struct Effective {
    pub(crate) section: String,
    pub(crate) key: String,
    pub(crate) flag: String,
    /// Empty if the setting is not set and its default depends on the host.
    pub(crate) values: Vec<String>,
    pub(crate) source: Source,
}

/// The source of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    Flag,
    Variable,
    File,
    OldName(&'static str),
    Default,
}

/// Why there is no command to run.
#[derive(Debug)]
pub(crate) enum LoadError {
    /// The command line is wrong, or asks for help.
    Usage(clap::Error),
    /// The configuration is wrong.
    Config { error: anyhow::Error, exit_code: u8 },
}

/// Values that rank below the environment, and their source.
#[derive(Default)]
struct Defaults {
    values: BTreeMap<String, (Vec<String>, Source)>,
}

/// Loads the command line and the sources of its settings.
pub(crate) fn load(words: &[OsString]) -> Result<Loaded, LoadError> {
    let mut words = words.to_vec();
    let root = Cli::command();
    let mut matches = parse(root.clone(), &words)?;
    if matches.subcommand_name().is_none() {
        words.push("serve".into());
        matches = parse(root.clone(), &words)?;
    }
    let exit_code = match matches.subcommand_name() {
        Some("run" | "exec") => exit::FAILED,
        _ => 1,
    };
    // Lazy, because most commands do not need it: nothing is set.
    let catalogue = LazyCell::new(|| Catalogue::of(&root));
    let mut config = Config {
        file: None,
        tables: Tables::default(),
        effective: Vec::new(),
        notices: Vec::new(),
        words,
    };
    let mut defaults = if is_about_files(&matches) {
        Defaults::default()
    } else {
        match config.read_sources(&matches, || &catalogue) {
            Ok(defaults) => defaults,
            // The server reads the file itself, and reports what is wrong with it.
            Err(_) if matches.subcommand_name() == Some("reload") => Defaults::default(),
            Err(error) => return Err(LoadError::Config { error, exit_code }),
        }
    };
    let is_server = matches.subcommand_name() == Some("serve");
    if is_server {
        config.notices.extend(variables::unknown(&root));
    } else {
        // How much the server logs is not how much a command says to whoever runs it.
        defaults.values.remove("log-level");
    }
    if !defaults.values.is_empty() {
        matches = parse(defaults.apply(root.clone()), &config.words)?;
    }
    if let Some(serve) = matches.subcommand_matches("serve") {
        let settings = catalogue.settings.iter();
        config.effective = settings.map(|one| defaults.effective(one, serve)).collect();
    }
    let cli = Cli::from_arg_matches(&matches).map_err(LoadError::Usage)?;
    Ok(Loaded {
        log: cli.global.log.clone(),
        command: cli.into_command(),
        config,
    })
}

fn parse(command: clap::Command, words: &[OsString]) -> Result<ArgMatches, LoadError> {
    let matches = command.try_get_matches_from(words);
    matches.map_err(|error| LoadError::Usage(without_secrets(error)))
}

/// Masks the value of a secret that was refused, because the message may go to a log.
fn without_secrets(mut error: clap::Error) -> clap::Error {
    let argument = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(argument)) => argument.as_str(),
        _ => return error,
    };
    let flag = argument.split([' ', '=']).next().unwrap_or_default();
    let catalogue = Catalogue::of(&Cli::command());
    let flag = flag.trim_start_matches('-');
    let setting = catalogue.by_flag(flag);
    // Other commands have secrets too, such as `mcp-config --token`.
    if is_secret_name(flag) || setting.is_some_and(|setting| setting.is_secret) {
        let masked = ContextValue::String(MASK.to_owned());
        error.insert(ContextKind::InvalidValue, masked);
    }
    error
}

/// Whether the command must work even if the usual file is broken.
fn is_about_files(matches: &ArgMatches) -> bool {
    match matches.subcommand() {
        Some(("config", matches)) => matches.subcommand_name().is_some(),
        Some(("init" | "complete" | "completions", _)) => true,
        _ => false,
    }
}

impl Config {
    /// Logs which file applies and which old or unknown names are in use.
    pub(crate) fn log(&self) {
        if let Some(path) = &self.file {
            tracing::info!(file = %path.display(), "read the configuration");
        }
        for notice in &self.notices {
            tracing::warn!("{notice}");
        }
    }

    /// Loads the same command line with the current content of the file.
    pub(crate) fn load_again(&self) -> Result<Loaded, LoadError> {
        let loaded = load(&self.words)?;
        match (&self.file, &loaded.config.file) {
            (Some(path), None) => Err(LoadError::Config {
                error: anyhow::anyhow!("the configuration file {} is gone", path.display()),
                exit_code: 1,
            }),
            _ => Ok(loaded),
        }
    }

    fn read_sources<'a>(
        &mut self,
        matches: &ArgMatches,
        catalogue: impl Fn() -> &'a Catalogue,
    ) -> anyhow::Result<Defaults> {
        let named: Option<&PathBuf> = matches.get_one("config");
        let mut defaults = Defaults::default();
        let environment = |name: &str| std::env::var(name).ok();
        let translated = old_names::translate(&catalogue, environment);
        for old in translated.map_err(anyhow::Error::msg)? {
            self.notices.push(old.notice);
            if let Some((flag, values)) = old.value {
                let source = Source::OldName(old.name);
                defaults.values.entry(flag).or_insert((values, source));
            }
        }
        if let Some(file) = file::find(named.map(PathBuf::as_path))? {
            let document = Document::read(&file.path, &file.text, catalogue())?;
            for (flag, values) in document.values {
                defaults.values.insert(flag, (values, Source::File));
            }
            self.tables = document.tables;
            self.file = Some(file.path);
        }
        Ok(defaults)
    }
}

impl Defaults {
    /// Sets these values as defaults of every command that has the setting.
    fn apply(&self, command: clap::Command) -> clap::Command {
        let command = command.mut_args(|arg| {
            let values = arg.get_long().and_then(|flag| self.values.get(flag));
            match values {
                Some((values, _)) if is_setting(&arg) => arg.default_values(values.clone()),
                _ => arg,
            }
        });
        command.mut_subcommands(|command| self.apply(command))
    }

    fn effective(&self, setting: &Setting, matches: &ArgMatches) -> Effective {
        let raw = matches.try_get_raw(&setting.id).ok().flatten();
        let values = raw.into_iter().flatten();
        let values = values.map(|value| value.to_string_lossy().into_owned());
        let source = match matches.value_source(&setting.id) {
            Some(ValueSource::CommandLine) => Source::Flag,
            Some(ValueSource::EnvVariable) => Source::Variable,
            _ => match self.values.get(&setting.flag) {
                Some((_, source)) => *source,
                None => Source::Default,
            },
        };
        Effective {
            section: setting.section.clone(),
            key: setting.key.clone(),
            flag: setting.flag.clone(),
            values: values.collect(),
            source,
        }
    }
}
