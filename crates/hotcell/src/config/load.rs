//! From the words of a command line to the command, with the settings of every source.
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

use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory, FromArgMatches};

use super::catalogue::{Catalogue, Setting, is_setting};
use super::document::Document;
use super::file;
use super::old_names;
use super::table::Tables;
use crate::cli::{Cli, Command, LogArgs};
use crate::exit;

/// What was asked for, and the settings that apply.
pub(crate) struct Loaded {
    pub(crate) command: Command,
    pub(crate) log: LogArgs,
    pub(crate) config: Config,
}

/// The settings that are no flags, and where all of them came from.
#[derive(Clone)]
pub(crate) struct Config {
    /// The file that was read, if there is one.
    pub(crate) file: Option<PathBuf>,
    pub(crate) tables: Tables,
    /// Every setting of a server; empty for other commands.
    pub(crate) effective: Vec<Effective>,
    /// What the operator should know of old names.
    pub(crate) notices: Vec<String>,
    /// To load it again.
    words: Vec<OsString>,
}

/// A setting as it applies. It may be a secret, so it cannot be printed.
#[derive(Clone)]
pub(crate) struct Effective {
    pub(crate) section: String,
    pub(crate) key: String,
    pub(crate) flag: String,
    /// None if nobody says anything and the default depends on the host.
    pub(crate) values: Vec<String>,
    pub(crate) source: Source,
}

/// Where a value came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    Flag,
    Variable,
    File,
    OldName(&'static str),
    Default,
}

/// Why there is nothing to do.
#[derive(Debug)]
pub(crate) enum LoadError {
    /// The command line is wrong, or asks for help.
    Usage(clap::Error),
    /// The configuration is wrong.
    Config { error: anyhow::Error, exit_code: u8 },
}

/// Values of flags below the environment, and whence they are.
#[derive(Default)]
struct Defaults {
    values: BTreeMap<String, (Vec<String>, Source)>,
}

/// Reads a command line and whatever it takes its settings from.
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
    // Most commands need none: nothing is set.
    let catalogue = LazyCell::new(|| Catalogue::of(&root));
    let mut config = Config {
        file: None,
        tables: Tables::default(),
        effective: Vec::new(),
        notices: Vec::new(),
        words,
    };
    let defaults = if is_about_files(&matches) {
        Defaults::default()
    } else {
        match config.read_sources(&matches, || &catalogue) {
            Ok(defaults) => defaults,
            // The server reads the file itself, and says what is wrong with it.
            Err(_) if matches.subcommand_name() == Some("reload") => Defaults::default(),
            Err(error) => return Err(LoadError::Config { error, exit_code }),
        }
    };
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
    matches.map_err(LoadError::Usage)
}

/// Whether the command is one that must work while the usual file is broken.
fn is_about_files(matches: &ArgMatches) -> bool {
    match matches.subcommand() {
        Some(("config", matches)) => matches.subcommand_name().is_some(),
        _ => false,
    }
}

impl Config {
    /// Says which file applies and which old names are in use.
    pub(crate) fn log(&self) {
        if let Some(path) = &self.file {
            tracing::info!(file = %path.display(), "read the configuration");
        }
        for notice in &self.notices {
            tracing::warn!("{notice}");
        }
    }

    /// The same command line with what the file says now.
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
    /// A command line on which these are the defaults, of every command that knows the setting.
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
