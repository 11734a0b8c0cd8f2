//! What we exit with, where the command's own exit code does not say it.

/// What `timeout` exits with.
pub(crate) const TIMED_OUT: u8 = 124;

/// Hotcell itself could not do it, as opposed to the command in the container.
pub(crate) const FAILED: u8 = 125;

/// What shells exit with for a command that cannot be executed, or is not there.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// The same.
pub(crate) const NOT_FOUND: u8 = 127;

/// Added to a signal's number.
pub(crate) const SIGNALLED: u8 = 128;

/// What a shell reports of a process whose reader went away.
pub(crate) const BROKEN_PIPE: u8 = 13;
