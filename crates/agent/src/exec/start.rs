//! Validates a `start` request.

use std::ffi::CString;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::time::Duration;

use bytes::Bytes;
use hotcell_agent_api::bounds::{
    ARGV_ENV_BYTES_MAX, ARGV_MAX, CHUNK_BYTES_MAX, ENV_MAX, EXEC_ID_BYTES_MAX, GRACE_MS_MAX,
    PATH_BYTES_MAX, TIMEOUT_MS_MAX,
};
use hotcell_agent_api::v1::{EnvVar, ExecStart, Interpreter, Winsize};
use rustix::process::{Gid, Uid};

use crate::process::User;

/// Used if the environment has no `PATH`.
const DEFAULT_PATH: &[u8] = b"/usr/local/bin:/usr/bin:/bin";

const PATH_DIRS_MAX: usize = 256;

/// The kernel's id for "do not change".
const NO_ID: u32 = u32::MAX;

/// A valid request.
#[derive(Debug)]
pub struct Start {
    pub exec_id: String,
    /// Including `argv[0]`.
    pub argv: Vec<CString>,
    /// As `NAME=value`.
    pub env: Vec<CString>,
    /// Paths to try for the program, in order.
    pub candidates: Vec<CString>,
    pub cwd: CString,
    /// The user to switch to, if it is not the agent's own.
    pub user: Option<User>,
    pub timeout: Option<Duration>,
    /// Time between SIGTERM and SIGKILL after the timeout.
    pub grace: Duration,
    /// Whether stdin stays open for `Input`.
    pub stdin: bool,
    /// All of its stdin, if it came with the request.
    pub input: Option<Bytes>,
    /// The size of its terminal; `None`: pipes.
    pub tty: Option<rustix::termios::Winsize>,
    /// Whether a warm Python interpreter may run it.
    pub warm_python: bool,
}

