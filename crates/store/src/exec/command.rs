//! A command as JSON; what may be secret is separate.

use std::collections::BTreeMap;

use hotcell_domain::{Command, Stdin, TerminalSize};
use serde::{Deserialize, Serialize};

use crate::container::spec::{env, env_map, json, said};

/// How much of the arguments is kept after an exec has ended.
pub const ARGV_BYTES_KEPT: usize = 4 << 10;

/// How much of the arguments a list shows.
const ARGV_BYTES_LISTED: usize = 1 << 10;

/// Added to the length of each argument, for quotes and comma.
const ARGUMENT_BYTES_MORE: usize = 3;

/// Replaces omitted arguments.
const LEFT_OUT: &str = "\u{2026}";

#[derive(Serialize, Deserialize)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of its own, by its name"
)]
struct StoredCommand {
    argv: Vec<String>,
    cwd: String,
    as_root: bool,
    /// `None`: no timeout.
    timeout_s: Option<f64>,
    tty: bool,
    /// Rows and columns; absent in rows of older versions.
    #[serde(default)]
    size: Option<(u16, u16)>,
    /// Whether callers may send input while it runs.
    open: bool,
    /// Absent in rows of older versions.
    #[serde(default)]
    ends_background: bool,
}

#[derive(Default, Serialize, Deserialize)]
struct Secrets {
    env: BTreeMap<String, String>,
    stdin: Option<String>,
}

/// Serializes what is not secret.
pub(super) fn write(command: &Command) -> String {
    json(&StoredCommand {
        argv: command.argv().to_vec(),
        cwd: command.cwd().to_owned(),
        as_root: command.as_root,
        timeout_s: command.timeout().map(|timeout| timeout.as_secs_f64()),
        tty: command.tty,
        size: Some((command.size.rows, command.size.cols)),
        open: command.stdin().is_open(),
        ends_background: command.ends_background,
    })
}

/// Serializes what may be secret.
pub(super) fn write_secrets(command: &Command) -> String {
    json(&Secrets {
        env: env_map(&command.env),
        stdin: command.stdin().text().map(str::to_owned),
    })
}

/// Parses a command; without `secrets`, its environment and input are empty.
pub(super) fn read(text: &str, secrets: Option<&str>) -> Result<Command, String> {
    let stored: StoredCommand = serde_json::from_str(text).map_err(said)?;
    let secrets: Secrets = match secrets {
        Some(secrets) => serde_json::from_str(secrets).map_err(said)?,
        None => Secrets::default(),
    };
    let mut command = Command::new(stored.argv).map_err(said)?;
    command.set_cwd(&stored.cwd).map_err(said)?;
    match stored.timeout_s {
        Some(seconds) => command.set_timeout_s(seconds).map_err(said)?,
        None => command.set_no_timeout(),
    }
    command.as_root = stored.as_root;
    command.tty = stored.tty;
    command.ends_background = stored.ends_background;
    let size = |(rows, cols)| TerminalSize { rows, cols };
    command.size = stored.size.map(size).unwrap_or_default();
    command.env = env(&secrets.env)?;
    let stdin = match secrets.stdin {
        Some(text) if stored.open => Stdin::TextThenOpen(text),
        Some(text) => Stdin::Text(text),
        None if stored.open => Stdin::Open,
        None => Stdin::Empty,
    };
    command.set_stdin(stdin).map_err(said)?;
    Ok(command)
}

/// Shortens a command that has ended; `None` if it is short enough or unreadable.
pub(super) fn cut(text: &str) -> Option<String> {
    let stored: StoredCommand = serde_json::from_str(text).ok()?;
    let argv = first_of(&stored.argv, ARGV_BYTES_KEPT);
    (argv != stored.argv).then(|| json(&StoredCommand { argv, ..stored }))
}

/// Parses the arguments, as far as a list shows them.
pub(super) fn read_argv(text: &str) -> Result<Vec<String>, String> {
    let stored: StoredCommand = serde_json::from_str(text).map_err(said)?;
    Ok(listed_argv(&stored.argv))
}

