//! A launcher and nothing else, for the tests of this crate.

use std::process::ExitCode;

fn main() -> ExitCode {
    if hotcell_runtime::is_launcher() {
        return hotcell_runtime::run_launcher();
    }
    ExitCode::FAILURE
}
