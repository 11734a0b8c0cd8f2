//! Settings of the ledger.

use std::path::PathBuf;
use std::time::Duration;

/// What happens to operations while events cannot be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnFailure {
    /// Operations that must be recorded are refused.
    #[default]
    Stop,
    /// Operations continue. Events stay queued; those that do not fit are dropped and counted.
    Continue,
}

/// Settings of the ledger.
#[derive(Debug, Clone)]
pub struct LedgerSettings {
    /// The directory of segments.
    pub directory: PathBuf,
    /// A segment is sealed at this size.
    pub segment_bytes: u64,
    /// A segment is sealed at this age.
    pub segment_age: Duration,
    /// Sealed segments are removed at this age; `None`: never.
    pub retention: Option<Duration>,
    /// Disk space for all segments; `None`: no limit. Only sealed ones are removed.
    pub bytes_max: Option<u64>,
    /// What happens to operations while events cannot be written.
    pub on_failure: OnFailure,
    /// Whether read-only operations are recorded, too.
    pub records_reads: bool,
}

impl LedgerSettings {
    /// The default settings.
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
