//! The result of an exec, as callers see it.

use std::time::Duration;

use hotcell_agent_client::{Exit, ExitCause, Usage as AgentUsage};
use hotcell_domain::{Command, ExecEnd, ExecStatus, NotStarted, Usage};

const ENOENT: i32 = 2;
const E2BIG: i32 = 7;
const ENOEXEC: i32 = 8;
const EAGAIN: i32 = 11;
const EACCES: i32 = 13;
const ENOTDIR: i32 = 20;

/// The signal of the OOM killer.
const SIGKILL: u8 = 9;

/// The exit code of a shell whose command was killed with that signal.
const KILLED_CODE: u8 = 128 + SIGKILL;

/// How many characters of a program's or directory's name a message repeats.
const NAME_CHARS_MAX: usize = 200;

/// The result of an exec that has no exit status: only a status and a reason.
pub(super) fn without_exit(status: ExecStatus, reason: impl Into<String>) -> ExecEnd {
    ExecEnd {
        status,
        exit_code: None,
        signal: None,
        reason: Some(reason.into()),
        not_started: None,
        usage: None,
    }
}

/// Whether the exit looks like a kill by the OOM killer.
pub(super) fn may_be_oom(exit: &Exit) -> bool {
    exit.cause == ExitCause::Exited
        && (exit.signal == Some(SIGKILL) || exit.code == Some(KILLED_CODE))
}

/// The result for an exit. `is_oom`: the OOM killer killed a process while the exec ran.
pub(super) fn of_exit(exit: &Exit, command: &Command, is_oom: bool) -> ExecEnd {
    let (status, reason) = match &exit.cause {
        ExitCause::Exited if is_oom => (
            ExecStatus::OomKilled,
            Some("the container ran out of memory, and the kernel killed a process of it".into()),
        ),
        ExitCause::Exited if exit.code == Some(0) => (ExecStatus::Succeeded, None),
        ExitCause::Exited => (ExecStatus::Failed, None),
        ExitCause::TimedOut => (ExecStatus::TimedOut, Some(timed_out(command.timeout()))),
        ExitCause::Cancelled => (ExecStatus::Cancelled, None),
        ExitCause::NotStarted { step, errno } => (
            ExecStatus::Failed,
            Some(why_not_started(step, *errno, command)),
        ),
        ExitCause::KeeperKilled => (
            ExecStatus::Failed,
            Some("the command killed the process that keeps it together".into()),
        ),
    };
    ExecEnd {
        status,
        exit_code: exit.code,
        signal: exit.signal,
        reason,
        not_started: not_started(&exit.cause),
        usage: was_started(exit).then(|| usage(&exit.usage)),
    }
}

fn was_started(exit: &Exit) -> bool {
    not_started(&exit.cause).is_none()
}

/// The machine-readable form of [`why_not_started`].
pub(super) fn not_started(cause: &ExitCause) -> Option<NotStarted> {
    match cause {
        ExitCause::NotStarted { step, errno } => Some(match (step.as_str(), *errno) {
            ("execve", ENOENT) => NotStarted::NoProgram,
            ("execve", EACCES | ENOEXEC) => NotStarted::NotExecutable,
            _ => NotStarted::Other,
        }),
        ExitCause::Exited
        | ExitCause::TimedOut
        | ExitCause::Cancelled
        | ExitCause::KeeperKilled => None,
    }
}

fn timed_out(after: Option<Duration>) -> String {
    let after = after.unwrap_or_default().as_secs_f64();
    format!("it was ended after timeout_s = {after}")
}

fn why_not_started(step: &str, errno: i32, command: &Command) -> String {
    let program = shown(command.argv().first().map_or("", String::as_str));
    let cwd = shown(command.cwd());
    match (step, errno) {
        ("chdir", ENOENT) => format!("there is no directory `{cwd}` in the container"),
        ("chdir", ENOTDIR) => format!("`{cwd}` is not a directory in the container"),
        ("chdir", EACCES) => format!("the container's user may not enter the directory `{cwd}`"),
        ("execve", ENOENT) if is_a_line(command) => format!(
            "there is no program `{program}` in the container: cmd is a list, a word each, such as {}, or {}",
            split(&program),
            list(&["sh", "-c", &program]),
        ),
        ("execve", ENOENT) if program.contains('/') => format!(
            "there is no program `{program}` in the container, or not the interpreter it needs"
        ),
        ("execve", ENOENT) => format!("there is no program `{program}` in the container"),
        ("execve", EACCES) => {
            format!("`{program}` is not executable for the container's user")
        }
        ("execve", ENOEXEC) => format!(
            "`{program}` is no program this machine can run; a script needs a first line such as #!/bin/sh"
        ),
        ("execve", E2BIG) => "the arguments and the environment are too long together".to_owned(),
        ("clone", EAGAIN) => {
            "the container has as many processes as it may; end some of them".to_owned()
        }
        _ => {
            let error = std::io::Error::from_raw_os_error(errno);
            format!("could not start `{program}`: {step}: {error}")
        }
    }
}

