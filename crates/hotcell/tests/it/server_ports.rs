//! Servers inside containers, reached from outside: over HTTP and by `hotcell forward`.

#![expect(clippy::unwrap_used, reason = "a test may fail here")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::process::{Child, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use super::server_auth::token;
use crate::support::home::Home;
use crate::support::http::Http;
use crate::support::mcp::Client;
use crate::support::server::Server;

const PORT: u16 = 8000;

/// Answers with the head of each request, and echoes what a WebSocket sends.
const INSIDE: &str = r#"
import base64, hashlib, http.server
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        if self.headers.get("Upgrade") == "websocket":
            return self.echo()
        body = ("%s %s\n%s" % (self.command, self.path, self.headers)).encode()
        body += self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(302 if self.path == "/away" else 200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Set-Cookie", "a=1; Path=/; Domain=example.com")
        self.send_header("Clear-Site-Data", "\"*\"")
        self.send_header("Location", "/next")
        self.end_headers()
        self.wfile.write(body)
    do_POST = do_GET
    def echo(self):
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", accept)
        self.end_headers()
        self.wfile.flush()
        # One short masked text frame, sent back without its mask.
        head = self.rfile.read(6)
        text = bytes(b ^ head[2 + i % 4] for i, b in enumerate(self.rfile.read(head[1] & 127)))
        self.wfile.write(bytes([0x81, len(text)]) + text)
        self.wfile.flush()
        self.close_connection = True
server = http.server.ThreadingHTTPServer(("127.0.0.1", 8000), Handler)
print("listening", flush=True)
server.serve_forever()
"#;

/// Starts the server inside a new container; returns the container's id.
fn container_with_server(client: &mut Client) -> String {
    let spawned = client.ok("spawn", json!({ "alias": "web" }));
    let id = spawned["container_id"].as_str().unwrap().to_owned();
    let write = json!({ "container_id": id, "path": "server.py", "content": INSIDE });
    client.ok("fs_write", write);
    let start = json!({ "container_id": id, "cmd": ["python3", "server.py"] });
    let started = client.ok("exec_start", start);
    let wait = json!({ "exec_id": started["exec_id"], "after_seq": 0, "wait_s": 30 });
    let said = client.ok("exec_poll", wait);
    assert!(said.to_string().contains("listening"), "{said}");
    id
}

fn path(container: &str, rest: &str) -> String {
    format!("/v1/containers/{container}/ports/{PORT}{rest}")
}

fn served() -> (Home, Server, String) {
    let home = Home::new();
    let server = home.serve_with(&["--allow-ports"]);
    let id = container_with_server(&mut server.client());
    (home, server, id)
}

/// Ends the container, for which the server would wait, and the server.
fn end(server: Server, container: &str) {
    let kill = json!({ "container_id": container, "force": true });
    server.client().ok("kill", kill);
    assert!(server.terminate().success());
}

#[test]
fn a_server_inside_answers_at_its_ports_path() {
    let (_home, server, id) = served();
    let mut http = Http::connect(&server.url);
    let headers = [
        ("authorization", "Bearer secret".to_owned()),
        ("accept", "text/x".to_owned()),
    ];
    http.get(&path(&id, "/a%20b?c=d"), &headers);
    assert_eq!(http.status, 200);
    assert_eq!(
        http.header("set-cookie"),
        Some(&*format!("a=1; Path={}", path(&id, "/")))
    );
    assert_eq!(http.header("clear-site-data"), None);
    assert!(
        http.header("content-security-policy")
            .unwrap()
            .starts_with("sandbox")
    );
    let seen = String::from_utf8(http.read_whole()).unwrap();
    assert!(seen.starts_with("GET /a%20b?c=d\n"), "{seen}");
    assert!(
        seen.contains("text/x") && seen.contains("localhost:8000"),
        "{seen}"
    );
    assert!(!seen.contains("secret"), "{seen}");

    let mut http = Http::connect(&server.url);
    http.post(&path("web", "/away"), &[], "the body");
    assert_eq!(http.status, 302);
    assert_eq!(http.header("location"), Some(&*path("web", "/next")));
    let seen = String::from_utf8(http.read_whole()).unwrap();
    assert!(seen.ends_with("the body"), "{seen}");

    let mut http = Http::connect(&server.url);
    http.get(&format!("/v1/containers/{id}/ports/8001/"), &[]);
    assert_eq!(http.status, 503);
    let said: Value = serde_json::from_slice(&http.read_whole()).unwrap();
    assert_eq!(
        said["message"],
        "nothing listens on port 8001 in this container"
    );
    end(server, &id);
}

#[test]
fn a_websocket_inside_is_reached() {
    let (_home, server, id) = served();
    let mut stream = TcpStream::connect(server.authority()).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    let request = format!(
        "GET {} HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        path(&id, "/socket"),
        server.authority()
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert_ne!(reader.read_line(&mut head).unwrap(), 0, "{head}");
    }
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    // The accept key of the example in RFC 6455.
    assert!(head.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "{head}");
    stream
        .write_all(&[0x81, 0x82, 0, 0, 0, 0, b'h', b'i'])
        .unwrap();
    let mut frame = [0; 4];
    reader.read_exact(&mut frame).unwrap();
    assert_eq!(frame, [0x81, 2, b'h', b'i']);
    end(server, &id);
}

#[test]
fn ports_are_for_their_owner_and_only_if_they_are_granted() {
    let home = Home::new();
    let [alice, bob, admin] = [
        token(&home, &["alice"]),
        token(&home, &["bob"]),
        token(&home, &["root", "--admin"]),
    ];
    let server = home.serve_with(&["--auth", "bearer", "--allow-ports"]);
    let id = container_with_server(&mut Client::http_by_token(&server.url, &alice));
    let status = |token: &str, container: &str| {
        let mut http = Http::connect(&server.url).with_token(token);
        http.get(&path(container, "/"), &[]);
        http.status
    };
    assert_eq!(status(&alice, &id), 200);
    assert_eq!(status(&alice, "web"), 200);
    assert_eq!(status(&bob, &id), 404);
    assert_eq!(status(&bob, "web"), 404);
    assert_eq!(status(&admin, &id), 200);
    let mut http = Http::connect(&server.url).with_token(&alice);
    http.get(&path(&id, "/"), &[]);
    let seen = String::from_utf8(http.read_whole()).unwrap();
    assert!(!seen.to_lowercase().contains("authorization"), "{seen}");
    let mut owner = Client::http_by_token(&server.url, &alice);
    owner.ok("kill", json!({ "container_id": id, "force": true }));
    drop(owner);
    assert!(server.terminate().success());

    let server = home.serve_with(&["--auth", "none"]);
    server.client().ok("spawn", json!({ "alias": "closed" }));
    let mut http = Http::connect(&server.url);
    http.get(&path("closed", "/"), &[]);
    assert_eq!(http.status, 403);
    let refused = home.run(&["forward", "closed", "0:8000"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        !refused.status.success() && said.contains("allow_ports"),
        "{said}"
    );
    assert!(server.terminate().success());
}

/// A running `hotcell forward`, ended when dropped.
struct Forward {
    child: Child,
    port: u16,
}

impl Forward {
    fn start(home: &Home, container: &str) -> Self {
        let mut command = home.command(&["forward", container, &format!("0:{PORT}")]);
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        stderr.read_line(&mut said).unwrap();
        let port = said.split("127.0.0.1:").nth(1);
        let port = port.and_then(|rest| rest.split(' ').next()?.parse().ok());
        Self {
            child,
            port: port.unwrap_or_else(|| panic!("{said}")),
        }
    }
}

impl Drop for Forward {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn forward_leads_to_the_container() {
    let (home, server, id) = served();
    let forward = Forward::start(&home, &id);
    for _ in 0..3 {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, forward.port)).unwrap();
        let request = "GET /plain HTTP/1.0\r\nHost: a.example.com\r\nAuthorization: mine\r\n\r\n";
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        // Nothing is changed: it is a plain connection.
        assert!(
            answer.contains("GET /plain") && answer.contains("mine"),
            "{answer}"
        );
    }
    let missing = home.run(&["forward", "missing", "0:8000"]);
    let said = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert!(
        !missing.status.success() && said.contains("missing"),
        "{said}"
    );
    drop(forward);
    end(server, &id);
}
