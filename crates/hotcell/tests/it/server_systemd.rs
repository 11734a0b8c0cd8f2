//! What a service manager hands a server, and what it hears from it.

#![expect(clippy::unwrap_used, reason = "a test may fail here")]

use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::io::FdFlags;
use rustix::process::Signal;

use crate::support::{deadline, home::Home};

/// The socket on which systemd is told things.
struct Manager {
    socket: UnixDatagram,
    _directory: tempfile::TempDir,
    path: PathBuf,
}

impl Manager {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_millis(100)))
            .unwrap();
        Self {
            socket,
            _directory: directory,
            path,
        }
    }

    /// A home whose servers tell us things.
    fn home(&self) -> Home {
        Home::new().with("NOTIFY_SOCKET", self.path.to_str().unwrap())
    }

    /// Waits for a message that contains this line.
    fn hear(&self, line: &str) -> String {
        let until = Instant::now() + deadline();
        let mut heard = Vec::new();
        while Instant::now() < until {
            let mut message = [0; 4096];
            let Ok(length) = self.socket.recv(&mut message) else {
                continue;
            };
            let message = String::from_utf8_lossy(&message[..length]).into_owned();
            if message.lines().any(|said| said.starts_with(line)) {
                return message;
            }
            heard.push(message);
        }
        panic!("never heard {line}, but {heard:?}");
    }
}

#[test]
fn a_service_manager_hears_when_the_server_is_ready_and_when_it_stops() {
    let manager = Manager::new();
    let home = manager.home();
    let server = home.serve();
    let ready = manager.hear("READY=1");
    assert!(ready.contains(&format!("STATUS=serving at {}/mcp", server.url)));
    server.signal(Signal::TERM);
    let stopping = manager.hear("STOPPING=1");
    assert!(stopping.contains("EXTEND_TIMEOUT_USEC="), "{stopping}");
    assert!(server.wait().success());
}

#[test]
fn a_watchdog_is_told_again_and_again_that_the_server_lives() {
    let manager = Manager::new();
    let home = manager.home().with("WATCHDOG_USEC", "300000");
    let server = home.serve();
    for _ in 0..3 {
        manager.hear("WATCHDOG=1");
    }
    assert!(server.terminate().success());
}

#[test]
fn a_server_without_a_watchdog_does_not_feed_one() {
    let manager = Manager::new();
    let home = manager.home();
    let server = home.serve();
    manager.hear("READY=1");
    assert!(server.terminate().success());
    let mut message = [0; 4096];
    while let Ok(length) = manager.socket.recv(&mut message) {
        let said = String::from_utf8_lossy(&message[..length]);
        assert!(!said.contains("WATCHDOG"), "{said}");
    }
}

#[test]
fn a_server_takes_the_socket_that_it_is_handed() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    rustix::io::fcntl_setfd(&listener, FdFlags::empty()).unwrap();
    let number = listener.as_raw_fd().to_string();
    let home = Home::new()
        .with("LISTEN_FDS", "1")
        .with("LISTEN_FDS_FIRST_FD", &number);
    let server = home.serve();
    let address = listener.local_addr().unwrap();
    assert_eq!(server.url, format!("http://{address}"));
    server.said("service manager's socket");
    let mut client = server.client();
    client.ok("list_containers", serde_json::json!({}));
    assert!(server.terminate().success());
}

#[test]
fn a_socket_that_others_can_reach_is_refused_as_an_address_is() {
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    rustix::io::fcntl_setfd(&listener, FdFlags::empty()).unwrap();
    let number = listener.as_raw_fd().to_string();
    let home = Home::new()
        .with("LISTEN_FDS", "1")
        .with("LISTEN_FDS_FIRST_FD", &number);
    let output = home.run(&["serve"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && said.contains("--allow-anonymous"),
        "{said}"
    );
}
