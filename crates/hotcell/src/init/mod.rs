//! `hotcell init`: three questions, a configuration file, one snippet to see that it works, and
//! what to do next.

mod args;
mod questions;

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;

pub(crate) use self::args::{EXAMPLES, InitArgs, Reach};
use self::questions::Questions;
use crate::cli::{Cli, Command as CliCommand};
use crate::{config, mcp_config, whole_file};

/// What the person decided.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Answers {
    reach: Reach,
    memory: String,
    /// `None`: no client is set up.
    client: Option<String>,
}

/// Memory of a container, if nobody says otherwise.
const USUAL_MEMORY: &str = "512m";

/// No client.
const NO_CLIENT: &str = "none";

/// Asks what the flags leave open, writes the file, tries it and connects the client.
pub(crate) fn run(arguments: &InitArgs) -> Result<ExitCode> {
    let path = match &arguments.path {
        Some(path) => std::path::absolute(path).context("find the file")?,
        None => config::user_file()?,
    };
    let shown = path.display();
    ensure!(
        arguments.force || !path.exists(),
        "{shown} exists; edit it (`hotcell config` shows what applies), or use --force to replace it"
    );
    let answers = answers(arguments, &path)?;
    whole_file::replace(&path, &text(&answers)).with_context(|| format!("write {shown}"))?;
    say(&format!("wrote {shown}"))?;
    if arguments.no_try {
        say("not tried (--no-try)")?;
    } else {
        let took = try_out(&path)?;
        say(&format!(
            "ran a command in a sealed container: it works ({} ms)",
            took.as_millis()
        ))?;
    }
    if let Some(client) = &answers.client {
        let words = ["hotcell", "mcp-config", "--client", client, "--write"];
        let Some(CliCommand::McpConfig(connect)) = Cli::try_parse_from(words)?.command else {
            bail!("`hotcell mcp-config` is not a command");
        };
        mcp_config::run(&connect, Some(&path))?;
    }
    say(&next_steps(&answers, &path))?;
    Ok(ExitCode::SUCCESS)
}

fn answers(arguments: &InitArgs, path: &Path) -> Result<Answers> {
    let is_complete =
        arguments.reach.is_some() && arguments.memory.is_some() && arguments.client.is_some();
    let can_ask = std::io::stdin().is_terminal();
    if arguments.yes || is_complete {
        let memory = arguments.memory.clone();
        let answers = Answers {
            reach: arguments.reach.unwrap_or(Reach::Local),
            memory: memory.unwrap_or_else(|| USUAL_MEMORY.to_owned()),
            client: arguments.client.as_deref().and_then(chosen_client),
        };
        config::check_text(path, &text(&answers))?;
        return Ok(answers);
    }
    ensure!(
        can_ask,
        "there is no terminal to ask on: use --yes for the defaults, or --reach, --memory and --client"
    );
    let mut questions = Questions {
        input: std::io::stdin().lock(),
        output: std::io::stderr().lock(),
    };
    ask(&mut questions, arguments, path)
}

fn ask<R: std::io::BufRead, W: Write>(
    questions: &mut Questions<R, W>,
    arguments: &InitArgs,
    path: &Path,
) -> Result<Answers> {
    let reach = match arguments.reach {
        Some(reach) => reach,
        None => questions.ask(
            "Who uses it: programs on this machine (local), or other machines too (network)?",
            "local",
            |answer| {
                <Reach as clap::ValueEnum>::from_str(answer, true)
                    .map_err(|_| anyhow::anyhow!("local or network"))
            },
        )?,
    };
    let with_memory = |memory: &str| Answers {
        reach,
        memory: memory.to_owned(),
        client: None,
    };
    let memory = match &arguments.memory {
        Some(memory) => memory.clone(),
        None => questions.ask(
            "How much memory may a container use?",
            USUAL_MEMORY,
            |answer| {
                config::check_text(path, &text(&with_memory(answer)))
                    .map_err(|_| anyhow::anyhow!("a size such as 512m or 2g"))?;
                Ok(answer.to_owned())
            },
        )?,
    };
    config::check_text(path, &text(&with_memory(&memory)))?;
    let names = mcp_config::client_names();
    let client = match &arguments.client {
        Some(client) => chosen_client(client),
        None => questions.ask(
            &format!(
                "Which client is to use it ({}, or {NO_CLIENT})?",
                names.join(", ")
            ),
            NO_CLIENT,
            |answer| {
                let is_known = answer == NO_CLIENT || mcp_config::is_client(answer);
                ensure!(is_known, "known are {}, {NO_CLIENT}", names.join(", "));
                Ok(chosen_client(answer))
            },
        )?,
    };
    Ok(Answers {
        reach,
        memory,
        client,
    })
}

