//! The command line. Its doc comments become the help texts and the reference.

mod audit;
mod auth;
mod client;
mod code;
mod codemode;
mod config;
mod container;
mod counts;
mod discovery;
mod egress;
mod engine;
mod examples;
mod limits;
mod memory;
mod otel;
mod permissions;
mod quotas;
mod repl;
mod run;
mod secret;
mod serve;
mod server;
mod state;
mod storage;
mod warm;

use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use hotcell_domain::Language;

pub(crate) use audit::{
    AuditArgs, AuditCommand, AuditExportArgs, AuditLogArgs, AuditPlaceArgs, AuditQueryArgs,
    AuditSpanArgs, AuditTailArgs, AuditVerifyArgs, OnFailureChoice,
};
pub(crate) use auth::{AuthArgs, AuthMode};
pub(crate) use client::{ExecArgs, ForwardArgs, KillArgs, LogsArgs, PsArgs, ReloadArgs, TopArgs};
pub(crate) use code::CodeArgs;
pub(crate) use codemode::CodemodeArgs;
pub(crate) use config::{
    CheckArgs, ConfigArgs, ConfigCommand, GlobalArgs, InitArgs, LogArgs, LogFormat,
};
pub(crate) use container::ContainerArgs;
pub(crate) use counts::CountArgs;
pub(crate) use discovery::DiscoveryArgs;
pub(crate) use egress::{
    EgressAllowArgs, EgressArgs, EgressCheckArgs, EgressCommand, EgressDenyArgs, EgressLogArgs,
    EgressPendingArgs,
};
pub(crate) use engine::{EngineArgs, EngineChoice, SelectionArgs};
pub(crate) use limits::{CeilingArgs, Ceilings, LimitArgs};
pub(crate) use memory::{MemoryArgs, MemoryCommand, MemoryLsArgs, MemoryRmArgs};
pub(crate) use otel::OtelArgs;
pub(crate) use permissions::{DefaultImageArgs, PermissionArgs};
pub(crate) use quotas::QuotaArgs;
pub(crate) use repl::ReplArgs;
pub(crate) use run::RunArgs;
pub(crate) use secret::{SecretArgs, SecretCommand, SecretTestArgs};
pub(crate) use serve::ServeArgs;
pub(crate) use server::{ServerArgs, Transport};
pub(crate) use state::{
    StateCheckArgs, StateCommand, StateCommandArgs, StateExportArgs, StateImportArgs,
};
pub(crate) use storage::{StateArgs, StorageArgs};
pub(crate) use warm::WarmArgs;
#[cfg(test)]
pub(crate) use warm::WarmImage;

use crate::completions::{CompleteArgs, CompletionsArgs};
use crate::image::{ImageArgs, PullArgs};
use crate::mcp_config::McpConfigArgs;
use crate::token::TokenArgs;
use crate::upstream::UpstreamArgs;