/// The first arguments, as far as a list shows them, with an ellipsis if there are more.
pub fn listed_argv(argv: &[String]) -> Vec<String> {
    first_of(argv, ARGV_BYTES_LISTED)
}

fn first_of(argv: &[String], bytes_max: usize) -> Vec<String> {
    let mut kept = Vec::new();
    let mut left = bytes_max;
    for argument in argv {
        if argument.len() + ARGUMENT_BYTES_MORE > left {
            let end = argument.floor_char_boundary(left.min(argument.len()));
            if end > 0 {
                kept.push(argument[..end].to_owned());
            }
            kept.push(LEFT_OUT.to_owned());
            break;
        }
        left -= argument.len() + ARGUMENT_BYTES_MORE;
        kept.push(argument.clone());
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn command() -> impl Strategy<Value = Command> {
        let argv = prop::collection::vec("[^\0]{1,20}", 1..5);
        let env = prop::collection::btree_map("[A-Z_][A-Z0-9_]{0,8}", "[^\0]{0,20}", 0..4);
        let stdin = prop_oneof![
            Just(Stdin::Empty),
            Just(Stdin::Open),
            any::<String>().prop_map(Stdin::Text),
            any::<String>().prop_map(Stdin::TextThenOpen)
        ];
        let timeout_s = prop_oneof![0.000_001..1.0, 1.0..604_800.0, Just(604_800.0)];
        let timeout_s = prop::option::of(timeout_s);
        let flags = any::<(bool, bool, (u16, u16))>();
        (argv, env, stdin, timeout_s, flags, "[^\0]{1,30}").prop_map(
            |(argv, env, stdin, timeout_s, (as_root, tty, (rows, cols)), cwd)| {
                let mut command = Command::new(argv).unwrap();
                for (name, value) in &env {
                    command.env.set(name, value).unwrap();
                }
                command.set_stdin(stdin).unwrap();
                match timeout_s {
                    Some(seconds) => command.set_timeout_s(seconds).unwrap(),
                    None => command.set_no_timeout(),
                }
                command.set_cwd(&cwd).unwrap();
                (command.as_root, command.tty) = (as_root, tty);
                command.size = TerminalSize { rows, cols };
                command
            },
        )
    }

    proptest! {
        #[test]
        fn every_command_is_read_back_as_it_was(command in command()) {
            let stored = (write(&command), write_secrets(&command));
            prop_assert_eq!(read(&stored.0, Some(&stored.1)), Ok(command));
        }

        #[test]
        fn without_its_secrets_a_command_has_neither_environment_nor_input(command in command()) {
            let mut plain = command.clone();
            plain.env = hotcell_domain::Env::default();
            let is_open = plain.stdin().is_open();
            let stdin = if is_open { Stdin::Open } else { Stdin::Empty };
            plain.set_stdin(stdin).unwrap();
            prop_assert_eq!(read(&write(&command), None), Ok(plain));
        }

        #[test]
        fn no_stored_text_makes_reading_panic(text in ".*", secrets in ".*") {
            let _ = read(&text, Some(&secrets));
        }
    }

    #[test]
    fn of_long_arguments_the_first_are_kept() {
        let written = |argv: &[&str]| {
            let argv = argv.iter().map(|one| (*one).to_owned()).collect();
            write(&Command::new(argv).unwrap())
        };
        assert_eq!(cut(&written(&["sh", "-c", "true"])), None);
        let long = "\u{20ac}".repeat(20_000);
        let kept = cut(&written(&["sh", "-c", &long, "more"])).unwrap();
        assert!(kept.len() < ARGV_BYTES_KEPT + 200, "{}", kept.len());
        let command = read(&kept, None).unwrap();
        let [sh, c, cut_off, mark] = command.argv() else {
            panic!("{command:?}")
        };
        assert_eq!((&**sh, &**c, &**mark), ("sh", "-c", LEFT_OUT));
        assert!(cut_off.len() > 4000 && long.starts_with(cut_off.as_str()));
        let many = cut(&written(&vec!["a"; 1500])).unwrap();
        assert!(many.len() < 2 * ARGV_BYTES_KEPT, "{}", many.len());
    }
}
