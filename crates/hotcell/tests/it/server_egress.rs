//! Egress on the embedded engine: programs inside reach what their profile allows, by name.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};

use crate::support::home::Home;
use crate::support::mcp::Client;

pub(crate) const HOST: &str = "site.example.com";

/// A host on loopback that answers every request with its path, plain and over TLS.
pub(crate) struct Origin {
    plain: SocketAddr,
    tls: SocketAddr,
    /// Its certificate.
    pem: String,
    /// The heads of all requests.
    seen: Arc<Mutex<String>>,
}

impl Origin {
    pub(crate) fn start() -> Self {
        let made = rcgen::generate_simple_self_signed([HOST.to_owned()]).expect("a certificate");
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the default versions")
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .expect("a certificate and its key");
        let config = Arc::new(config);
        let seen: Arc<Mutex<String>> = Arc::default();
        let (over_tls, plainly) = (Arc::clone(&seen), Arc::clone(&seen));
        let tls = serve(move |stream| {
            let connection = ServerConnection::new(Arc::clone(&config)).expect("it is valid");
            answer(StreamOwned::new(connection, stream), "tls", &over_tls);
        });
        Self {
            plain: serve(move |stream| answer(stream, "plain", &plainly)),
            tls,
            pem: made.cert.pem(),
            seen,
        }
    }

    /// Where it listens without TLS.
    pub(crate) fn plain(&self) -> SocketAddr {
        self.plain
    }

    pub(crate) fn pem(&self) -> &str {
        &self.pem
    }

    /// The heads of all requests so far.
    pub(crate) fn seen(&self) -> String {
        self.seen.lock().expect("nobody panicked").clone()
    }

    /// A configuration whose profile `work` allows these hosts. They and [`HOST`] are this origin.
    pub(crate) fn config(&self, allow: &[&str]) -> String {
        let names: BTreeSet<&str> = allow.iter().copied().chain([HOST]).collect();
        let hosts = names.iter().flat_map(|host| {
            [(80, self.plain), (443, self.tls)]
                .map(|(port, address)| format!("\"{host}:{port}\" = \"{address}\""))
        });
        let hosts: Vec<String> = hosts.collect();
        format!(
            "[egress]\nprofiles = [\"work\"]\nhosts = {{ {} }}\n[egress.work]\nallow = {allow:?}\n",
            hosts.join(", ")
        )
    }
}

fn serve(answer: impl Fn(TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it has one");
    std::thread::spawn(move || listener.incoming().flatten().for_each(answer));
    address
}

/// Answers one request.
fn answer(mut stream: impl Read + Write, kind: &str, seen: &Mutex<String>) {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1..) => head.push(byte[0]),
            Ok(0) | Err(_) => return,
        }
    }
    let line = String::from_utf8_lossy(&head);
    *seen.lock().expect("nobody panicked") += &line;
    let path = line.split(' ').nth(1).unwrap_or_default();
    let body = format!("{kind} {path}");
    let length = body.len();
    let reply =
        format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
    let _ = stream.write_all(reply.as_bytes());
    let _ = stream.flush();
}

/// A home whose configuration file can be changed.
pub(crate) struct Configured {
    pub(crate) home: Home,
    file: tempfile::NamedTempFile,
}

impl Configured {
    pub(crate) fn new(origin: &Origin, allow: &[&str]) -> Self {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let home = Home::new().with("HOTCELL_CONFIG", &file.path().display().to_string());
        let configured = Self { home, file };
        configured.write(&origin.config(allow));
        configured
    }

