//! The agent as a program on disk.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use hotcell_agent_image::AGENT;

/// Where the agent can be started from. It is written once and stays with the build.
///
/// All tests of a process get here before they start anything, so no other thread can
/// fork while the file is open for writing, which would make it busy.
pub fn program() -> PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(write).clone()
}

fn write() -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let program = directory.join("hotcell-agent");
    if fs::read(&program).is_ok_and(|bytes| bytes == AGENT) {
        return program;
    }
    // Another test process may do the same at this moment: the last rename wins.
    let new = directory.join(format!("hotcell-agent.{}", std::process::id()));
    let written = fs::write(&new, AGENT)
        .and_then(|()| fs::set_permissions(&new, fs::Permissions::from_mode(0o755)))
        .and_then(|()| fs::rename(&new, &program));
    written.expect("the build directory can be written");
    program
}