fn chosen_client(name: &str) -> Option<String> {
    (name != NO_CLIENT).then(|| name.to_owned())
}

/// The file. Only what was decided stands in it: what is absent keeps its default.
fn text(answers: &Answers) -> String {
    let memory = config::quoted(&answers.memory);
    let mut text = format!(
        "# Made by `hotcell init`. `hotcell config init -` prints every setting with its default.\n\
         \n[limits]\nmemory = {memory}\n"
    );
    if answers.reach == Reach::Network {
        text += "\n[server]\n# All addresses of this machine. Traffic is not encrypted: put a proxy with TLS in front of it.\n\
                 host = \"0.0.0.0\"\n\
                 \n[authentication]\n# `hotcell token add NAME` makes a token.\nauth = \"bearer\"\n";
    }
    text
}

/// Runs a command in a container with the settings of the file.
fn try_out(path: &Path) -> Result<Duration> {
    let program = std::env::current_exe().context("find this program")?;
    let mut command = Command::new(program);
    command.arg("--config").arg(path);
    command.args(["run", "--lang", "sh", "-c", "echo $((6 * 7))"]);
    let begun = Instant::now();
    let output = command.output().context("start `hotcell run`")?;
    let took = begun.elapsed();
    if output.status.success() && output.stdout == b"42\n" {
        return Ok(took);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    bail!(
        "a command in a container did not work; `hotcell doctor` shows what this host lacks and how to fix it\n{}",
        said.trim_end()
    )
}

fn next_steps(answers: &Answers, path: &Path) -> String {
    let flag = if config::is_found_everywhere(path) {
        String::new()
    } else {
        format!(" --config {}", path.display())
    };
    let mut lines = vec!["\nNext:".to_owned()];
    if answers.reach == Reach::Network {
        lines.push("  hotcell token add NAME              make a token for each person".to_owned());
        lines.push(format!(
            "  hotcell{flag} serve                       serve MCP at port 8000"
        ));
        lines.push(
            "  hotcell mcp-config --client CLIENT --remote URL --token TOKEN    on their machines"
                .to_owned(),
        );
    }
    match &answers.client {
        Some(client) => lines.push(format!(
            "  ask {client}: \"run a Python snippet in hotcell\""
        )),
        None if answers.reach == Reach::Local => {
            lines.push(
                "  hotcell mcp-config --client CLIENT --write    connect a client".to_owned(),
            );
        }
        None => {}
    }
    lines.push(format!(
        "  hotcell{flag} run -c 'print(6 * 7)'       run a snippet yourself"
    ));
    lines.push(
        "  hotcell doctor                      what this host isolates and limits".to_owned(),
    );
    lines.join("\n")
}

fn say(line: &str) -> Result<()> {
    writeln!(std::io::stdout().lock(), "{line}").context("write to stdout")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments() -> InitArgs {
        let words = ["hotcell", "init"];
        match Cli::try_parse_from(words).expect("a command line").command {
            Some(CliCommand::Init(arguments)) => arguments,
            other => panic!("{other:?}"),
        }
    }

    fn asked(input: &str) -> Result<Answers> {
        let mut questions = Questions {
            input: input.as_bytes(),
            output: Vec::new(),
        };
        ask(&mut questions, &arguments(), Path::new("h.toml"))
    }

    #[test]
    fn three_empty_lines_take_the_defaults() {
        let answers = asked("\n\n\n").expect("answers");
        assert_eq!(
            answers,
            Answers {
                reach: Reach::Local,
                memory: "512m".to_owned(),
                client: None
            }
        );
        assert!(asked("\n\n").is_err());
    }

    #[test]
    fn answers_are_checked_as_the_configuration_is() {
        let answers = asked("everyone\nnetwork\nplenty\n2g\nemacs\ncursor\n").expect("answers");
        let wanted = Answers {
            reach: Reach::Network,
            memory: "2g".to_owned(),
            client: Some("cursor".to_owned()),
        };
        assert_eq!(answers, wanted);
    }

    #[test]
    fn what_is_written_is_a_valid_file() {
        for reach in [Reach::Local, Reach::Network] {
            let answers = Answers {
                reach,
                memory: "1g".to_owned(),
                client: None,
            };
            config::check_text(Path::new("h.toml"), &text(&answers)).expect("valid");
        }
    }
}