/// Whether the program's name looks like a whole command line.
fn is_a_line(command: &Command) -> bool {
    let program = command.argv().first().map_or("", String::as_str);
    command.argv().len() == 1 && program.trim().contains(char::is_whitespace)
}

/// Splits a command line into the words that the caller should have passed.
fn split(line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    list(&words)
}

/// Words as a JSON array.
fn list(words: &[&str]) -> String {
    let words: Vec<String> = words
        .iter()
        .map(|word| format!("\"{}\"", word.escape_default()))
        .collect();
    format!("[{}]", words.join(", "))
}

fn shown(name: &str) -> String {
    let mut shown: String = name.chars().take(NAME_CHARS_MAX).collect();
    if shown.len() < name.len() {
        shown.push('…');
    }
    shown
}

fn usage(usage: &AgentUsage) -> Usage {
    Usage {
        wall_ms: millis(usage.wall),
        user_ms: millis(usage.user),
        system_ms: millis(usage.system),
        max_rss_bytes: usage.max_rss_bytes,
        stdout_bytes: usage.stdout_bytes,
        stderr_bytes: usage.stderr_bytes,
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exit(cause: ExitCause, code: Option<u8>, signal: Option<u8>) -> Exit {
        Exit {
            cause,
            code,
            signal,
            usage: AgentUsage::default(),
            changes: None,
        }
    }

    fn command() -> Command {
        Command::new(vec!["foo".into()]).unwrap()
    }

    fn unstarted(step: &str, errno: i32) -> ExecEnd {
        let cause = ExitCause::NotStarted {
            step: step.into(),
            errno,
        };
        let end = of_exit(&exit(cause, None, None), &command(), false);
        assert_eq!((end.status, end.usage), (ExecStatus::Failed, None));
        end
    }

    fn said(step: &str, errno: i32) -> String {
        unstarted(step, errno).reason.unwrap()
    }

    #[test]
    fn programs_tell_a_missing_program_from_one_that_cannot_be_executed() {
        for (step, errno, cause) in [
            ("execve", ENOENT, NotStarted::NoProgram),
            ("execve", EACCES, NotStarted::NotExecutable),
            ("execve", ENOEXEC, NotStarted::NotExecutable),
            ("execve", E2BIG, NotStarted::Other),
            ("chdir", ENOENT, NotStarted::Other),
            ("chdir", EACCES, NotStarted::Other),
            ("clone", EAGAIN, NotStarted::Other),
        ] {
            let end = unstarted(step, errno);
            assert_eq!(end.not_started, Some(cause), "{step} {errno}");
        }
        for cause in [ExitCause::Exited, ExitCause::KeeperKilled] {
            let end = of_exit(&exit(cause, None, Some(9)), &command(), false);
            assert_eq!(end.not_started, None);
        }
    }

    #[test]
    fn a_missing_program_and_a_missing_directory_are_told_apart() {
        assert_eq!(
            said("execve", 2),
            "there is no program `foo` in the container"
        );
        assert_eq!(
            said("chdir", 2),
            "there is no directory `/workspace` in the container"
        );
        assert!(said("setuid", 1).contains("setuid"));
    }

    #[test]
    fn each_exit_has_its_status() {
        let cases = [
            (
                exit(ExitCause::Exited, Some(0), None),
                ExecStatus::Succeeded,
            ),
            (exit(ExitCause::Exited, Some(3), None), ExecStatus::Failed),
            (exit(ExitCause::Exited, None, Some(9)), ExecStatus::Failed),
            (
                exit(ExitCause::TimedOut, None, Some(15)),
                ExecStatus::TimedOut,
            ),
            (
                exit(ExitCause::Cancelled, None, Some(15)),
                ExecStatus::Cancelled,
            ),
            (
                exit(ExitCause::KeeperKilled, None, None),
                ExecStatus::Failed,
            ),
        ];
        for (exit, status) in cases {
            assert_eq!(of_exit(&exit, &command(), false).status, status, "{exit:?}");
        }
        let killed = exit(ExitCause::Exited, None, Some(9));
        assert!(may_be_oom(&killed));
        assert_eq!(
            of_exit(&killed, &command(), true).status,
            ExecStatus::OomKilled
        );
    }
}
