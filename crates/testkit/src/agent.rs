//! The agent as a program on disk.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use hotcell_agent_image::AGENT;

/// The path of the agent's program. It is written once and stays with the build.
pub fn program() -> PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(write).clone()
}

/// An agent that only supports protocol version 1, like one that an older server left in a
/// container.
pub fn older_program() -> PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(write_older).clone()
}

fn write_older() -> PathBuf {
    let current = program();
    let program = current.with_file_name("hotcell-agent-older");
    let current = current
        .to_str()
        .expect("a build directory has a plain path");
    let script = format!("#!/bin/sh\nexec '{current}' \"$@\" --protocol-max 1\n");
    replace(&program, script.as_bytes());
    program
}

fn write() -> PathBuf {
    let directory = build_directory();
    let program = directory.join("hotcell-agent");
    replace(&program, AGENT);
    program
}

/// Writes a program to a path, unless it is there.
fn replace(program: &Path, bytes: &[u8]) {
    if fs::read(program).is_ok_and(|found| found == bytes) {
        return;
    }
    // Another test process may do the same now: the last rename wins.
    let new = program.with_extension(std::process::id().to_string());
    write_elsewhere(&new, bytes)
        .and_then(|()| fs::set_permissions(&new, fs::Permissions::from_mode(0o755)))
        .and_then(|()| fs::rename(&new, program))
        .expect("the build directory can be written");
}

/// Cargo's directory for test files, which it passes to programs but not to libraries.
fn build_directory() -> PathBuf {
    let this = std::env::current_exe().expect("this program has a path");
    // target/debug/deps/it-0123456789abcdef
    let target = this.ancestors().nth(3).unwrap_or(Path::new("/tmp"));
    let directory = target.join("tmp");
    fs::create_dir_all(&directory).expect("the build directory can be written");
    directory
}

/// Writes the program from a child process. In this process, another thread could fork while the
/// file is open for writing; its child would keep it open, and then executing the program fails
/// with ETXTBSY.
fn write_elsewhere(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut writer = Command::new("sh")
        .args(["-c", "exec cat >\"$0\""])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()?;
    let mut pipe = writer.stdin.take().expect("it was asked for");
    let written = pipe.write_all(bytes);
    drop(pipe);
    let status = writer.wait()?;
    written?;
    if !status.success() {
        return Err(std::io::Error::other(format!("cat: {status}")));
    }
    Ok(())
}
