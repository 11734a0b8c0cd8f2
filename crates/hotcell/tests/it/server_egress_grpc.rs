//! Egress of gRPC: HTTP/2 with bodies both ways at once, and trailers.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use hotcell_testkit::{Need, skip};
use serde_json::{Value, json};

use crate::server_egress::{output, run};
use crate::support::home::Home;

const HOST: &str = "grpc.example.com";
const PROGRAM: &str = include_str!("grpc_echo.py");

/// The Python of the `host` image.
const PYTHON: &str = "/usr/bin/python3";

/// A gRPC server on loopback. Dropped, it is ended.
struct Origin {
    process: Child,
    port: u16,
}

impl Origin {
    /// Starts it with a certificate of its own, which it writes to this directory.
    fn start(directory: &Path) -> Self {
        let made = rcgen::generate_simple_self_signed([HOST.to_owned()]).expect("a certificate");
        let files = [
            ("grpc.pem", made.cert.pem()),
            ("grpc.key", made.signing_key.serialize_pem()),
        ];
        let paths = files.map(|(name, text)| {
            let path = directory.join(name);
            std::fs::write(&path, text).expect("it is ours");
            path
        });
        let mut process = Command::new(PYTHON)
            .args(["-c", PROGRAM, "serve"])
            .args(paths)
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut line = String::new();
        let stdout = process.stdout.take().expect("it is a pipe");
        BufReader::new(stdout).read_line(&mut line).expect("text");
        let port = line.trim().parse().expect("a port");
        Self { process, port }
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn has_grpc() -> bool {
    let asked = Command::new(PYTHON).args(["-c", "import grpc"]).output();
    asked.is_ok_and(|asked| asked.status.success())
}

#[test]
fn grpc_streams_both_ways_through_an_opened_connection_that_adds_a_secret() {
    if !has_grpc() {
        return skip(Need::Programs, "no python3-grpcio");
    }
    let home = Home::new();
    let origin = Origin::start(home.path());
    let config = format!(
        "[egress]\nprofiles = ['work']\nhosts = {{ '{HOST}:443' = '127.0.0.1:{}' }}\n[egress.work]\n\
         [[egress.work.rule]]\nhost = '{HOST}'\naccess = ['POST /echo.Echo/*']\nsecret = 'example'\n\
         [secret.example]\nfrom = 'env:REAL_TOKEN'\nheader = 'Authorization: Bearer {{}}'\n",
        origin.port
    );
    let path = home.path().join("grpc.toml");
    std::fs::write(&path, config).expect("it is ours");
    let certificate = home.path().join("grpc.pem").display().to_string();
    let home = home
        .with("HOTCELL_CONFIG", &path.display().to_string())
        .with("SSL_CERT_FILE", &certificate)
        .with("REAL_TOKEN", "tok_s3cret_value");
    let server = home.serve();
    let mut client = server.client();
    client.ok("spawn", json!({ "alias": "cell", "egress": "work" }));
    let program = json!({ "container_id": "cell", "path": "echo.py", "content": PROGRAM });
    client.ok("fs_write", program);
    let ran = run(
        &mut client,
        "cell",
        &format!("{PYTHON} echo.py call {HOST} 2>/dev/null"),
    );
    let said: Value = serde_json::from_str(&output(&ran)).unwrap_or_else(|_| panic!("{ran}"));
    assert_eq!(said["one"], 100_000, "{said}");
    // What follows a body arrives, but for what echoes the secret.
    assert_eq!(said["last"], json!({"known": "yes"}), "{said}");
    assert_eq!(said["chat"], json!(["0!", "1!", "2!"]), "{said}");
    assert_eq!(
        said["fail"],
        json!(["NOT_FOUND", "there is none"]),
        "{said}"
    );
    assert_eq!(said["refused"][0], "PERMISSION_DENIED", "{said}");
    let denied = ran["egress"]["denied"].to_string();
    assert!(denied.contains(HOST), "{ran}");
    assert!(server.terminate().success());
    // Before its files.
    drop(origin);
}
