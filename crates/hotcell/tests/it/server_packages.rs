//! Packages through egress: the real pip and npm install from an index on loopback, under the names of
//! the public ones and with no setting of their own.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use hotcell_egress::List;
use hotcell_testkit::{Need, skip};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use serde_json::{Value, json};

use crate::support::home::Home;
use crate::support::mcp::Client;

const INDEX: &str = include_str!("package_index.py");

/// All lists of the profile `packages`.
const LISTS: [&str; 5] = ["python", "npm", "cargo", "go", "debian"];

/// The host of a repository of git, which the profile `git` may read.
pub(crate) const GIT_HOST: &str = "git.example.com";

/// The index, and an authority that the server trusts.
pub(crate) struct Index {
    process: Child,
    /// With TLS and without.
    ports: [u16; 2],
    requests: Arc<Mutex<Vec<String>>>,
    directory: tempfile::TempDir,
}

impl Index {
    pub(crate) fn start() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        write_certificates(directory.path());
        std::fs::write(directory.path().join("index.py"), INDEX).expect("it is ours");
        let mut process = Command::new("python3")
            .arg(directory.path().join("index.py"))
            .arg(directory.path())
            .args([hosts("python")[1], hosts("npm")[0], hosts("cargo")[2]])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("python3");
        let mut lines = BufReader::new(process.stdout.take().expect("a pipe")).lines();
        let ports = lines.next().expect("its ports").expect("a line");
        let (tls, plain) = ports.split_once(' ').expect("two");
        let ports = [tls, plain].map(|port| port.parse().expect("a number"));
        let requests = Arc::<Mutex<Vec<String>>>::default();
        let heard = Arc::clone(&requests);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                heard.lock().expect("no panic").push(line);
            }
        });
        Self {
            process,
            ports,
            requests,
            directory,
        }
    }

    /// A home whose sessions and containers have the profile `packages`, all of whose hosts are here.
    pub(crate) fn home(&self) -> Home {
        let [tls, plain] = self.ports;
        let all: Vec<String> = all_hosts()
            .flat_map(|host| {
                [(443, tls), (80, plain)]
                    .map(|(port, own)| format!("\"{host}:{port}\" = \"127.0.0.1:{own}\""))
            })
            .collect();
        home_with_hosts(self.directory.path(), &all.join(", "))
    }

    /// What a project has in its `go.sum` that uses Go's package.
    pub(crate) fn go_sum(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("go.sum")).expect("it is written first")
    }

    fn requests(&self) -> usize {
        self.requests.lock().expect("no panic").len()
    }

    /// How many requests for paths with this part have come.
    pub(crate) fn requests_for(&self, part: &str) -> usize {
        let requests = self.requests.lock().expect("no panic");
        requests.iter().filter(|it| it.contains(part)).count()
    }

    pub(crate) fn stop(&mut self) {
        self.process.kill().expect("it is ours");
        self.process.wait().expect("it is ours");
    }
}

impl Drop for Index {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A home whose sessions and containers have the profile `packages`, with these hosts. It trusts the authority of
/// the directory.
pub(crate) fn home_with_hosts(directory: &Path, hosts: &str) -> Home {
    let config = format!(
        "[egress]\ndefault = \"packages\"\nprofiles = [\"git\"]\nhosts = {{ {hosts} }}\n\
         [[egress.git.rule]]\nhost = \"{GIT_HOST}\"\naccess = \"git-read\"\n"
    );
    let file = directory.join("hotcell.toml");
    std::fs::write(&file, config).expect("it is ours");
    let roots = directory.join("ca.pem");
    Home::new()
        .with("HOTCELL_CONFIG", &file.display().to_string())
        .with("SSL_CERT_FILE", &roots.display().to_string())
}

/// The hosts of a list.
pub(crate) fn hosts(list: &str) -> &'static [&'static str] {
    List::parse(list).expect("a list").hosts()
}

fn all_hosts() -> impl Iterator<Item = &'static str> {
    let listed = LISTS.into_iter().flat_map(hosts).copied();
    listed.chain([GIT_HOST])
}

