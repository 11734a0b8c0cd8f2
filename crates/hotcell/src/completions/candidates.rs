//! What may come next on a command line.

use clap::{Arg, Command};

/// Asks the shell to complete the name of a file.
const FILES: &str = ":files\n";

/// The candidates for the last word, one per line.
pub(super) fn lines(root: &Command, words: &[String]) -> String {
    let Some((current, before)) = words.split_last() else {
        return String::new();
    };
    let place = Place::after(root, before);
    if let Some(option) = place.option {
        return values(option, current);
    }
    if place.is_verbatim {
        return FILES.to_owned();
    }
    if let Some((flag, value)) = current
        .split_once('=')
        .filter(|_| current.starts_with("--"))
    {
        let option = place
            .command
            .get_arguments()
            .find(|arg| is_called(arg, flag));
        let found = option
            .map(|option| values(option, value))
            .unwrap_or_default();
        let lines: Vec<String> = found
            .lines()
            .map(|line| format!("{flag}={line}\n"))
            .collect();
        return lines.concat();
    }
    if current.starts_with('-') {
        return flags(place.command, current);
    }
    let commands = commands(place.command, current);
    if !commands.is_empty() || place.command.has_subcommands() {
        return commands;
    }
    let positional = place.command.get_positionals().nth(place.positionals);
    let last = || {
        place
            .command
            .get_positionals()
            .last()
            .filter(|last| takes_many(last))
    };
    positional
        .or_else(last)
        .map(|arg| values(arg, current))
        .unwrap_or_default()
}

/// Where the finished words lead.
struct Place<'a> {
    command: &'a Command,
    /// An option that waits for its value.
    option: Option<&'a Arg>,
    /// The positional arguments that were given.
    positionals: usize,
    /// After `--`.
    is_verbatim: bool,
}

impl<'a> Place<'a> {
    fn after(root: &'a Command, words: &[String]) -> Self {
        let mut place = Self {
            command: root,
            option: None,
            positionals: 0,
            is_verbatim: false,
        };
        for word in words {
            place.pass(word);
        }
        place
    }

    fn pass(&mut self, word: &str) {
        if self.option.take().is_some() || self.is_verbatim {
            return;
        }
        if word == "--" {
            self.is_verbatim = true;
        } else if word.starts_with('-') && word.len() > 1 {
            let option = self
                .command
                .get_arguments()
                .find(|arg| is_called(arg, word));
            self.option = option.filter(|option| option.get_action().takes_values());
        } else if let Some(command) = self.command.find_subcommand(word) {
            self.command = command;
            self.positionals = 0;
        } else {
            self.positionals += 1;
        }
    }
}

fn is_called(arg: &Arg, flag: &str) -> bool {
    if let Some(long) = flag.strip_prefix("--") {
        return arg.get_long() == Some(long);
    }
    let mut letters = flag.trim_start_matches('-').chars();
    let short = letters.next();
    short.is_some() && letters.next().is_none() && arg.get_short() == short
}

fn takes_many(arg: &Arg) -> bool {
    arg.get_num_args()
        .is_some_and(|range| range.max_values() > 1)
        || matches!(arg.get_action(), clap::ArgAction::Append)
}

fn flags(command: &Command, current: &str) -> String {
    let shown = command.get_arguments().filter(|arg| !arg.is_hide_set());
    let lines = shown.filter_map(|arg| {
        let flag = format!("--{}", arg.get_long()?);
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        flag.starts_with(current).then(|| line(&flag, &help))
    });
    lines.collect()
}

fn commands(command: &Command, current: &str) -> String {
    let shown = command
        .get_subcommands()
        .filter(|command| !command.is_hide_set());
    let fitting = shown.filter(|command| command.get_name().starts_with(current));
    let help = |command: &Command| {
        command
            .get_about()
            .map(ToString::to_string)
            .unwrap_or_default()
    };
    fitting
        .map(|command| line(command.get_name(), &help(command)))
        .collect()
}

/// The values that can be listed, or file names where any text is fine.
fn values(arg: &Arg, current: &str) -> String {
    let possible = arg.get_possible_values();
    if possible.is_empty() {
        return FILES.to_owned();
    }
    let fitting = possible
        .iter()
        .filter(|value| !value.is_hide_set() && value.get_name().starts_with(current));
    let help = |value: &clap::builder::PossibleValue| {
        value
            .get_help()
            .map(ToString::to_string)
            .unwrap_or_default()
    };
    fitting
        .map(|value| line(value.get_name(), &help(value)))
        .collect()
}

fn line(word: &str, help: &str) -> String {
    let help = help.lines().next().unwrap_or_default().replace('\t', " ");
    format!("{word}\t{help}\n")
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    fn complete(typed: &str) -> Vec<String> {
        let mut root = Cli::command();
        root.build();
        let words: Vec<String> = typed.split(' ').map(str::to_owned).collect();
        let lines = lines(&root, &words);
        lines
            .lines()
            .map(|line| line.split('\t').next().unwrap_or_default().to_owned())
            .collect()
    }

    #[test]
    fn commands_flags_and_values_are_completed() {
        assert_eq!(complete("ser"), ["serve"]);
        assert_eq!(complete("config ch"), ["check"]);
        assert_eq!(complete("serve --transp"), ["--transport"]);
        assert_eq!(
            complete("serve --transport st"),
            ["streamable-http", "stdio"]
        );
        assert_eq!(complete("serve --transport=std"), ["--transport=stdio"]);
        assert_eq!(complete("mcp-config --client go"), ["goose"]);
        assert_eq!(complete("--log-format js"), ["json"]);
        assert_eq!(complete("completions z"), ["zsh"]);
    }

    #[test]
    fn what_the_shell_knows_better_is_left_to_it() {
        assert_eq!(complete("config check h"), [":files"]);
        assert_eq!(complete("serve --state-dir "), [":files"]);
        assert_eq!(complete("exec c -- l"), [":files"]);
    }

    #[test]
    fn a_value_is_not_taken_for_a_command() {
        assert_eq!(complete("--config serve --log-f"), ["--log-format"]);
        assert!(complete("nonsense --").contains(&"--config".to_owned()));
        assert!(!complete("").contains(&"complete".to_owned()));
    }
}
