//! Debian's `docker-registry`, on a loopback port and with its own directory.

use std::hash::{BuildHasher as _, RandomState};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use hotcell_testkit::image::{Made, digest};

use super::{DEADLINE, is_installed};

const PROGRAM: &str = "docker-registry";

/// The password in this line is `U*U`.
const HTPASSWD: &str = "ann:$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW\n";

/// Stopped and removed when dropped.
pub(crate) struct Registry {
    pub host: String,
    process: Child,
    _dir: tempfile::TempDir,
    is_closed: bool,
}

/// An address that nobody else takes before the registry does: a free port at one of millions of
/// loopback addresses.
fn own_address() -> SocketAddr {
    let [one, two, three, ..] = RandomState::new().hash_one(()).to_ne_bytes();
    let ip = Ipv4Addr::new(127, one | 1, two, three | 1);
    let free = TcpListener::bind((ip, 0)).expect("a port");
    free.local_addr().expect("an address")
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Registry {
    /// Starts a registry; `None` if it is not installed, and the test is skipped.
    pub(crate) async fn start(is_closed: bool) -> Option<Self> {
        if !is_installed(PROGRAM) {
            let reason = format!("{PROGRAM} is not installed");
            hotcell_testkit::skip(hotcell_testkit::Need::Registry, &reason);
            return None;
        }
        // The client that pushes needs a provider too; the first one in the process is used.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let dir = tempfile::tempdir().expect("a temporary directory");
        let host = own_address().to_string();
        let (root, users) = (dir.path().join("data"), dir.path().join("users"));
        std::fs::write(&users, HTPASSWD).expect("a file");
        let auth = if is_closed {
            format!(
                "auth:\n  htpasswd:\n    realm: test\n    path: {}\n",
                users.display()
            )
        } else {
            String::new()
        };
        let config = format!(
            "version: 0.1\nlog:\n  level: error\n  accesslog:\n    disabled: true\nstorage:\n  \
             filesystem:\n    rootdirectory: {}\nhttp:\n  addr: {host}\n{auth}",
            root.display()
        );
        let file = dir.path().join("config.yml");
        std::fs::write(&file, config).expect("a file");
        let process = Command::new(PROGRAM)
            .arg("serve")
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the registry starts");
        let registry = Self {
            host,
            process,
            _dir: dir,
            is_closed,
        };
        registry.ready().await;
        Some(registry)
    }

    async fn ready(&self) {
        let start = Instant::now();
        let url = format!("http://{}/v2/", self.host);
        while reqwest::get(&url).await.is_err() {
            assert!(start.elapsed() < DEADLINE, "the registry does not start");
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }

    /// Pushes an image as `name:latest`; returns its reference.
    pub(crate) async fn push(&self, name: &str, made: &Made) -> String {
        for blob in made
            .layers
            .iter()
            .map(|one| &one.blob)
            .chain([&made.config])
        {
            self.push_blob(name, blob).await;
        }
        self.push_manifest(name, "latest", &made.manifest).await
    }

    pub(crate) async fn push_manifest(&self, name: &str, tag: &str, manifest: &[u8]) -> String {
        let parsed: serde_json::Value = serde_json::from_slice(manifest).expect("JSON");
        let kind = parsed["mediaType"]
            .as_str()
            .expect("a media type")
            .to_owned();
        let url = format!("http://{}/v2/{name}/manifests/{tag}", self.host);
        let request = self.authorized(reqwest::Client::new().put(url));
        let request = request.header("content-type", kind).body(manifest.to_vec());
        let answer = request.send().await.expect("an answer");
        assert_eq!(
            answer.status().as_u16(),
            201,
            "{}",
            answer.text().await.expect("text")
        );
        format!("{}/{name}:{tag}", self.host)
    }

    async fn push_blob(&self, name: &str, blob: &[u8]) {
        let http = reqwest::Client::new();
        let url = format!("http://{}/v2/{name}/blobs/uploads/", self.host);
        let answer = self
            .authorized(http.post(url))
            .send()
            .await
            .expect("an answer");
        assert_eq!(answer.status().as_u16(), 202);
        let place = answer.headers()["location"]
            .to_str()
            .expect("text")
            .to_owned();
        let url = format!("{place}&digest={}", digest(blob));
        let request = self.authorized(http.put(url)).body(blob.to_vec());
        let answer = request.send().await.expect("an answer");
        assert_eq!(answer.status().as_u16(), 201);
    }

    fn authorized(&self, request: reqwest::RequestBuilder) -> reqwest::RequestBuilder {
        if self.is_closed {
            return request.basic_auth("ann", Some("U*U"));
        }
        request
    }
}