/// Writes an authority, and a certificate for all hosts with its key.
pub(crate) fn write_certificates(directory: &Path) {
    let key = || KeyPair::generate().expect("a key");
    let mut authority = CertificateParams::new(Vec::new()).expect("no names");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority_key = key();
    let root = authority.self_signed(&authority_key).expect("a root");
    let names: Vec<String> = all_hosts().map(str::to_owned).collect();
    let leaf_key = key();
    let leaf = CertificateParams::new(names).expect("names");
    let issuer = Issuer::new(authority, authority_key);
    let leaf = leaf.signed_by(&leaf_key, &issuer).expect("a certificate");
    for (name, pem) in [
        ("ca.pem", root.pem()),
        ("cert.pem", leaf.pem()),
        ("key.pem", leaf_key.serialize_pem()),
    ] {
        std::fs::write(directory.join(name), pem).expect("it is ours");
    }
}

fn code(session: &str, language: &str, code: &str) -> Value {
    json!({
        "code": code, "language": language, "session": session, "packages": ["tinything"], "timeout_s": 60,
    })
}

/// Installs with a command, as somebody in a shell would; its output if it succeeded.
fn shell(client: &mut Client, container: &str, script: &str) -> String {
    let start = json!({ "container_id": container, "cmd": ["sh", "-c", script], "timeout_s": 120 });
    let started = client.ok("exec_start", start);
    let mut said = String::new();
    let ended = client.follow(&started["exec_id"], |message| {
        said += message["data"].as_str().unwrap_or_default();
    });
    assert_eq!(ended["status"], "succeeded", "{said} {ended}");
    said
}

fn has_installers() -> bool {
    let has = |program: &str, arguments: &[&str]| {
        let tried = Command::new(program)
            .args(arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        tried.is_ok_and(|status| status.success())
    };
    // The container has the programs of /usr alone.
    has("/usr/bin/python3", &["-m", "pip", "--version"]) && File::open("/usr/bin/npm").is_ok()
}

#[test]
fn packages_are_installed_once_shared_by_the_cache_and_there_without_the_index() {
    if !has_installers() {
        return skip(Need::Programs, "pip and npm in /usr/bin");
    }
    let mut index = Index::start();
    let home = index.home();
    let server = home.serve();
    let mut client = server.client();
    let python = "import tinything; print(tinything.VALUE)";
    let node = "console.log(require('tinything'))";
    for (language, program) in [("python", python), ("javascript", node)] {
        let ran = client.ok("execute_code", code("one", language, program));
        assert_eq!(ran["stdout"], "42\n", "{ran}");
    }
    let fetched = index.requests();
    assert!(fetched >= 4, "two documents and two files: {fetched}");
    // The same list again needs no installer, and another session no file.
    for session in ["one", "two"] {
        let ran = client.ok("execute_code", code(session, "python", python));
        assert_eq!(ran["stdout"], "42\n", "{ran}");
    }
    assert_eq!(index.requests_for("/packages/"), 1);
    // From a shell, without a flag, and without the index.
    index.stop();
    client.ok("spawn", json!({ "alias": "shell" }));
    let said = shell(
        &mut client,
        "shell",
        "pip install tinything && python3 -c 'import tinything; print(tinything.VALUE)' && \
         npm install tinything && node -e 'console.log(require(\"tinything\"))'",
    );
    assert_eq!(said.matches("42").count(), 2, "{said}");
    client.ok("kill", json!({ "container_id": "shell" }));
    assert!(server.terminate().success());
}

#[test]
fn a_session_without_a_way_out_is_told_what_to_ask_for() {
    if !has_installers() {
        return skip(Need::Programs, "pip and npm in /usr/bin");
    }
    let home = Home::new();
    let server = home.serve();
    let mut client = server.client();
    let missing = client.call("execute_code", code("one", "python", "print(1)"));
    assert_eq!(missing["isError"], true, "{missing}");
    let text = missing["structuredContent"].to_string();
    assert!(text.contains("egress"), "{text}");
    let mut option = code("one", "python", "print(1)");
    option["packages"] = json!(["--index-url=https://example.com"]);
    let refused = client.call("execute_code", option);
    assert_eq!(
        refused["structuredContent"]["code"], "invalid_argument",
        "{refused}"
    );
    assert!(server.terminate().success());
}
