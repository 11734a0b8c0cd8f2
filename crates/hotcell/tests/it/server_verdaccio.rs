//! A registry that other people made: npm installs from verdaccio through egress.

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use hotcell_testkit::{Need, skip};
use serde_json::json;

use crate::server_installers::expect_value;
use crate::server_packages::{home_with_hosts, hosts, write_certificates};
use crate::support::programs;

const DEADLINE: Duration = Duration::from_mins(1);

const INSTALL: &str = "npm install tinything && echo value $(node -p 'require(\"tinything\")')";

/// Anybody may publish, and nothing comes from elsewhere.
const CONFIGURATION: &str = "
storage: ./storage
auth:
  htpasswd:
    file: ./htpasswd
packages:
  '**':
    access: $all
    publish: $all
https:
  key: ./key.pem
  cert: ./cert.pem
log:
  type: stdout
  format: json
  level: warn
";

/// A registry with one package.
struct Verdaccio {
    process: Child,
    port: u16,
    directory: tempfile::TempDir,
}

impl Verdaccio {
    /// `None` if it is not installed.
    fn start() -> Option<Self> {
        let clients = programs::clients();
        let program = clients.join("npm/node_modules/verdaccio/bin/verdaccio");
        if !program.exists() {
            return None;
        }
        let directory = tempfile::tempdir().expect("a directory");
        write_certificates(directory.path());
        let configuration = directory.path().join("config.yaml");
        std::fs::write(&configuration, CONFIGURATION).expect("it is ours");
        let free = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = free.local_addr().expect("it has one").port();
        drop(free);
        let process = Command::new(clients.join("bin/node"))
            .arg(program)
            .arg("--config")
            .arg(configuration)
            // Its certificate is not looked for beside the configuration.
            .current_dir(directory.path())
            .args(["--listen", &format!("https://127.0.0.1:{port}")])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("node");
        let this = Self {
            process,
            port,
            directory,
        };
        let deadline = Instant::now() + DEADLINE;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < deadline, "it does not listen");
            std::thread::sleep(Duration::from_millis(50));
        }
        this.publish();
        Some(this)
    }

    /// As its author would.
    fn publish(&self) {
        let package = self.directory.path().join("tinything");
        std::fs::create_dir(&package).expect("it is new");
        let about = json!({ "name": "tinything", "version": "1.0.0", "main": "index.js" });
        write(&package, "package.json", &about.to_string());
        write(&package, "index.js", "module.exports = 42;");
        let place = format!("//127.0.0.1:{}/", self.port);
        let settings = format!("{place}:_authToken=anybody\nstrict-ssl=false\n");
        write(&package, ".npmrc", &settings);
        let published = Command::new("/usr/bin/npm")
            .args(["publish", "--registry", &format!("https:{place}")])
            .current_dir(&package)
            .env("HOME", self.directory.path())
            .output()
            .expect("npm");
        assert!(published.status.success(), "{published:?}");
    }

    fn stop(&mut self) {
        self.process.kill().expect("it is ours");
        self.process.wait().expect("it is ours");
    }
}

impl Drop for Verdaccio {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn write(directory: &Path, name: &str, text: &str) {
    std::fs::write(directory.join(name), text).expect("it is ours");
}

#[test]
fn npm_installs_from_verdaccio_and_once_more_without_it() {
    if !PathBuf::from("/usr/bin/npm").exists() {
        return skip(Need::Programs, "npm in /usr/bin");
    }
    let Some(mut registry) = Verdaccio::start() else {
        return skip(Need::Clients, "see tests/clients/install");
    };
    let host = hosts("npm")[0];
    let place = format!("\"{host}:443\" = \"127.0.0.1:{}\"", registry.port);
    let home = home_with_hosts(registry.directory.path(), &place);
    let server = home.serve();
    let mut client = server.client();
    for alias in ["one", "two"] {
        client.ok("spawn", json!({ "alias": alias, "memory": "1g" }));
        expect_value(&mut client, alias, INSTALL);
        if alias == "one" {
            registry.stop();
        }
    }
    assert!(server.terminate().success());
}
