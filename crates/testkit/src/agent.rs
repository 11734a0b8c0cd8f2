//! The agent as a program on disk.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use hotcell_agent_image::AGENT;

/// Where the agent can be started from. It is written once and stays with the build.
pub fn program() -> PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(write).clone()
}

fn write() -> PathBuf {
    let directory = build_directory();
    let program = directory.join("hotcell-agent");
    if fs::read(&program).is_ok_and(|bytes| bytes == AGENT) {
        return program;
    }
    // Another test process may do the same at this moment: the last rename wins.
    let new = directory.join(format!("hotcell-agent.{}", std::process::id()));
    write_elsewhere(&new)
        .and_then(|()| fs::set_permissions(&new, fs::Permissions::from_mode(0o755)))
        .and_then(|()| fs::rename(&new, &program))
        .expect("the build directory can be written");
    program
}

/// Cargo's directory for what tests leave, which it names to programs but not to libraries.
fn build_directory() -> PathBuf {
    let this = std::env::current_exe().expect("this program has a path");
    // target/debug/deps/it-0123456789abcdef
    let target = this.ancestors().nth(3).unwrap_or(Path::new("/tmp"));
    let directory = target.join("tmp");
    fs::create_dir_all(&directory).expect("the build directory can be written");
    directory
}

/// Writes the program in a process of its own. In this one, another thread may fork while the
/// file is open for writing: its child would keep it open, and a program that is open for writing
/// cannot be started.
fn write_elsewhere(path: &Path) -> std::io::Result<()> {
    let mut writer = Command::new("sh")
        .args(["-c", "exec cat >\"$0\""])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()?;
    let mut pipe = writer.stdin.take().expect("it was asked for");
    let written = pipe.write_all(AGENT);
    drop(pipe);
    let status = writer.wait()?;
    written?;
    if !status.success() {
        return Err(std::io::Error::other(format!("cat: {status}")));
    }
    Ok(())
}
