//! The life of a container.
//!
//! ```text
//! Creating ──▶ Running ──▶ Stopping ──▶ Stopped
//!     └───────────┴────────────┴──────▶ Failed
//! ```

/// Where a container is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// The engine is making it.
    Creating,
    /// Its agent runs.
    Running,
    /// It was told to end.
    Stopping,
    /// It ended as it was told to.
    Stopped,
    /// It ended otherwise.
    Failed,
}

impl Phase {
    /// Every legal move is listed here and nowhere else.
    pub fn can_become(self, next: Self) -> bool {
        use Phase::{Creating, Failed, Running, Stopped, Stopping};
        matches!(
            (self, next),
            (Creating, Running | Failed)
                | (Running, Stopping | Failed)
                | (Stopping, Stopped | Failed)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::Phase;

    #[test]
    fn nothing_leaves_an_end() {
        let all = [
            Phase::Creating,
            Phase::Running,
            Phase::Stopping,
            Phase::Stopped,
            Phase::Failed,
        ];
        for next in all {
            assert!(!Phase::Stopped.can_become(next));
            assert!(!Phase::Failed.can_become(next));
        }
    }
}
