//! `hotcell config`, and the flags that every command has.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use crate::telemetry::LogFilter;

/// Flags of every command.
#[derive(Debug, Args)]
#[command(next_help_heading = "Configuration")]
pub(crate) struct GlobalArgs {
    /// Configuration file [default: the first of ./hotcell.toml, ~/.config/hotcell/hotcell.toml, /etc/hotcell/hotcell.toml]
    #[arg(long, global = true, value_name = "FILE", env = "HOTCELL_CONFIG")]
    pub(crate) config: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) log: LogArgs,
}

/// Settings of the log.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Logging")]
pub(crate) struct LogArgs {
    /// How log lines look
    #[arg(
        long,
        global = true,
        value_enum,
        default_value = "text",
        env = "HOTCELL_LOG_FORMAT"
    )]
    pub(crate) log_format: LogFormat,

    /// What to log: error, warn, info, debug, trace or off; also by part, as in `warn,hotcell_service=debug` [default: info for serve, else warn]
    #[arg(
        long,
        global = true,
        value_name = "LEVEL",
        value_parser = LogFilter::parse,
        env = "HOTCELL_LOG"
    )]
    pub(crate) log_level: Option<LogFilter>,
}

/// The formats of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people
    Text,
    /// One JSON object per line
    Json,
}

/// The arguments of `hotcell config`; without a subcommand, it shows the configuration.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    pub(crate) command: Option<ConfigCommand>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Write a file with every setting as a comment
    Init(InitArgs),
    /// Check a file: exit 1 and say what is wrong, and where
    Check(CheckArgs),
    /// Print the JSON Schema of the file, for editors
    Schema,
    /// Print the reference of all settings, as Markdown
    #[command(hide = true)]
    Reference,
}

#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// Where to write it; `-` is standard output
    #[arg(default_value = "hotcell.toml")]
    pub(crate) path: PathBuf,

    /// Replace a file that exists
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// The file
    pub(crate) file: PathBuf,
}
