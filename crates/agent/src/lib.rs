//! PID 1 of every container: runs commands for the server and reports what they do.
//!
//! ```text
//!  server ──gRPC over a unix socket──▶ service ──▶ exec: one per command, output held until acknowledged
//!                                                   │
//!                      agent (PID 1) ──fork──▶ keeper ──▶ leader ──▶ its descendants
//! ```
//!
//! Two invariants: the agent's only children are keepers, and every process of an exec is a
//! descendant of its keeper, so the process tree of an exec is always well defined. Everything
//! below a keeper is hostile: it may kill, stop or flood, and the agent keeps serving the others.

#![deny(unsafe_code)]
#![expect(
    missing_docs,
    reason = "a program: only its own tests and fuzz targets use the library"
)]

mod args;
mod connect;
pub mod exec;
pub mod files;
mod handshake;
mod init;
mod log;
mod netlink;
mod privilege;
pub mod process;
mod serve;
mod service;
#[expect(
    unsafe_code,
    reason = "the one file that talks to the kernel without a safe wrapper"
)]
mod sys;
mod trust;
mod tunnel;
mod warm;

use std::ffi::OsString;
use std::process::ExitCode;

use args::Command;

/// Runs the agent. `args` does not include the program name.
pub fn run(args: impl Iterator<Item = OsString>) -> ExitCode {
    // First of all: from here on no process of the same user can trace us or read our memory. We
    // must not serve without this; it works on every supported kernel.
    if init::deny_tracing().is_err() {
        return ExitCode::FAILURE;
    }
    let outcome = match args::parse(args) {
        Ok(Command::Init(options)) => init::run(&options),
        Ok(Command::Connect(target)) => connect::run(&target),
        Err(error) => {
            log::line(format_args!("{error}\n{}", args::USAGE));
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log::line(format_args!("hotcell-agent: {error}"));
            ExitCode::FAILURE
        }
    }
}
