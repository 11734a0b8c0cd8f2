//! The agent's program: see the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    hotcell_agent::run(std::env::args_os().skip(1))
}
