//! One launcher, shared by the tests of this program.

use std::process::ExitCode;

fn main() -> ExitCode {
    if hotcell_runtime::is_launcher() {
        return hotcell_runtime::run_launcher();
    }
    ExitCode::FAILURE
}
