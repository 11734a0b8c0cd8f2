//! The life of an exec.
//!
//! ```text
//! Queued ──▶ Running ──▶ Succeeded | Failed | TimedOut | Cancelled | OomKilled | Lost
//!    └─────────────────▶ Cancelled | Failed | Lost
//! ```

/// Where an exec is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ExecStatus {
    /// It waits for a place.
    Queued,
    /// It runs.
    Running,
    /// It exited with 0.
    Succeeded,
    /// It exited with something else, was killed by a signal, or could not be started.
    Failed,
    /// Its time was up.
    TimedOut,
    /// It was cancelled.
    Cancelled,
    /// Memory ran out and the kernel killed it.
    OomKilled,
    /// Its container ended under it.
    Lost,
}

/// Where an exec wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stream {
    /// Standard output, or the terminal.
    Stdout,
    /// Standard error.
    Stderr,
}

/// How an exec ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecEnd {
    /// A final status.
    pub status: ExecStatus,
    /// Its exit code, if it exited.
    pub exit_code: Option<u8>,
    /// The signal that ended it, if one did.
    pub signal: Option<u8>,
    /// Why, where the status alone does not say it.
    pub reason: Option<String>,
    /// Why the kernel did not start it, if that is how it ended.
    pub not_started: Option<NotStarted>,
    /// What it used, where that is known.
    pub usage: Option<Usage>,
}

/// Why the kernel did not start a command, as far as programs tell these apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NotStarted {
    /// There is no such program, or not the interpreter it needs.
    NoProgram,
    /// What is there cannot be executed.
    NotExecutable,
    /// Its directory, its arguments, a bound: the reason says which.
    Other,
}

/// What an exec used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// From start to end.
    pub wall_ms: u64,
    /// Processor time in user space.
    pub user_ms: u64,
    /// Processor time in the kernel.
    pub system_ms: u64,
    /// The most memory one of its processes had.
    pub max_rss_bytes: u64,
    /// Written to standard output.
    pub stdout_bytes: u64,
    /// Written to standard error.
    pub stderr_bytes: u64,
}

impl Stream {
    /// The word callers read.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

impl NotStarted {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::NoProgram, Self::NotExecutable, Self::Other];

    /// The word callers read.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoProgram => "no_program",
            Self::NotExecutable => "not_executable",
            Self::Other => "other",
        }
    }

    /// Reads the word back.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|cause| cause.as_str() == word)
    }
}

impl ExecStatus {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Queued,
        Self::Running,
        Self::Succeeded,
        Self::Failed,
        Self::TimedOut,
        Self::Cancelled,
        Self::OomKilled,
        Self::Lost,
    ];

    /// Whether it has ended.
    pub fn is_final(self) -> bool {
        !matches!(self, Self::Queued | Self::Running)
    }

    /// Every legal move is listed here and nowhere else.
    pub fn can_become(self, next: Self) -> bool {
        match self {
            Self::Queued => matches!(
                next,
                Self::Running | Self::Cancelled | Self::Failed | Self::Lost
            ),
            Self::Running => next.is_final(),
            Self::Succeeded
            | Self::Failed
            | Self::TimedOut
            | Self::Cancelled
            | Self::OomKilled
            | Self::Lost => false,
        }
    }

    /// The word callers read.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::TimedOut => "timed_out",
            Self::Cancelled => "cancelled",
            Self::OomKilled => "oom_killed",
            Self::Lost => "lost",
        }
    }

    /// Reads the word back.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == word)
    }
}

#[cfg(test)]
mod tests {
    use super::ExecStatus;

    #[test]
    fn nothing_leaves_an_end_and_every_word_reads_back() {
        for status in ExecStatus::ALL {
            assert_eq!(ExecStatus::parse(status.as_str()), Some(status));
            for next in ExecStatus::ALL {
                assert!(!(status.is_final() && status.can_become(next)));
            }
        }
    }
}
