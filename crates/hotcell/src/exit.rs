//! Our exit code when we ran a command: its own code, or one that says why there is none.

use hotcell_domain::{ExecEnd, ExecStatus, NotStarted};

/// As the program `timeout` exits.
pub(crate) const TIMED_OUT: u8 = 124;

/// Hotcell itself failed, as opposed to the command in the container.
pub(crate) const FAILED: u8 = 125;

/// As shells exit for a file that cannot be executed.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// As shells exit for a command that does not exist.
pub(crate) const NOT_FOUND: u8 = 127;

/// Added to the number of the signal that killed the command.
pub(crate) const SIGNALLED: u8 = 128;

/// SIGPIPE: the reader of our output has gone away.
pub(crate) const BROKEN_PIPE: u8 = 13;

/// Our exit code for a result. `stopped_by`: the signal to us that ended the command.
pub(crate) fn code(end: &ExecEnd, stopped_by: Option<u8>) -> u8 {
    if let Some(signal) = stopped_by {
        return SIGNALLED.saturating_add(signal);
    }
    match (end.status, end.exit_code, end.signal) {
        (ExecStatus::TimedOut, ..) => TIMED_OUT,
        (_, Some(code), _) => code,
        (_, None, Some(signal)) => SIGNALLED.saturating_add(signal),
        (_, None, None) => match end.not_started {
            Some(NotStarted::NoProgram) => NOT_FOUND,
            Some(NotStarted::NotExecutable | NotStarted::Other) => NOT_EXECUTABLE,
            None => FAILED,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(status: ExecStatus) -> ExecEnd {
        ExecEnd {
            status,
            exit_code: None,
            signal: None,
            reason: None,
            not_started: None,
            usage: None,
        }
    }

    #[test]
    fn a_command_that_ran_exits_with_its_code_or_as_a_shell_reports_its_signal() {
        let exited = ExecEnd {
            exit_code: Some(3),
            ..end(ExecStatus::Failed)
        };
        let killed = ExecEnd {
            signal: Some(9),
            ..end(ExecStatus::OomKilled)
        };
        assert_eq!((code(&exited, None), code(&killed, None)), (3, 137));
        // The signal that stopped it takes precedence.
        assert_eq!(
            (code(&exited, Some(2)), code(&killed, Some(15))),
            (130, 143)
        );
    }

    #[test]
    fn what_was_not_started_exits_as_in_a_shell() {
        for (cause, expected) in [
            (Some(NotStarted::NoProgram), NOT_FOUND),
            (Some(NotStarted::NotExecutable), NOT_EXECUTABLE),
            (Some(NotStarted::Other), NOT_EXECUTABLE),
            (None, FAILED),
        ] {
            let end = ExecEnd {
                not_started: cause,
                ..end(ExecStatus::Failed)
            };
            assert_eq!(code(&end, None), expected, "{cause:?}");
        }
    }

    #[test]
    fn what_took_too_long_exits_as_timeout_does_however_it_ended_then() {
        let end = ExecEnd {
            signal: Some(15),
            ..end(ExecStatus::TimedOut)
        };
        assert_eq!(code(&end, None), TIMED_OUT);
    }
}
