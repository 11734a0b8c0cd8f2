//! What the operator chose.

use std::path::PathBuf;
use std::time::Duration;

/// What becomes of operations while events cannot be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnFailure {
    /// Operations that leave an event are refused.
    #[default]
    Stop,
    /// They go on. Events wait for the disk; those that find the queue full are counted.
    Continue,
}

/// What the operator chose.
#[derive(Debug, Clone)]
pub struct LedgerSettings {
    /// Where segments are.
    pub directory: PathBuf,
    /// A segment that is longer is sealed.
    pub segment_bytes: u64,
    /// A segment that is older is sealed.
    pub segment_age: Duration,
    /// Sealed segments that are older are removed; `None`: never.
    pub retention: Option<Duration>,
    /// What all segments may take of the disk; `None`: no bound. Removes sealed ones only.
    pub bytes_max: Option<u64>,
    /// What becomes of operations while events cannot be written.
    pub on_failure: OnFailure,
    /// Whether operations that only look are recorded too.
    pub records_reads: bool,
}

impl LedgerSettings {
    /// The usual settings.
    pub fn new(directory: PathBuf) -> Self {
        Self {
            directory,
            segment_bytes: 16 << 20,
            segment_age: Duration::from_hours(24),
            retention: Some(Duration::from_hours(24 * 90)),
            bytes_max: Some(1 << 30),
            on_failure: OnFailure::Stop,
            records_reads: false,
        }
    }
}
