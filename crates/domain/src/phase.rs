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

/// The phase of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// The engine is creating or restarting it.
    Creating,
    /// Its agent runs.
    Running,
    /// It stopped unexpectedly; its files are kept.
    Halted,
    /// It is being ended on request.
    Stopping,
    /// It was ended on request.
    Stopped,
    /// It ended unexpectedly.
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

    /// Whether the container has ended.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Stopped | Self::Failed)
    }

    /// The name in the API and the store.
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

    /// The inverse of `as_str`.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|phase| phase.as_str() == word)
    }

    /// All legal transitions are listed here, and only here.
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
