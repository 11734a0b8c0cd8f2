//! Programs that are not in `/usr`, brought into containers: those of `tests/clients/install`, and cargo with the
//! Rust that builds this.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use hotcell_testkit::{Need, skip_part};

use super::server::Server;

/// Where containers find them.
pub(crate) const PATH: &str = "/workspace/programs/bin:/workspace/rust/bin";
pub(crate) const PYTHON_PATH: &str = "/workspace/programs/python";

/// Brings node24, deno, bun, uv and libraries for Python; false if they are not installed.
pub(crate) fn bring_clients(server: &Server, container: &str) -> bool {
    bring_installed(server, container, &["programs"], "programs/python/requests")
}

/// Brings uv alone.
pub(crate) fn bring_uv(server: &Server, container: &str) -> bool {
    bring_installed(server, container, &["programs/bin/uv"], "programs/bin/uv")
}

/// Where `tests/clients/install` installs.
pub(crate) fn clients() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target"),
        PathBuf::from,
    );
    target.join("clients")
}

fn bring_installed(server: &Server, container: &str, names: &[&str], needed: &str) -> bool {
    let clients = clients();
    if !clients.join(needed).exists() {
        skip_part(Need::Clients, "see tests/clients/install");
        return false;
    }
    bring(server, container, clients.as_os_str(), names);
    true
}

/// Brings cargo alone; false if there is no Rust.
pub(crate) fn bring_cargo(server: &Server, container: &str) -> bool {
    bring_rust(server, container, &["rust/bin/cargo"])
}

/// Brings what cargo needs to resolve and to download, which is not all that it needs to compile.
pub(crate) fn bring_cargo_and_rustc(server: &Server, container: &str) -> bool {
    let names = ["rust/bin/cargo", "rust/bin/rustc", "rust/lib"];
    bring_rust(server, container, &names)
}

fn bring_rust(server: &Server, container: &str, names: &[&str]) -> bool {
    let root = Command::new("rustc").args(["--print", "sysroot"]).output();
    let root = root.ok().filter(|root| root.status.success());
    let root = root.and_then(|root| String::from_utf8(root.stdout).ok());
    let Some(root) = root else {
        return false;
    };
    // Under a name of its own.
    let scratch = super::scratch();
    let link = scratch.path().join("rust");
    std::os::unix::fs::symlink(root.trim(), link).expect("a new name");
    bring(server, container, scratch.path().as_os_str(), names);
    true
}

/// Sends files of a directory into a workspace.
fn bring(server: &Server, container: &str, directory: &OsStr, names: &[&str]) {
    let mut packing = Command::new("tar")
        .arg("--directory")
        .arg(directory)
        .args(["--create", "--exclude=rustlib"])
        .args(names)
        .stdout(Stdio::piped())
        .spawn()
        .expect("tar");
    let url = format!("{}/v1/containers/{container}/archive", server.url);
    let sent = Command::new("curl")
        .args(["-sS", "--fail", "--upload-file", "-", &url])
        .stdin(packing.stdout.take().expect("a pipe"))
        .stdout(Stdio::null())
        .status();
    assert!(packing.wait().expect("it is ours").success());
    assert!(sent.expect("curl").success());
}
