//! `hotcell completions SHELL`: a short script for the shell, which asks `hotcell complete` for
//! what may come next. So completions never disagree with the program, and cost a few kilobytes.

mod candidates;

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, CommandFactory, ValueEnum};

use crate::cli::Cli;

pub(crate) const EXAMPLES: &str = "\
Examples:
  source <(hotcell completions bash)                 for this shell; add it to ~/.bashrc to keep it
  source <(hotcell completions zsh)                  likewise, in ~/.zshrc after compinit
  hotcell completions fish > ~/.config/fish/completions/hotcell.fish";

/// The arguments of `hotcell completions`.
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// The arguments of `hotcell complete`.
#[derive(Debug, Args)]
pub(crate) struct CompleteArgs {
    /// The words after `hotcell`, the last one unfinished
    #[arg(last = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

/// Prints the script of a shell.
pub(crate) fn script(arguments: &CompletionsArgs) -> Result<ExitCode> {
    print(match arguments.shell {
        Shell::Bash => include_str!("hotcell.bash"),
        Shell::Zsh => include_str!("hotcell.zsh"),
        Shell::Fish => include_str!("hotcell.fish"),
    })
}

/// Prints what may come next: on each line a word, a tab and its help; or `:files` for the shell to
/// complete the name of a file.
pub(crate) fn complete(arguments: &CompleteArgs) -> Result<ExitCode> {
    let mut root = Cli::command();
    root.build();
    print(&candidates::lines(&root, &arguments.words))
}

fn print(text: &str) -> Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).context("write to stdout")?;
    Ok(ExitCode::SUCCESS)
}
