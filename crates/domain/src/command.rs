//! The command of an exec.

use std::time::Duration;

use crate::Env;

/// Arguments of one exec.
const ARGV_MAX: usize = 4096;

/// Total size of the arguments.
const ARGV_BYTES_MAX: usize = 512 << 10;

/// The longest working directory.
const CWD_BYTES_MAX: usize = 4095;

/// Size of standard input that is given with the command.
const STDIN_BYTES_MAX: usize = 4 << 20;

/// The longest timeout: a week.
const TIMEOUT_S_MAX: f64 = 604_800.0;

/// All that an agent needs to run a command.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of its own, by its name"
)]
pub struct Command {
    argv: Vec<String>,
    cwd: String,
    /// Added to the container's variables.
    pub env: Env,
    /// Run as root of the container instead of its user.
    pub as_root: bool,
    timeout: Option<Duration>,
    stdin: Stdin,
    /// Use a terminal instead of pipes.
    pub tty: bool,
    /// The initial size of the terminal.
    pub size: TerminalSize,
    /// The command is a Python interpreter with a script and its arguments, and the container's
    /// warmed interpreter may run it. Only speed depends on it, so it is not stored: an exec that
    /// another server starts uses the plain interpreter.
    pub warm_python: bool,
    /// End the processes that it leaves in the background when its leader has exited.
    pub ends_background: bool,
}

/// A terminal in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TerminalSize {
    /// Lines.
    pub rows: u16,
    /// Characters of a line.
    pub cols: u16,
}

impl Default for TerminalSize {
    /// 24 lines of 80 characters.
    fn default() -> Self {
        Self { rows: 24, cols: 80 }
    }
}

/// The standard input of an exec.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stdin {
    /// End of file at once.
    Empty,
    /// What callers send while it runs.
    Open,
    /// This text, then end of file.
    Text(String),
    /// This text, then what callers send while it runs.
    TextThenOpen(String),
}

impl Stdin {
    /// The text that is given at the start.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Empty | Self::Open => None,
            Self::Text(text) | Self::TextThenOpen(text) => Some(text),
        }
    }

    /// Whether callers may send more while it runs.
    pub fn is_open(&self) -> bool {
        match self {
            Self::Empty | Self::Text(_) => false,
            Self::Open | Self::TextThenOpen(_) => true,
        }
    }
}

/// Why a command is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// No program.
    #[error("cmd must name a program: a list such as [\"ls\", \"-l\"], its first entry not empty")]
    NoProgram,
    /// Too long, or with a NUL byte.
    #[error(
        "cmd may have {ARGV_MAX} entries and {ARGV_BYTES_MAX} bytes, without NUL; write longer input to a file or pass it as stdin"
    )]
    Argv,
    /// Too long, or with a NUL byte.
    #[error("cwd must be a path of at most {CWD_BYTES_MAX} bytes without NUL")]
    Cwd,
    /// Out of range, or not a number.
    #[error("timeout_s must be more than 0 and at most {TIMEOUT_S_MAX}")]
    Timeout,
    /// The text is too long.
    #[error("stdin may have {STDIN_BYTES_MAX} bytes; write longer input to a file with fs_write")]
    Stdin,
}

impl Command {
    /// A command in `/workspace` with empty stdin and a timeout of ten minutes.
    pub fn new(argv: Vec<String>) -> Result<Self, CommandError> {
        if argv.first().is_none_or(String::is_empty) {
            return Err(CommandError::NoProgram);
        }
        let bytes: usize = argv.iter().map(String::len).sum();
        let has_nul = argv.iter().any(|argument| argument.contains('\0'));
        if argv.len() > ARGV_MAX || bytes > ARGV_BYTES_MAX || has_nul {
            return Err(CommandError::Argv);
        }
        Ok(Self {
            argv,
            cwd: "/workspace".to_owned(),
            env: Env::default(),
            as_root: false,
            timeout: Some(Duration::from_mins(10)),
            stdin: Stdin::Empty,
            tty: false,
            size: TerminalSize::default(),
            warm_python: false,
            ends_background: false,
        })
    }

    /// Sets the working directory, absolute or relative to `/workspace`.
    pub fn set_cwd(&mut self, cwd: &str) -> Result<(), CommandError> {
        if cwd.is_empty() || cwd.len() > CWD_BYTES_MAX || cwd.contains('\0') {
            return Err(CommandError::Cwd);
        }
        self.cwd = if cwd.starts_with('/') {
            cwd.to_owned()
        } else {
            format!("/workspace/{cwd}")
        };
        Ok(())
    }

    /// Sets the timeout.
    pub fn set_timeout_s(&mut self, seconds: f64) -> Result<(), CommandError> {
        if seconds > 0.0 && seconds <= TIMEOUT_S_MAX {
            let timeout = Duration::from_secs_f64(seconds).max(Duration::from_millis(1));
            self.timeout = Some(timeout);
            return Ok(());
        }
        Err(CommandError::Timeout)
    }

    /// Removes the timeout. Only for callers who watch the exec, such as a person at a terminal.
    pub fn set_no_timeout(&mut self) {
        self.timeout = None;
    }

    /// Sets the standard input.
    pub fn set_stdin(&mut self, stdin: Stdin) -> Result<(), CommandError> {
        if stdin
            .text()
            .is_some_and(|text| text.len() > STDIN_BYTES_MAX)
        {
            return Err(CommandError::Stdin);
        }
        self.stdin = stdin;
        Ok(())
    }

    /// The program and its arguments.
    pub fn argv(&self) -> &[String] {
        &self.argv
    }

    /// The working directory, an absolute path.
    pub fn cwd(&self) -> &str {
        &self.cwd
    }

    /// `None`: it may run as long as its container.
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// The standard input.
    pub fn stdin(&self) -> &Stdin {
        &self.stdin
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_names_a_program() {
        assert_eq!(Command::new(vec![]), Err(CommandError::NoProgram));
        assert_eq!(
            Command::new(vec![String::new()]),
            Err(CommandError::NoProgram)
        );
        assert_eq!(Command::new(vec!["a\0".into()]), Err(CommandError::Argv));
    }

    #[test]
    fn what_is_too_much_or_senseless_is_refused() {
        let large = "x".repeat(ARGV_BYTES_MAX);
        assert_eq!(
            Command::new(vec!["echo".into(), large]),
            Err(CommandError::Argv)
        );
        let mut command = Command::new(vec!["true".into()]).unwrap();
        for seconds in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e9] {
            assert_eq!(command.set_timeout_s(seconds), Err(CommandError::Timeout));
        }
        for cwd in ["", "a\0b", &"x".repeat(5000)] {
            assert_eq!(command.set_cwd(cwd), Err(CommandError::Cwd));
        }
        let text = Stdin::Text("x".repeat(STDIN_BYTES_MAX + 1));
        assert_eq!(command.set_stdin(text), Err(CommandError::Stdin));
    }

    #[test]
    fn a_relative_directory_is_below_the_workspace() {
        let mut command = Command::new(vec!["true".into()]).unwrap();
        assert_eq!(command.set_cwd("src"), Ok(()));
        assert_eq!(command.cwd(), "/workspace/src");
    }
}