/// Why a request is invalid in every container.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    #[error("exec_id must be 1 to {EXEC_ID_BYTES_MAX} printable ASCII characters")]
    ExecId,
    #[error("argv must have 1 to {ARGV_MAX} arguments, the first not empty")]
    Argv,
    #[error("env must have at most {ENV_MAX} variables, their names not empty and without '='")]
    Env,
    #[error("argv and env must have at most {ARGV_ENV_BYTES_MAX} bytes together")]
    TooLong,
    #[error("{0} must not have NUL bytes")]
    Nul(&'static str),
    #[error("cwd must be an absolute path of less than {PATH_BYTES_MAX} bytes")]
    Cwd,
    #[error("PATH must have at most {PATH_DIRS_MAX} directories")]
    Path,
    #[error("{0} is too large")]
    Bound(&'static str),
    #[error("the paths of cleanup must be below the root")]
    Cleanup,
    #[error("input needs stdin and must have at most {CHUNK_BYTES_MAX} bytes")]
    Input,
}

impl Start {
    /// Checks every field against its bound.
    pub fn parse(start: &ExecStart) -> Result<Self, StartError> {
        check_id(&start.exec_id)?;
        check_sizes(start)?;
        Ok(Self {
            exec_id: start.exec_id.clone(),
            argv: strings(&start.argv, "argv")?,
            env: environment(&start.env)?,
            candidates: candidates(&start.argv, &start.env)?,
            cwd: working_directory(&start.cwd)?,
            user: user(start)?,
            timeout: timeout(start.timeout_ms)?,
            grace: grace(start.grace_ms)?,
            stdin: start.stdin,
            input: input(start)?,
            tty: start.tty.as_ref().map(window).transpose()?,
            warm_python: start.warm_interpreter() == Interpreter::Python,
        })
    }
}

fn check_id(id: &str) -> Result<(), StartError> {
    let fits = (1..=EXEC_ID_BYTES_MAX).contains(&id.len());
    let printable = id.bytes().all(|byte| byte.is_ascii_graphic());
    (fits && printable).then_some(()).ok_or(StartError::ExecId)
}

fn check_sizes(start: &ExecStart) -> Result<(), StartError> {
    if !(1..=ARGV_MAX).contains(&start.argv.len()) || start.argv[0].is_empty() {
        return Err(StartError::Argv);
    }
    if start.env.len() > ENV_MAX {
        return Err(StartError::Env);
    }
    // Like the kernel, counts a NUL and a pointer for each string.
    let argv: usize = start.argv.iter().map(|arg| arg.len() + 9).sum();
    let env: usize = start
        .env
        .iter()
        .map(|var| var.name.len() + var.value.len() + 10)
        .sum();
    (argv + env <= ARGV_ENV_BYTES_MAX)
        .then_some(())
        .ok_or(StartError::TooLong)
}

fn strings(list: &[Bytes], what: &'static str) -> Result<Vec<CString>, StartError> {
    list.iter()
        .map(|bytes| c_string(bytes.to_vec(), what))
        .collect()
}

fn c_string(bytes: Vec<u8>, what: &'static str) -> Result<CString, StartError> {
    CString::new(bytes).map_err(|_| StartError::Nul(what))
}

fn environment(env: &[EnvVar]) -> Result<Vec<CString>, StartError> {
    env.iter().map(variable).collect()
}

fn variable(var: &EnvVar) -> Result<CString, StartError> {
    if var.name.is_empty() || var.name.contains(&b'=') {
        return Err(StartError::Env);
    }
    c_string([&var.name[..], b"=", &var.value[..]].concat(), "env")
}

/// The program itself if its name contains a slash, else the name in each directory of `PATH`. An
/// empty directory means the working directory.
fn candidates(argv: &[Bytes], env: &[EnvVar]) -> Result<Vec<CString>, StartError> {
    let program = &argv[0][..];
    if program.contains(&b'/') {
        return Ok(vec![c_string(program.to_vec(), "argv")?]);
    }
    let path = env.iter().find(|var| var.name == "PATH");
    let path = path.map_or(DEFAULT_PATH, |var| &var.value[..]);
    if path
        .split(|byte| *byte == b':')
        .nth(PATH_DIRS_MAX)
        .is_some()
    {
        return Err(StartError::Path);
    }
    path.split(|byte| *byte == b':')
        .filter(|dir| dir.len() + 1 + program.len() < PATH_BYTES_MAX)
        .map(|dir| c_string(within(dir, program), "env"))
        .collect()
}

fn within(dir: &[u8], program: &[u8]) -> Vec<u8> {
    let dir: &[u8] = if dir.is_empty() { b"." } else { dir };
    [dir, b"/", program].concat()
}

fn working_directory(cwd: &Bytes) -> Result<CString, StartError> {
    if !cwd.starts_with(b"/") || cwd.len() >= PATH_BYTES_MAX {
        return Err(StartError::Cwd);
    }
    c_string(cwd.to_vec(), "cwd")
}

fn user(start: &ExecStart) -> Result<Option<User>, StartError> {
    if start.uid == Some(NO_ID) || start.gid == Some(NO_ID) {
        return Err(StartError::Bound("uid or gid"));
    }
    let own = User {
        uid: rustix::process::geteuid(),
        gid: rustix::process::getegid(),
    };
    let asked = User {
        uid: start.uid.map_or(own.uid, Uid::from_raw),
        gid: start.gid.map_or(own.gid, Gid::from_raw),
    };
    Ok((asked != own).then_some(asked))
}

fn input(start: &ExecStart) -> Result<Option<Bytes>, StartError> {
    match &start.input {
        Some(input) if !start.stdin || input.len() > CHUNK_BYTES_MAX => Err(StartError::Input),
        input => Ok(input.clone()),
    }
}

fn timeout(milliseconds: u64) -> Result<Option<Duration>, StartError> {
    match milliseconds {
        0 => Ok(None),
        1..=TIMEOUT_MS_MAX => Ok(Some(Duration::from_millis(milliseconds))),
        _ => Err(StartError::Bound("timeout_ms")),
    }
}

/// Parses the time between SIGTERM and SIGKILL.
pub fn grace(milliseconds: u64) -> Result<Duration, StartError> {
    if milliseconds > GRACE_MS_MAX {
        return Err(StartError::Bound("grace_ms"));
    }
    Ok(Duration::from_millis(milliseconds))
}

/// Parses a terminal size.
pub fn window(size: &Winsize) -> Result<rustix::termios::Winsize, StartError> {
    let cells = |value: u32| u16::try_from(value).map_err(|_| StartError::Bound("window size"));
    Ok(rustix::termios::Winsize {
        ws_row: cells(size.rows)?,
        ws_col: cells(size.cols)?,
        ws_xpixel: 0,
        ws_ypixel: 0,
    })
}

/// Recognizes equal `start` requests without keeping them: a 128-bit hash under secret random keys.
pub(super) struct Fingerprints([RandomState; 2]);

pub(super) type Fingerprint = [u64; 2];

impl Fingerprints {
    /// Chooses new random keys.
    pub(super) fn new() -> Self {
        Self([RandomState::new(), RandomState::new()])
    }

    /// A hash that is equal for equal requests.
    pub(super) fn of(&self, start: &ExecStart) -> Fingerprint {
        self.0.each_ref().map(|keys| {
            let mut hasher = keys.build_hasher();
            (&start.exec_id, &start.argv, &start.env, &start.cwd).hash(&mut hasher);
            (start.uid, start.gid, start.timeout_ms, start.grace_ms).hash(&mut hasher);
            (start.stdin, start.tty).hash(&mut hasher);
            hasher.finish()
        })
    }
}

#[cfg(test)]
mod tests {
    use hotcell_agent_api::v1::Cleanup;

    use super::*;

    fn asked() -> ExecStart {
        ExecStart {
            exec_id: "e_1".into(),
            argv: vec!["true".into()],
            cwd: "/".into(),
            ..ExecStart::default()
        }
    }

    fn refused(change: impl FnOnce(&mut ExecStart)) -> StartError {
        let mut start = asked();
        change(&mut start);
        Start::parse(&start).unwrap_err()
    }

    fn variable(name: &'static str, value: &'static str) -> EnvVar {
        EnvVar {
            name: name.into(),
            value: value.into(),
        }
    }

    #[test]
    fn every_field_has_a_bound() {
        assert_eq!(refused(|start| start.exec_id.clear()), StartError::ExecId);
        assert_eq!(
            refused(|start| start.exec_id = "x".repeat(65)),
            StartError::ExecId
        );
        assert_eq!(refused(|start| start.argv.clear()), StartError::Argv);
        assert_eq!(
            refused(|start| start.argv = vec![Bytes::new(); 5000]),
            StartError::Argv
        );
        assert_eq!(
            refused(|start| start.env = vec![variable("", "x")]),
            StartError::Env
        );
        assert_eq!(
            refused(|start| start.env = vec![variable("a=", "x")]),
            StartError::Env
        );
        assert_eq!(
            refused(|start| start.argv.push("a\0".into())),
            StartError::Nul("argv")
        );
        assert_eq!(refused(|start| start.cwd = "tmp".into()), StartError::Cwd);
        assert_eq!(
            refused(|start| start.argv.push(vec![1; 1 << 20].into())),
            StartError::TooLong
        );
        assert_eq!(
            refused(|start| start.timeout_ms = u64::MAX),
            StartError::Bound("timeout_ms")
        );
        assert_eq!(
            refused(|start| start.grace_ms = u64::MAX),
            StartError::Bound("grace_ms")
        );
        assert_eq!(
            refused(|start| start.uid = Some(NO_ID)),
            StartError::Bound("uid or gid")
        );
        assert_eq!(
            refused(|start| start.input = Some("x".into())),
            StartError::Input
        );
        let long = |start: &mut ExecStart| {
            start.stdin = true;
            start.input = Some(vec![0; CHUNK_BYTES_MAX + 1].into());
        };
        assert_eq!(refused(long), StartError::Input);
        let tall = Winsize {
            rows: 1 << 16,
            cols: 1,
        };
        assert_eq!(
            refused(|start| start.tty = Some(tall)),
            StartError::Bound("window size")
        );
    }

    #[test]
    fn a_program_is_looked_up_in_the_path_it_was_given() {
        let mut start = asked();
        start.env = vec![variable("PATH", "/a::b")];
        let found = Start::parse(&start).unwrap().candidates;
        assert_eq!(
            found,
            [
                c"/a/true".into(),
                c"./true".into(),
                CString::from(c"b/true")
            ]
        );
        start.argv = vec!["./true".into()];
        assert_eq!(
            Start::parse(&start).unwrap().candidates,
            [CString::from(c"./true")]
        );
    }

    #[test]
    fn another_start_has_another_fingerprint() {
        let fingerprints = Fingerprints::new();
        let mut other = asked();
        assert_eq!(fingerprints.of(&asked()), fingerprints.of(&other));
        other.stdin = true;
        assert_ne!(fingerprints.of(&asked()), fingerprints.of(&other));
        // Neither the permission to use a warm interpreter nor the cleanup is part of the fingerprint.
        other.stdin = false;
        other.set_warm_interpreter(Interpreter::Python);
        other.cleanup = Some(Cleanup::default());
        assert_eq!(fingerprints.of(&asked()), fingerprints.of(&other));
    }
}
