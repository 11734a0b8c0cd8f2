//! The agent's program; the library has the code.

use std::process::ExitCode;

fn main() -> ExitCode {
    hotcell_agent::run(std::env::args_os().skip(1))
}
