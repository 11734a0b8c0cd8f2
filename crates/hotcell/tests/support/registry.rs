//! Debian's `docker-registry`, on a loopback port and in a directory of its own.

use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

const PROGRAM: &str = "/usr/bin/docker-registry";

/// The credentials for a registry that requires them.
pub(crate) const USER: &str = "ann";
pub(crate) const PASSWORD: &str = "pw";
const HTPASSWD: &str = "ann:$2y$05$abcdefghijklmnopqrstuuHIrMEWpUCQe2YqFR3sXwQ75u4od..9q\n";

/// A running registry. Dropping it stops it and deletes its images.
pub(crate) struct Registry {
    /// A loopback address that no other test uses, and the port.
    pub host: String,
    process: Child,
    _directory: tempfile::TempDir,
}

impl Registry {
    /// Starts a registry. Returns `None` and skips the test where it is not installed.
    pub(crate) fn start() -> Option<Self> {
        Self::start_with(|_| String::new())
    }

    /// Starts a registry that requires a password.
    pub(crate) fn start_closed() -> Option<Self> {
        Self::start_with(|directory| {
            let users = directory.join("users");
            std::fs::write(&users, HTPASSWD).expect("a file");
            let users = users.display();
            format!("auth:\n  htpasswd:\n    realm: test\n    path: {users}\n")
        })
    }

    fn start_with(auth: impl FnOnce(&Path) -> String) -> Option<Self> {
        if !Path::new(PROGRAM).exists() {
            let reason = "docker-registry is not installed";
            hotcell_testkit::skip(hotcell_testkit::Need::Registry, reason);
            return None;
        }
        let directory = super::scratch();
        let host = super::own_address().to_string();
        let config = format!(
            "version: 0.1\nlog:\n  level: error\n  accesslog:\n    disabled: true\nstorage:\n  \
             filesystem:\n    rootdirectory: {}\nhttp:\n  addr: {host}\n{}",
            directory.path().join("data").display(),
            auth(directory.path())
        );
        let file = directory.path().join("config.yml");
        std::fs::write(&file, config).expect("a file");
        let process = Command::new(PROGRAM)
            .arg("serve")
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the registry starts");
        super::wait_until("the registry listens", || TcpStream::connect(&host).is_ok());
        Some(Self {
            host,
            process,
            _directory: directory,
        })
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
