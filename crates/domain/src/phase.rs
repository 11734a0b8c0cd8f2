//! The life of a container.
//!
//! ```text
//! Creating ◀──▶ Running
//!     │            │
//!     ├◀─▶ Halted ─┤
//!     │            │
//!     └────────────┴──▶ Stopping ──▶ Stopped
//!                  └───────┴───────▶ Failed
//! ```

/// Where a container is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// The engine is making it, or starting it again.
    Creating,
    /// Its agent runs.
    Running,
    /// It does not run, and nobody wanted its end: its files are kept.
    Halted,
    /// It was told to end.
    Stopping,
    /// It ended as it was told to.
    Stopped,
    /// It ended otherwise.
    Failed,
}

impl Phase {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Creating,
        Self::Running,
        Self::Halted,
        Self::Stopping,
        Self::Stopped,
        Self::Failed,
    ];

    /// Whether it has ended.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Stopped | Self::Failed)
    }

    /// The word callers read.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Creating => "creating",
            Self::Running => "running",
            Self::Halted => "halted",
            Self::Stopping => "stopping",
            Self::Stopped => "stopped",
            Self::Failed => "failed",
        }
    }

    /// Reads the word back.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|phase| phase.as_str() == word)
    }

    /// Every legal move is listed here and nowhere else.
    pub fn can_become(self, next: Self) -> bool {
        use Phase::{Creating, Failed, Halted, Running, Stopped, Stopping};
        matches!(
            (self, next),
            (Creating, Running | Halted)
                | (Running | Halted, Creating)
                | (Creating | Running | Halted, Stopping | Failed)
                | (Stopping, Stopped | Failed)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::Phase;

    #[test]
    fn nothing_leaves_an_end() {
        for next in Phase::ALL {
            assert!(!Phase::Stopped.can_become(next));
            assert!(!Phase::Failed.can_become(next));
            assert_eq!(Phase::parse(next.as_str()), Some(next));
        }
    }
}
