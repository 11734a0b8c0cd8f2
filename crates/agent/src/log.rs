//! The agent's few words to its log, which is a file of the host.
//!
//! What runs in the container can cause a line, so their number is bounded; and a full
//! disk must not end PID 1, so a line that cannot be written is dropped.

use std::fmt::Arguments;
use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Lines written in the agent's whole life.
const LINES_MAX: usize = 1000;

static LINES: AtomicUsize = AtomicUsize::new(0);

/// Writes one line to stderr.
pub(crate) fn line(message: Arguments<'_>) {
    if LINES.fetch_add(1, Ordering::Relaxed) < LINES_MAX {
        let _ = writeln!(std::io::stderr(), "{message}");
    }
}
