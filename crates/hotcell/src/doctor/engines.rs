//! Docker and Podman, asked over their sockets.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use super::Finding;

/// How long an engine may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);

/// An engine's answer is a few hundred bytes.
const ANSWER_BYTES_MAX: u64 = 64 << 10;

/// Asks both. Neither is needed for the embedded engine.
pub(super) fn probe() -> Vec<Finding> {
    vec![
        ask(
            "Docker",
            &docker_sockets(),
            "start it, or set DOCKER_HOST, if you want it as an engine",
        ),
        ask(
            "Podman",
            &podman_sockets(),
            "run `systemctl --user start podman.socket` if you want it as an engine",
        ),
    ]
}

fn ask(name: &'static str, sockets: &[PathBuf], fix: &str) -> Finding {
    let mut seen = "no socket found".to_owned();
    for socket in sockets {
        match version(socket) {
            Ok(version) => {
                return Finding::good(name, format!("{version} at {}", socket.display()));
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => seen = format!("{}: {error}", socket.display()),
        }
    }
    Finding::bad(
        name,
        seen,
        "not available as an engine (the embedded one does not need it)",
    )
    .fixed_by(fix)
}

fn docker_sockets() -> Vec<PathBuf> {
    let named = std::env::var("DOCKER_HOST").ok();
    let named = named.and_then(|host| host.strip_prefix("unix://").map(PathBuf::from));
    named
        .into_iter()
        .chain([PathBuf::from("/var/run/docker.sock")])
        .collect()
}

fn podman_sockets() -> Vec<PathBuf> {
    let user = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let user = user.map(|directory| directory.join("podman/podman.sock"));
    user.into_iter()
        .chain([PathBuf::from("/run/podman/podman.sock")])
        .collect()
}

/// The version in the engine's answer to `GET /version`.
fn version(socket: &PathBuf) -> std::io::Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
    stream.write_all(b"GET /version HTTP/1.0\r\nHost: engine\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
    let body = answer.windows(4).position(|window| window == b"\r\n\r\n");
    let body = body.map_or(&[][..], |at| &answer[at + 4..]);
    let told: serde_json::Value = serde_json::from_slice(body)?;
    let version = told["Version"].as_str().unwrap_or("unknown version");
    let api = told["ApiVersion"].as_str().unwrap_or("unknown");
    Ok(format!("{version} (API {api})"))
}
