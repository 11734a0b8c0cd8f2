//! Environment variables that look like settings and are none.

use clap::Command;

use super::catalogue::VARIABLES;
use super::problem::nearest;

/// Messages about variables with our prefix that no command has, each with the most similar one.
pub(super) fn unknown(root: &Command) -> Vec<String> {
    let set = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let set = set.filter(|name| name.starts_with(VARIABLES));
    let mut known = Vec::new();
    gather(root, &mut known);
    let mut notices: Vec<_> = set.filter_map(|name| notice(&name, &known)).collect();
    notices.sort_unstable();
    notices
}

/// Adds the variables of a command and of those below it, without the prefix, in lower case.
fn gather(command: &Command, known: &mut Vec<String>) {
    let variables = command.get_arguments().filter_map(|arg| arg.get_env());
    let names = variables.filter_map(|name| name.to_str()?.strip_prefix(VARIABLES));
    known.extend(names.map(str::to_lowercase));
    for command in command.get_subcommands() {
        gather(command, known);
    }
}

fn notice(variable: &str, known: &[String]) -> Option<String> {
    let name = variable.strip_prefix(VARIABLES)?.to_lowercase();
    if known.contains(&name) {
        return None;
    }
    let near = nearest(&name, known.iter().map(String::as_str));
    Some(match near {
        Some(near) => {
            let near = near.to_uppercase();
            format!("{variable} is not a setting; did you mean {VARIABLES}{near}?")
        }
        None => format!("{variable} is not a setting"),
    })
}
