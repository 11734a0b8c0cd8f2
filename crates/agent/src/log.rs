//! The agent's log, a file on the host.
//!
//! Processes in the container can cause log lines, so their number is limited. A line that cannot
//! be written is dropped, because a full disk must not end PID 1.

use std::fmt::Arguments;
use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Lines written during the agent's lifetime; later ones are dropped.
const LINES_MAX: usize = 1000;

static LINES: AtomicUsize = AtomicUsize::new(0);

/// Writes one line to stderr.
pub(crate) fn line(message: Arguments<'_>) {
    if LINES.fetch_add(1, Ordering::Relaxed) < LINES_MAX {
        let _ = writeln!(std::io::stderr(), "{message}");
    }
}