    /// Its server trusts the origin, and has one more variable.
    pub(crate) fn trusting(origin: &Origin, (name, value): (&str, &str)) -> Self {
        let configured = Self::new(origin, &[HOST]);
        let pem = configured.home.path().join("origin.pem");
        std::fs::write(&pem, &origin.pem).expect("it is ours");
        let home = configured
            .home
            .with("SSL_CERT_FILE", &pem.display().to_string());
        Self {
            home: home.with(name, value),
            ..configured
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.file.path()
    }

    pub(crate) fn write(&self, text: &str) {
        std::fs::write(self.file.path(), text).expect("it is ours");
    }
}

pub(crate) fn run(client: &mut Client, container: &str, script: &str) -> Value {
    let arguments = json!({ "container_id": container, "cmd": ["sh", "-c", script], "wait_s": 50 });
    let ran = client.ok("exec_start", arguments);
    assert_eq!(ran["complete"], true, "{ran}");
    ran
}

pub(crate) fn output(ran: &Value) -> String {
    let messages = ran["messages"].as_array().expect("a list");
    let data = messages.iter().map(|message| message["data"].as_str());
    data.map(Option::unwrap_or_default).collect()
}

/// What a request inside answers.
fn curl(client: &mut Client, container: &str, arguments: &str) -> String {
    let ran = run(
        client,
        container,
        &format!("curl -sS -m 20 {arguments} 2>&1"),
    );
    output(&ran)
}

fn python(url: &str) -> String {
    format!("python3 -c 'import urllib.request as r; print(r.urlopen(\"{url}\").read().decode())'")
}

#[test]
fn programs_reach_what_their_profile_allows_by_its_name() {
    let origin = Origin::start();
    let configured = Configured::new(&origin, &[HOST]);
    let server = configured.home.serve();
    let mut client = server.client();
    let made = client.ok("spawn", json!({ "alias": "cell", "egress": "work" }));
    assert_eq!(made["egress"], "work", "{made}");
    let ran = run(
        &mut client,
        "cell",
        &format!("curl -sS -m 20 http://{HOST}/a"),
    );
    assert_eq!(output(&ran), "plain /a", "{ran}");
    let egress = &ran["egress"];
    assert_eq!(
        (&egress["connections"], &egress["denied"]),
        (&json!(1), &json!([])),
        "{ran}"
    );
    assert!(egress["bytes_down"].as_u64() > Some(0), "{ran}");
    let ran = run(&mut client, "cell", &python(&format!("http://{HOST}/b")));
    assert_eq!(output(&ran), "plain /b\n", "{ran}");
    // Nothing has to be seen, so the host's own certificate arrives.
    let pem = json!({ "container_id": "cell", "path": "origin.pem", "content": origin.pem });
    client.ok("fs_write", pem);
    let url = format!("--cacert origin.pem https://{HOST}/c");
    assert_eq!(curl(&mut client, "cell", &url), "tls /c");
    let listed = client.ok("list_containers", json!({}));
    assert_eq!(listed["containers"][0]["egress"], "work", "{listed}");
    let log = configured.home.run(&["egress", "log", "--json"]);
    let log = String::from_utf8_lossy(&log.stdout).into_owned();
    assert!(log.contains("EGRESS_OPEN") && log.contains(HOST), "{log}");
    assert!(server.terminate().success());
}

#[test]
fn a_refusal_is_an_answer_that_the_exec_repeats() {
    let origin = Origin::start();
    let configured = Configured::new(&origin, &[HOST]);
    let server = configured.home.serve();
    let mut client = server.client();
    client.ok("spawn", json!({ "alias": "cell", "egress": "work" }));
    run(&mut client, "cell", "true");
    for url in ["http://other.example.com/", "-k https://other.example.com/"] {
        let script = format!("curl -sS -m 20 -w ' %{{http_code}}' {url} 2>&1");
        let began = Instant::now();
        let ran = run(&mut client, "cell", &script);
        let text = output(&ran);
        assert!(text.ends_with(" 403"), "{text}");
        assert!(text.contains("egress to other.example.com"), "{text}");
        assert!(
            began.elapsed() < Duration::from_secs(5),
            "{:?}",
            began.elapsed()
        );
        let denied = &ran["egress"]["denied"][0];
        assert_eq!(denied["host"], "other.example.com", "{ran}");
        assert_eq!(
            (&denied["count"], &denied["reason"]),
            (&json!(1), &json!("not listed"))
        );
        let hint = denied["hint"].as_str().expect("a text");
        assert!(hint.contains("[egress.work]"), "{hint}");
    }
    // What happened in earlier execs is not this one's.
    let quiet = run(&mut client, "cell", "true");
    assert_eq!(quiet["egress"], Value::Null, "{quiet}");
    let code = "import urllib.request as r\ntry: r.urlopen('http://other.example.com/')\nexcept r.HTTPError as e: print(e.code)";
    let session = client.ok(
        "execute_code",
        json!({ "code": code, "language": "python" }),
    );
    assert_eq!(
        session["egress"],
        Value::Null,
        "sessions have no profile here: {session}"
    );
    assert!(server.terminate().success());
}

#[test]
fn without_a_profile_nothing_resolves() {
    let origin = Origin::start();
    let configured = Configured::new(&origin, &[HOST]);
    let server = configured.home.serve();
    let mut client = server.client();
    let made = client.ok("spawn", json!({ "alias": "sealed" }));
    assert_eq!(made["egress"], "none", "{made}");
    let look = format!(
        "python3 -c 'import socket; print(socket.gethostbyname(\"{HOST}\"))' 2>&1 | tail -1"
    );
    let ran = run(&mut client, "sealed", &look);
    assert!(output(&ran).contains("gaierror"), "{ran}");
    // The same lookup works with a profile.
    client.ok("spawn", json!({ "alias": "open", "egress": "work" }));
    let ran = run(&mut client, "open", &look);
    assert!(output(&ran).starts_with("127.77."), "{ran}");
    let refused = client.call("spawn", json!({ "egress": "packages" }));
    let content = &refused["structuredContent"];
    assert_eq!(content["code"], "denied", "{refused}");
    assert!(
        content["message"]
            .as_str()
            .expect("a text")
            .contains("none, work"),
        "{refused}"
    );
    assert!(server.terminate().success());
}

#[test]
fn names_keep_their_addresses_when_the_server_is_killed() {
    let origin = Origin::start();
    let configured = Configured::new(&origin, &[HOST]);
    let server = configured.home.serve();
    let mut client = server.client();
    let spawn = json!({ "alias": "cell", "egress": "work", "persistent": true });
    client.ok("spawn", spawn);
    let look = format!("python3 -c 'import socket; print(socket.gethostbyname(\"{HOST}\"))'");
    let address = output(&run(&mut client, "cell", &look));
    let address = address.trim();
    server.kill();
    let server = configured.home.serve();
    let mut client = server.client();
    // The address alone, without asking for the name again.
    let fixed = format!("--resolve {HOST}:80:{address} http://{HOST}/kept");
    assert_eq!(curl(&mut client, "cell", &fixed), "plain /kept");
    assert_eq!(
        curl(&mut client, "cell", &format!("http://{HOST}/again")),
        "plain /again"
    );
    client.ok("kill", json!({ "container_id": "cell" }));
    assert!(server.terminate().success());
}

#[test]
fn a_reload_allows_a_new_name_and_a_wrong_file_changes_nothing() {
    let origin = Origin::start();
    let configured = Configured::new(&origin, &[HOST]);
    let server = configured.home.serve();
    let mut client = server.client();
    client.ok("spawn", json!({ "alias": "cell", "egress": "work" }));
    let code = "-o /dev/null -w '%{http_code}' http://new.example.com/";
    assert_eq!(curl(&mut client, "cell", code), "403");
    configured.write("[egress]\ndefault = 'missing'\n");
    assert!(!configured.home.run(&["egress", "reload"]).status.success());
    assert_eq!(
        curl(&mut client, "cell", &format!("http://{HOST}/old")),
        "plain /old"
    );
    configured.write(&origin.config(&[HOST, "new.example.com"]));
    assert!(configured.home.run(&["egress", "reload"]).status.success());
    assert_eq!(
        curl(&mut client, "cell", "http://new.example.com/n"),
        "plain /n"
    );
    assert!(server.terminate().success());
}

#[test]
fn run_has_a_profile_too_and_check_decides_without_a_server() {
    let origin = Origin::start();
    let configured = Configured::new(&origin, &[HOST]);
    let url = format!("http://{HOST}/run");
    let fetch = [
        "run", "--egress", "work", "--", "curl", "-sS", "-m", "20", &url,
    ];
    let ran = configured.home.run(&fetch);
    assert_eq!(
        String::from_utf8_lossy(&ran.stdout),
        "plain /run",
        "{ran:?}"
    );
    let allowed = configured.home.run(&["egress", "check", "work", &url]);
    assert!(allowed.status.success(), "{allowed:?}");
    let denied = configured
        .home
        .run(&["egress", "check", "work", "https://other.example.com/"]);
    assert_eq!(denied.status.code(), Some(1), "{denied:?}");
}

/// The profile that a new container has.
fn profile_of(client: &mut Client, arguments: Value) -> Value {
    client.ok("spawn", arguments)["egress"].clone()
}

#[test]
fn images_and_principals_have_profiles_and_a_reload_changes_them() {
    let origin = Origin::start();
    let configured = Configured::new(&origin, &[HOST]);
    let base = origin.config(&[HOST]);
    let server = configured.home.serve();
    let mut client = server.client();
    assert_eq!(profile_of(&mut client, json!({})), "none");
    let reload = |more: &str| {
        configured.write(&format!("{base}{more}"));
        let reloaded = configured.home.run(&["reload"]);
        assert!(reloaded.status.success(), "{reloaded:?}");
    };
    reload("[images.egress]\nhost = 'work'\n");
    let spawned = client.ok("spawn", json!({ "alias": "cell" }));
    assert_eq!(spawned["egress"], "work");
    let fetched = curl(&mut client, "cell", &format!("http://{HOST}/image"));
    assert_eq!(fetched, "plain /image");
    reload(
        "[images.egress]\nhost = 'work'\n\
         [principal.local]\negress = 'packages'\negress_profiles = []\n",
    );
    assert_eq!(profile_of(&mut client, json!({})), "packages");
    assert_eq!(profile_of(&mut client, json!({ "egress": "none" })), "none");
    let refused = client.call("spawn", json!({ "egress": "work" }));
    let refused = &refused["structuredContent"];
    assert_eq!(refused["code"], "denied", "{refused}");
    let message = refused["message"].as_str().unwrap_or_default();
    assert!(
        message.contains("is not one of none, packages"),
        "{refused}"
    );
    // A container that runs keeps what it has.
    let fetched = curl(&mut client, "cell", &format!("http://{HOST}/kept"));
    assert_eq!(fetched, "plain /kept");
    assert!(server.terminate().success());
}

#[test]
fn config_check_tells_where_a_profile_is_named_that_does_not_exist() {
    let origin = Origin::start();
    let configured = Configured::new(&origin, &[HOST]);
    let file = configured.file.path().display().to_string();
    let check = || configured.home.run(&["config", "check", &file]);
    configured.write("[egress.work]\nallow = []\n[principal.ann]\negress = 'work'\n");
    assert!(check().status.success());
    configured.write("[egress.work]\nallow = []\n[principal.ann]\negress = 'wrok'\n");
    let refused = check();
    assert!(!refused.status.success());
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(
        said.contains(":4:10: there is no egress profile `wrok`"),
        "{said}"
    );
}
