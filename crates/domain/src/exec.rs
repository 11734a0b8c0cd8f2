//! The life of an exec.
//!
//! ```text
//! Queued ──▶ Running ──▶ Succeeded | Failed | TimedOut | Cancelled | OomKilled | DiskLimit | Lost
//!    └─────────────────▶ Cancelled | Failed | Lost
//! ```

/// The status of an exec.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ExecStatus {
    /// It waits for a free slot.
    Queued,
    /// It runs.
    Running,
    /// It exited with 0.
    Succeeded,
    /// It exited with another code, was killed by a signal, or could not be started.
    Failed,
    /// It was ended after its timeout.
    TimedOut,
    /// It was cancelled.
    Cancelled,
    /// The kernel's OOM killer killed it.
    OomKilled,
    /// It was ended because its container exceeded its disk limit.
    DiskLimit,
    /// Its container ended first.
    Lost,
}

/// The stream to which an exec wrote.
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
    /// The signal that killed it, if any.
    pub signal: Option<u8>,
    /// The reason, where the status alone is not enough.
    pub reason: Option<String>,
    /// Why it could not be started, if that is how it ended.
    pub not_started: Option<NotStarted>,
    /// Resources used, if known.
    pub usage: Option<Usage>,
}

/// Why a command could not be started, as far as the exit codes 126 and 127 distinguish it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NotStarted {
    /// The program or its interpreter does not exist.
    NoProgram,
    /// The file is not executable.
    NotExecutable,
    /// Working directory, arguments or a limit; the reason says which.
    Other,
}

/// Resources used by an exec.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// From start to end.
    pub wall_ms: u64,
    /// CPU time in user space.
    pub user_ms: u64,
    /// CPU time in the kernel.
    pub system_ms: u64,
    /// The largest resident size of one of its processes.
    pub max_rss_bytes: u64,
    /// Written to standard output.
    pub stdout_bytes: u64,
    /// Written to standard error.
    pub stderr_bytes: u64,
}

impl Stream {
    /// The name in the API.
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

    /// The name in the API and the store.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoProgram => "no_program",
            Self::NotExecutable => "not_executable",
            Self::Other => "other",
        }
    }

    /// The inverse of `as_str`.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|cause| cause.as_str() == word)
    }
}

impl ExecStatus {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Queued,
        Self::Running,
        Self::Succeeded,
        Self::Failed,
        Self::TimedOut,
        Self::Cancelled,
        Self::OomKilled,
        Self::DiskLimit,
        Self::Lost,
    ];

    /// Whether the exec has ended.
    pub fn is_final(self) -> bool {
        !matches!(self, Self::Queued | Self::Running)
    }

    /// All legal transitions are listed here, and only here.
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
            | Self::DiskLimit
            | Self::Lost => false,
        }
    }

    /// The name in the API and the store.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::TimedOut => "timed_out",
            Self::Cancelled => "cancelled",
            Self::OomKilled => "oom_killed",
            Self::DiskLimit => "disk_limit",
            Self::Lost => "lost",
        }
    }

    /// The inverse of `as_str`.
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
