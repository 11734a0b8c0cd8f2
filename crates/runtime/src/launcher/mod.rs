//! The launcher: a small process with one thread that starts every container.
//!
//! After a clone, a multi-threaded process must neither allocate nor lock, so the server starts its
//! own program a second time, as the launcher, before it does anything else. The two communicate
//! over one socket:
//!
//! ```text
//! server                      launcher
//!   │── init program ────────────▶│  once; a sealed memfd
//!   │◀──────────────────── ready ─│
//!   │── spec, log, descriptors ──▶│  clone3 ▶ container
//!   │◀── pid, pidfd, cgroup ──────│  or why not
//! ```
//!
//! The launcher exits when the socket closes; containers continue as children of the host's init.

mod client;
mod error;
mod server;
mod wire;

pub use client::{Launched, Launcher};
pub use error::LaunchError;
pub use server::run_launcher;

/// `argv[0]` of the launcher, by which a process knows that it is one.
pub const LAUNCHER_ARGV0: &str = "hotcell-launcher";

/// Most descriptors that can be passed to a container, besides its log.
pub const FDS_MAX: usize = 16;

/// Whether this process was started as the launcher. If so, call [`run_launcher`] before starting
/// any thread.
pub fn is_launcher() -> bool {
    std::env::args_os()
        .next()
        .is_some_and(|name| name == LAUNCHER_ARGV0)
}
