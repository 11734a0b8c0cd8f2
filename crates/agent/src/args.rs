//! The command line. Parsed by hand because it is short and the agent must stay small.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use hotcell_agent_api::bounds::{
    CONNECT_ABSTRACT_FLAG, PROTOCOL_VERSION_MAX, PROTOCOL_VERSION_MIN,
};

pub(crate) const USAGE: &str =
    "usage: hotcell-agent init [--container ID] --root DIR [--linger-ms N] [--become UID GID] [--protocol-max N]
                          [--filter FILE [--own-kernel]] [--listen-path PATH | --listen-abstract NAME UID]
       hotcell-agent connect PATH | --door NAME";

/// The subcommand.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// PID 1 of a container.
    Init(Options),
    /// Bridges stdin and stdout to an agent's socket.
    Connect(Target),
}

/// The address of a running agent.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// A socket in the file system; its permissions decide who may connect.
    Path(PathBuf),
    /// An abstract socket: see [`crate::handshake`].
    Abstract(String),
}

/// The address on which an agent listens.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Listen {
    /// The listening descriptor that the engine passed.
    Inherited,
    /// A socket in the file system.
    Path(PathBuf),
    /// An abstract socket that accepts only one user: see [`crate::handshake`].
    Abstract {
        /// Without the leading NUL.
        name: String,
        /// The only user that is accepted.
        uid: u32,
    },
}

/// Options of `init`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Options {
    /// The directory whose files are served.
    pub(crate) root: String,
    /// Exit this long after the last connection closed; `None`: never.
    pub(crate) linger: Option<Duration>,
    pub(crate) listen: Listen,
    /// The user and group to switch to, if the engine starts us as root.
    pub(crate) user: Option<(u32, u32)>,
    /// A seccomp program to load, if the engine has not loaded one.
    pub(crate) filter: Option<PathBuf>,
    /// Whether the kernel serves only this container, as gVisor does.
    pub(crate) has_own_kernel: bool,
    /// The newest protocol version to offer. Tests lower it to get an older agent.
    pub(crate) protocol_max: u32,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ArgsError {
    #[error("a command is missing: init or connect")]
    Command,
    #[error("argument {0:?} is unknown")]
    Unknown(OsString),
    /// A missing or invalid value.
    #[error("option {0} needs a value")]
    Value(&'static str),
}

/// Parses the arguments after the program name.
pub(crate) fn parse(mut args: impl Iterator<Item = OsString>) -> Result<Command, ArgsError> {
    let command = args.next().ok_or(ArgsError::Command)?;
    match command.to_str() {
        Some("init") => parse_init(args).map(Command::Init),
        Some("connect") => parse_connect(args),
        _ => Err(ArgsError::Command),
    }
}

fn parse_connect(mut args: impl Iterator<Item = OsString>) -> Result<Command, ArgsError> {
    let first = args.next().ok_or(ArgsError::Value("connect"))?;
    let target = if first == CONNECT_ABSTRACT_FLAG {
        Target::Abstract(text(args.next(), CONNECT_ABSTRACT_FLAG)?)
    } else {
        Target::Path(first.into())
    };
    args.next().map_or(Ok(Command::Connect(target)), |extra| {
        Err(ArgsError::Unknown(extra))
    })
}

fn parse_init(mut args: impl Iterator<Item = OsString>) -> Result<Options, ArgsError> {
    let (mut root, mut linger, mut listen) = (None, None, Listen::Inherited);
    let (mut user, mut filter, mut has_own_kernel) = (None, None, false);
    let mut protocol_max = PROTOCOL_VERSION_MAX;
    while let Some(name) = args.next() {
        match name.to_str() {
            // Only makes us recognizable in a process list.
            Some("--container") => drop(text(args.next(), "--container")?),
            Some("--root") => root = Some(text(args.next(), "--root")?),
            Some("--linger-ms") => {
                linger = Some(Duration::from_millis(number(args.next(), "--linger-ms")?));
            }
            Some("--listen-path") => {
                let path = args.next().ok_or(ArgsError::Value("--listen-path"))?;
                listen = Listen::Path(path.into());
            }
            Some("--listen-abstract") => {
                let name = text(args.next(), "--listen-abstract")?;
                let uid = number(args.next(), "--listen-abstract")?;
                listen = Listen::Abstract { name, uid };
            }
            Some("--filter") => filter = Some(text(args.next(), "--filter")?.into()),
            Some("--own-kernel") => has_own_kernel = true,
            Some("--protocol-max") => protocol_max = version(args.next())?,
            Some("--become") => {
                let uid = number(args.next(), "--become")?;
                user = Some((uid, number(args.next(), "--become")?));
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
        listen,
        user,
        filter,
        has_own_kernel,
        protocol_max,
    })
}

fn version(value: Option<OsString>) -> Result<u32, ArgsError> {
    let version = number(value, "--protocol-max")?;
    (PROTOCOL_VERSION_MIN..=PROTOCOL_VERSION_MAX)
        .contains(&version)
        .then_some(version)
        .ok_or(ArgsError::Value("--protocol-max"))
}

fn text(value: Option<OsString>, option: &'static str) -> Result<String, ArgsError> {
    value
        .and_then(|value| value.into_string().ok())
        .ok_or(ArgsError::Value(option))
}

fn number<N: FromStr>(value: Option<OsString>, option: &'static str) -> Result<N, ArgsError> {
    text(value, option)?
        .parse()
        .map_err(|_| ArgsError::Value(option))
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
            listen: Listen::Inherited,
            user: None,
            filter: None,
            has_own_kernel: false,
            protocol_max: PROTOCOL_VERSION_MAX,
        };
        assert_eq!(
            parsed("init --container c_1 --root /workspace --linger-ms 5"),
            Ok(Command::Init(options))
        );
    }

    #[test]
    fn an_abstract_socket_has_a_name_and_one_user_and_a_kernel_may_be_its_own() {
        let Ok(Command::Init(options)) = parsed("init --root /w --listen-abstract inside 65533")
        else {
            panic!("it is not understood");
        };
        let (name, uid) = ("inside".to_owned(), 65533);
        assert_eq!(options.listen, Listen::Abstract { name, uid });
        let target = Target::Abstract("inside".to_owned());
        assert_eq!(
            parsed("connect --door inside"),
            Ok(Command::Connect(target))
        );
        for (line, expected) in [
            ("init --root /w --filter /f", false),
            ("init --root /w --filter /f --own-kernel", true),
        ] {
            let Ok(Command::Init(options)) = parsed(line) else {
                panic!("it is not understood");
            };
            assert_eq!(options.has_own_kernel, expected, "{line}");
        }
        for line in [
            "init --root /w --listen-abstract inside",
            "init --root /w --listen-abstract a b",
        ] {
            let missing = ArgsError::Value("--listen-abstract");
            assert_eq!(parsed(line), Err(missing), "{line}");
        }
        let missing = ArgsError::Value(CONNECT_ABSTRACT_FLAG);
        assert_eq!(parsed("connect --door"), Err(missing));
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
        for version in ["0", "3", "x", ""] {
            assert_eq!(
                parsed(&format!("init --root / --protocol-max {version}")),
                Err(ArgsError::Value("--protocol-max")),
                "{version}"
            );
        }
        assert_eq!(parsed("connect a b"), Err(ArgsError::Unknown("b".into())));
    }
}
