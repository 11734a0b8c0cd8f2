//! The command line, parsed by hand: it is short, and the agent is copied into every
//! container.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// How the program is called.
pub const USAGE: &str =
    "usage: hotcell-agent init [--container ID] --root DIR [--linger-ms N] [--listen-path PATH]
       hotcell-agent connect PATH";

/// What the program was asked to be.
#[derive(Debug, PartialEq, Eq)]
pub enum Command {
    /// PID 1 of a container.
    Init(Options),
    /// A bridge from stdin and stdout to an agent's socket.
    Connect {
        /// Of the socket.
        path: PathBuf,
    },
}

/// How to be PID 1.
#[derive(Debug, PartialEq, Eq)]
pub struct Options {
    /// The directory below which files are served.
    pub root: String,
    /// Exit this long after the last connection closed; absent: never.
    pub linger: Option<Duration>,
    /// Listen here instead of on the inherited descriptor.
    pub listen_path: Option<PathBuf>,
}

/// Why the command line cannot be right.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArgsError {
    /// Neither `init` nor `connect`.
    #[error("a command is missing: init or connect")]
    Command,
    /// Not an argument we know.
    #[error("argument {0:?} is unknown")]
    Unknown(OsString),
    /// An option without its value, or a value that cannot be one.
    #[error("option {0} needs a value")]
    Value(&'static str),
}

/// Turns arguments (without the program's name) into what they ask for.
pub fn parse(mut args: impl Iterator<Item = OsString>) -> Result<Command, ArgsError> {
    let command = args.next().ok_or(ArgsError::Command)?;
    match command.to_str() {
        Some("init") => parse_init(args).map(Command::Init),
        Some("connect") => parse_connect(args),
        _ => Err(ArgsError::Command),
    }
}

fn parse_connect(mut args: impl Iterator<Item = OsString>) -> Result<Command, ArgsError> {
    let path = args.next().ok_or(ArgsError::Value("connect"))?.into();
    args.next().map_or(Ok(Command::Connect { path }), |extra| {
        Err(ArgsError::Unknown(extra))
    })
}

fn parse_init(mut args: impl Iterator<Item = OsString>) -> Result<Options, ArgsError> {
    let (mut root, mut linger, mut listen_path) = (None, None, None);
    while let Some(name) = args.next() {
        match name.to_str() {
            // For whoever looks for us in a list of processes; we need no name.
            Some("--container") => drop(text(args.next(), "--container")?),
            Some("--root") => root = Some(text(args.next(), "--root")?),
            Some("--linger-ms") => linger = Some(milliseconds(args.next())?),
            Some("--listen-path") => {
                listen_path = Some(args.next().ok_or(ArgsError::Value("--listen-path"))?.into());
            }
            _ => return Err(ArgsError::Unknown(name)),
        }
    }
    let root = root
        .filter(|root| root.starts_with('/'))
        .ok_or(ArgsError::Value("--root"))?;
    Ok(Options {
        root,
        linger,
        listen_path,
    })
}

fn text(value: Option<OsString>, option: &'static str) -> Result<String, ArgsError> {
    value
        .and_then(|value| value.into_string().ok())
        .ok_or(ArgsError::Value(option))
}

fn milliseconds(value: Option<OsString>) -> Result<Duration, ArgsError> {
    text(value, "--linger-ms")?
        .parse()
        .map(Duration::from_millis)
        .map_err(|_| ArgsError::Value("--linger-ms"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Command, ArgsError> {
        parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn init_takes_its_root_and_its_linger() {
        let options = Options {
            root: "/workspace".into(),
            linger: Some(Duration::from_millis(5)),
            listen_path: None,
        };
        assert_eq!(
            parsed("init --container c_1 --root /workspace --linger-ms 5"),
            Ok(Command::Init(options))
        );
    }

    #[test]
    fn what_is_missing_or_unknown_is_named() {
        assert_eq!(parsed(""), Err(ArgsError::Command));
        assert_eq!(parsed("init"), Err(ArgsError::Value("--root")));
        assert_eq!(
            parsed("init --root relative"),
            Err(ArgsError::Value("--root"))
        );
        assert_eq!(
            parsed("init --root / --linger-ms x"),
            Err(ArgsError::Value("--linger-ms"))
        );
        assert_eq!(parsed("connect a b"), Err(ArgsError::Unknown("b".into())));
    }
}