/// Sealed Linux containers for AI agents, over MCP.
///
/// Without a command it serves, as `hotcell serve` does.
#[derive(Debug, Parser)]
#[command(name = "hotcell", version, propagate_version = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,

    #[command(flatten)]
    pub(crate) global: GlobalArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve MCP: containers for agents, over HTTP or stdio
    #[command(after_help = serve::EXAMPLES)]
    Serve(Box<ServeArgs>),
    /// Run a snippet, a script or a command in a fresh container of the embedded engine
    ///
    /// Its output is streamed and its exit code becomes ours: 128+N after signal N,
    /// 124 after the timeout, 125 if Hotcell itself failed, 126 or 127 if the command
    /// could not be started. Ctrl-C ends everything it started.
    #[command(after_help = run::RUN_EXAMPLES, override_usage = run::RUN_USAGE)]
    Run(RunArgs),
    /// Speak with an interpreter in a container, line by line
    ///
    /// Python keeps its variables, as in a notebook. It runs in a session of the running server,
    /// or in a container of its own if there is none. Pictures are saved as files.
    #[command(after_help = repl::REPL_HELP)]
    Repl(ReplArgs),
    /// List the containers of the running server
    #[command(after_help = examples::PS)]
    Ps(PsArgs),
    /// Show CPU, memory and output of all containers and execs, live
    ///
    /// `q` or Ctrl-C ends it. Without a terminal it prints one snapshot.
    #[command(after_help = examples::TOP)]
    Top(TopArgs),
    /// Run a command in a container of the running server
    ///
    /// Its output is streamed and its exit code becomes ours, as `hotcell run` has it.
    /// Ctrl-C ends everything it started.
    #[command(after_help = examples::EXEC)]
    Exec(ExecArgs),
    /// Show what an exec wrote, or the newest exec of a container
    #[command(after_help = examples::LOGS)]
    Logs(LogsArgs),
    /// End containers of the running server
    #[command(after_help = examples::KILL)]
    Kill(KillArgs),
    /// Reach a server inside a container from this machine
    ///
    /// Listens on a port of 127.0.0.1 and passes each connection to the container, until
    /// Ctrl-C. The server must allow it (`--allow-ports`).
    #[command(after_help = examples::FORWARD)]
    Forward(ForwardArgs),
    /// Make, list and revoke the tokens that HTTP clients authenticate with
    #[command(after_help = examples::TOKEN)]
    Token(TokenArgs),
    /// Have the running server read its configuration file again
    ///
    /// If the file is wrong, nothing changes, and the exit code is 1. Settings that need a
    /// restart are named.
    #[command(after_help = examples::RELOAD)]
    Reload(ReloadArgs),
    /// Show what this host can isolate and limit, and how to fix what it cannot
    #[command(after_help = examples::DOCTOR)]
    Doctor(DoctorArgs),
    /// Read and check the audit log: who did what, when, and how it ended
    #[command(after_help = examples::AUDIT)]
    Audit(AuditArgs),
    /// Check what egress profiles allow, and show what containers reached
    #[command(after_help = examples::EGRESS)]
    Egress(EgressArgs),
    /// Test the secrets that egress rules set in requests
    #[command(after_help = examples::SECRET)]
    Secret(SecretArgs),
    /// Check, copy and restore the state directory
    #[command(after_help = examples::STATE)]
    State(StateCommandArgs),
    /// Fetch an image for the embedded engine, from its registry or from a file
    #[command(after_help = examples::PULL)]
    Pull(PullArgs),
    /// List and remove images of the embedded engine
    #[command(after_help = examples::IMAGE)]
    Image(ImageArgs),
    /// List, test, call and approve the MCP servers that scripts may call
    #[command(after_help = examples::UPSTREAM)]
    Upstream(Box<UpstreamArgs>),
    /// List and remove what scripts of `run_python` keep: memories and saved tools
    ///
    /// Each principal has its own; these are yours.
    #[command(after_help = examples::MEMORY)]
    Memory(MemoryArgs),
    /// Show every setting of a server and where its value came from; write or check a file
    #[command(after_help = examples::CONFIG)]
    Config(ConfigArgs),
    /// Print or write the entry with which an MCP client finds Hotcell
    #[command(after_help = crate::mcp_config::EXAMPLES)]
    McpConfig(McpConfigArgs),
    /// Ask three questions, write a configuration, try it and connect a client
    #[command(after_help = crate::init::EXAMPLES)]
    Init(crate::init::InitArgs),
    /// Print a shell's script for completing commands and flags
    #[command(after_help = crate::completions::EXAMPLES)]
    Completions(CompletionsArgs),
    /// Print what may come next on a command line
    #[command(hide = true)]
    Complete(CompleteArgs),
}

impl Cli {
    /// The requested command; `serve` if there is none.
    pub(crate) fn into_command(self) -> Command {
        let serve = || Self::parse_from(["hotcell", "serve"]).command;
        self.command.or_else(serve).expect("`serve` is a command")
    }
}

/// The arguments of `hotcell doctor`.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Print the findings as JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) engines: EngineArgs,

    #[command(flatten)]
    pub(crate) state: StateArgs,
}

/// The longest timeout that the agent accepts: a year.
const SECONDS_MAX: f64 = 31_536_000.0;

fn parse_language(name: &str) -> Result<&'static Language, String> {
    Language::by_name(name).ok_or_else(|| {
        let names: Vec<_> = hotcell_domain::LANGUAGES
            .iter()
            .map(|one| one.name)
            .collect();
        format!("known are {}", names.join(", "))
    })
}

pub(crate) fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text
        .parse()
        .map_err(|_| "not a number of seconds".to_owned())?;
    if seconds > 0.0 && seconds <= SECONDS_MAX {
        return Ok(Duration::from_secs_f64(seconds));
    }
    Err("must be more than 0 and at most a year".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn something_to_run_is_required() {
        assert!(Cli::try_parse_from(["hotcell", "run"]).is_err());
        assert!(Cli::try_parse_from(["hotcell", "run", "--", "true"]).is_ok());
        assert!(Cli::try_parse_from(["hotcell", "run", "-c", "1", "x.py"]).is_err());
    }

    #[test]
    fn senseless_limits_are_refused() {
        for flag in [
            ["--memory", "1"],
            ["--cpus", "0"],
            ["--pids", "1"],
            ["--timeout", "-1"],
        ] {
            let line = ["hotcell", "run", "-c", "1", flag[0], flag[1]];
            assert!(Cli::try_parse_from(line).is_err(), "{flag:?}");
        }
    }
}
