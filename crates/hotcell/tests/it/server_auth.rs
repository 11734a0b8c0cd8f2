//! Bearer tokens through the real binary: who gets in, who does not, and what the operator
//! learns of it.

#![expect(clippy::unwrap_used, reason = "a test may fail here")]

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use serde_json::{Value, json};

use super::server_audit::query;
use crate::support::home::Home;
use crate::support::http::Http;
use crate::support::mcp::Client;
use crate::support::server::{Server, output};
use crate::support::wait_until;

const BEARER: [&str; 2] = ["--auth", "bearer"];

/// Paths that only callers with a token reach.
const CLOSED: [(&str, &str); 7] = [
    ("POST", "/mcp"),
    ("GET", "/mcp"),
    ("GET", "/sse"),
    ("POST", "/messages?session_id=x"),
    ("GET", "/v1/containers/app/files/a"),
    ("GET", "/metrics"),
    ("GET", "/nothing"),
];

/// A path, headers, and why they are refused.
type Attempt<'a> = (&'a str, &'a [(&'a str, &'a str)], &'a str);

/// Makes a token with the real command.
pub(crate) fn token(home: &Home, arguments: &[&str]) -> String {
    let output = home.run(&[&["token", "add"], arguments].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn status(server: &Server, token: &str, path: &str) -> u16 {
    let mut http = Http::connect(&server.url).with_token(token);
    http.get(path, &[]);
    http.status
}

/// Sends a request with these headers; returns status and challenge.
fn attempt(server: &Server, path: &str, headers: &[(&str, &str)]) -> (u16, String) {
    let headers: Vec<_> = headers
        .iter()
        .map(|(name, value)| (*name, (*value).to_owned()))
        .collect();
    let mut http = Http::connect(&server.url);
    http.get(path, &headers);
    let challenge = http.header("www-authenticate").unwrap_or_default();
    (http.status, challenge.to_owned())
}

fn listed(home: &Home) -> Vec<Value> {
    let output = home.run(&["token", "list", "--json"]);
    let listed: Value = serde_json::from_slice(&output.stdout).unwrap();
    listed["tokens"].as_array().unwrap().clone()
}

#[test]
fn without_a_token_only_the_probes_answer() {
    let home = Home::new();
    let server = home.serve_with(&BEARER);
    for (method, path) in CLOSED {
        let mut http = Http::connect(&server.url);
        http.send(method, path, &[], 0);
        http.read_head();
        assert_eq!(http.status, 401, "{method} {path}");
        assert_eq!(
            http.header("www-authenticate"),
            Some(r#"Bearer realm="hotcell""#)
        );
        let body: Value = serde_json::from_slice(&http.read_whole()).unwrap();
        assert_eq!(body["code"], "unauthenticated");
        assert!(
            body["hint"].to_string().contains("hotcell token add"),
            "{body}"
        );
    }
    for path in ["/healthz", "/readyz"] {
        assert_eq!(attempt(&server, path, &[]), (200, String::new()), "{path}");
    }
    assert!(server.terminate().success());
}

#[test]
fn tokens_come_and_go_while_the_server_runs() {
    let home = Home::new();
    let mut server = home.serve_with(&BEARER);
    server.said("there is no token yet");
    let ci = token(&home, &["ci"]);
    wait_until("the new token is accepted", || {
        status(&server, &ci, "/nothing") == 404
    });
    let mut client = Client::http_by_token(&server.url, &ci);
    let id = client.ok("spawn", json!({}))["container_id"].clone();
    client.ok("kill", json!({ "container_id": id }));
    wait_until("its use is noted", || {
        listed(&home)[0]["last_used_at"].is_string()
    });
    assert!(home.run(&["token", "revoke", "ci"]).status.success());
    wait_until("the revoked token is refused", || {
        status(&server, &ci, "/nothing") == 401
    });
    let line = server.wait_for("reason=unknown");
    assert!(
        line.contains("AUTH_FAILED") && line.contains("127.0.0.1"),
        "{line}"
    );
    assert!(server.terminate().success());
}

#[test]
fn admin_rights_are_the_tokens_own() {
    let home = Home::operated();
    let (plain, boss) = (token(&home, &["plain"]), token(&home, &["boss", "--admin"]));
    let server = home.serve_with(&BEARER);
    assert_eq!(status(&server, &boss, "/metrics"), 200);
    let (status, challenge) = attempt(
        &server,
        "/metrics",
        &[("Authorization", &format!("Bearer {plain}"))],
    );
    assert_eq!(status, 403);
    assert_eq!(
        challenge,
        r#"Bearer realm="hotcell", error="insufficient_scope""#
    );
    let tools = |token: &str| {
        let mut client = Client::http_by_token(&server.url, token);
        client.request("tools/list", json!({})).unwrap().to_string()
    };
    assert!(tools(&boss).contains("system_status"));
    assert!(!tools(&plain).contains("system_status"));
    let mut client = Client::http_by_token(&server.url, &plain);
    assert_eq!(client.refused("system_status", json!({})), "denied");
    assert!(server.terminate().success());
}

#[test]
fn bad_credentials_are_refused_told_and_never_logged() {
    let home = Home::new();
    let good = token(&home, &["good"]);
    let short = token(&home, &["short", "--expires", "1s"]);
    wait_until("it expires", || listed(&home)[1]["expired"] == true);
    let mut server = home.serve_with(&BEARER);
    let bearer = format!("Bearer {good}");
    let (upper, expired) = (bearer.to_uppercase(), format!("Bearer {short}"));
    let long = format!("Bearer {}", "x".repeat(10_000));
    let huge = format!("Bearer {}", "x".repeat(100_000));
    let auth = "Authorization";
    let cases: [Attempt<'_>; 12] = [
        ("/mcp", &[], "missing"),
        ("/mcp", &[(auth, "Bearer wrong")], "unknown"),
        ("/mcp", &[(auth, &upper)], "unknown"),
        ("/mcp", &[(auth, &expired)], "expired"),
        ("/mcp", &[(auth, &long)], "too_long"),
        ("/mcp", &[(auth, &huge)], "too_long"),
        ("/mcp", &[(auth, &bearer), (auth, &bearer)], "malformed"),
        (
            "/mcp",
            &[(auth, &bearer), ("authorization", "Basic YTpi")],
            "malformed",
        ),
        ("/mcp", &[(auth, "Basic YTpi")], "malformed"),
        (
            "/mcp",
            &[(auth, &format!("{bearer}, {bearer}"))],
            "malformed",
        ),
        (&format!("/mcp?access_token={good}"), &[], "in_query"),
        (
            "/mcp",
            &[
                ("X-Authorization", &bearer),
                ("Proxy-Authorization", &bearer),
            ],
            "missing",
        ),
    ];
    for (path, headers, reason) in cases {
        let (status, challenge) = attempt(&server, path, headers);
        assert_eq!(status, 401, "{headers:?}");
        assert!(challenge.starts_with("Bearer realm"), "{challenge}");
        let line = server.wait_for("AUTH_FAILED");
        assert!(
            line.contains(&format!("reason={reason}")),
            "{reason}: {line}"
        );
        assert!(!line.contains(&good) && !line.contains(&short), "{line}");
    }
    assert_eq!(status(&server, &good, "/nothing"), 404);
    assert!(server.terminate().success());
    // The audit log says the same, and that nothing else has happened.
    let events = query(&home, &[]);
    let [start, failed @ .., end] = &events[..] else {
        panic!("{events:?}");
    };
    assert_eq!(
        (&start["event"], &end["event"]),
        (&json!("SYSTEM_START"), &json!("SYSTEM_SHUTDOWN"))
    );
    let reasons: Vec<_> = cases.iter().map(|(_, _, reason)| *reason).collect();
    let recorded: Vec<_> = failed
        .iter()
        .map(|event| event["args"]["reason"].as_str().unwrap())
        .collect();
    assert_eq!(recorded, reasons);
    for event in failed {
        assert_eq!(
            (&event["event"], &event["target"]),
            (&json!("AUTH_FAILED"), &json!("/mcp"))
        );
        let told = event.to_string();
        assert!(
            !told.contains(&good[4..]) && !told.contains(&short[4..]),
            "{told}"
        );
    }
}

#[test]
fn a_header_cannot_be_smuggled_in() {
    let home = Home::new();
    let good = token(&home, &["good"]);
    let server = home.serve_with(&BEARER);
    for lines in [
        format!("X-Note: a\r\n Authorization: Bearer {good}"),
        format!("Authorization : Bearer {good}"),
        format!("X-Note: a\rAuthorization: Bearer {good}"),
        format!("Authorization\u{0}: Bearer {good}"),
        format!("Auth\u{e9}orization: Bearer {good}"),
    ] {
        let mut http = Http::connect(&server.url);
        let head = format!("GET /nothing HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n\r\n");
        http.write(head.as_bytes());
        http.read_head();
        assert!(
            matches!(http.status, 400 | 401),
            "{lines:?}: {}",
            http.status
        );
    }
    // The positive control.
    let mut http = Http::connect(&server.url);
    let head =
        format!("GET /nothing HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {good}\r\n\r\n");
    http.write(head.as_bytes());
    http.read_head();
    assert_eq!(http.status, 404);
    assert!(server.terminate().success());
}

#[test]
fn ten_thousand_bad_tokens_lock_out_nobody_and_are_told_to_slow_down() {
    let home = Home::new();
    let good = token(&home, &["good"]);
    let server = home.serve_with(&BEARER);
    let mut client = Client::http_by_token(&server.url, &good);
    let id = client.ok("spawn", json!({}))["container_id"].clone();
    let before = server.rss_bytes();
    let mut attacker = Http::connect(&server.url);
    let mut statuses = [0; 2];
    for number in 0..10_000 {
        attacker.get(
            "/mcp",
            &[("Authorization", format!("Bearer hct_{number:064x}"))],
        );
        attacker.read_whole();
        statuses[usize::from(attacker.status == 429)] += 1;
        assert!(matches!(attacker.status, 401 | 429), "{}", attacker.status);
        if number % 1_000 == 999 {
            let run = json!({ "container_id": id, "cmd": ["true"], "wait_s": 30 });
            client.ok("exec_start", run);
            assert_eq!(status(&server, &good, "/nothing"), 404);
        }
    }
    assert!(
        statuses[0] >= 100 && statuses[1] > statuses[0],
        "{statuses:?}"
    );
    assert!(server.rss_bytes() < before + (32 << 20));
    client.ok("kill", json!({ "container_id": id }));
    assert!(server.terminate().success());
    expect_each_recorded(&home, 10_000);
}

/// So many attempts are in the audit log, in few events.
fn expect_each_recorded(home: &Home, attempts: u64) {
    let failed = query(home, &["--event", "AUTH_FAILED"]);
    // A slow machine needs several windows for them.
    let windows = 1 + failed
        .iter()
        .filter(|event| event["args"]["count"] != 1)
        .count();
    assert!(failed.len() <= windows * 101, "{} events", failed.len());
    let count = |event: &Value| event["args"]["count"].as_u64().unwrap();
    assert_eq!(failed.iter().map(count).sum::<u64>(), attempts);
    let sum = failed.iter().find(|event| count(event) > 1).unwrap();
    assert_eq!(sum["args"]["address"], "127.0.0.1", "{sum}");
    assert_eq!(sum["args"]["reason"], "unknown", "{sum}");
}

#[test]
fn a_flood_without_a_token_fills_no_audit_log() {
    let home = Home::new();
    let server = home.serve_with(&BEARER);
    let mut attacker = Http::connect(&server.url);
    for _ in 0..2_000 {
        attacker.get("/mcp", &[]);
        attacker.read_whole();
        assert_eq!(
            attacker.status, 401,
            "asking without a token is how a login begins"
        );
    }
    assert!(server.terminate().success());
    let failed = query(&home, &["--event", "AUTH_FAILED"]);
    assert!(failed.len() < 1_000, "{} events", failed.len());
    let count = |event: &Value| event["args"]["count"].as_u64().unwrap();
    assert_eq!(failed.iter().map(count).sum::<u64>(), 2_000);
}

#[test]
fn a_static_token_protects_the_server_and_is_not_shown() {
    let secret = "a-static-token-of-the-operator";
    let home = Home::new().with("HOTCELL_BEARER_TOKEN", secret);
    let server = home.serve();
    assert_eq!(status(&server, secret, "/nothing"), 404);
    assert_eq!(status(&server, "another-static-token", "/nothing"), 401);
    assert_eq!(status(&server, secret, "/metrics"), 403);
    assert!(server.terminate().success());
    let help = home.run(&["serve", "--help"]);
    assert!(!String::from_utf8_lossy(&help.stdout).contains(secret));
    let refused = home.run(&["serve", "--port", "0", "--auth", "none"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        !refused.status.success() && !said.contains(secret),
        "{said}"
    );
    let refused = home.run(&["serve", "--port", "0", "--bearer-token", "short-secret"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success(), "{said}");
}

#[test]
fn with_authentication_other_machines_may_reach_the_server() {
    let home = Home::new();
    let server = home.serve_with(&[&BEARER[..], &["--host", "0.0.0.0"]].concat());
    assert!(server.terminate().success());
}

#[test]
fn another_user_of_this_machine_is_another_principal() {
    const NOBODY: u32 = 65534;
    if !rustix::process::geteuid().is_root() {
        let reason = "only root can become another user";
        return hotcell_testkit::skip(hotcell_testkit::Need::Root, reason);
    }
    let home = Home::new();
    let server = home.serve_with(&["--drain-grace-s", "0"]);
    let mut own = Client::socket(&home);
    let id = own.ok("spawn", json!({}))["container_id"].clone();
    // The server refuses to start like this unless the operator allows it.
    let socket = home.path().join("hotcell.sock");
    for (path, mode) in [(home.path(), 0o755), (socket.as_path(), 0o666)] {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    }
    let containers = |command: &mut Command| {
        let output = output(command);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        let listed: Value = serde_json::from_slice(&output.stdout).unwrap();
        listed["containers"].as_array().unwrap().len()
    };
    assert_eq!(containers(&mut home.command(&["ps", "--json"])), 1);
    let mut theirs = home.command(&["ps", "--json"]);
    assert_eq!(containers(theirs.uid(NOBODY).gid(NOBODY)), 0);
    own.ok("kill", json!({ "container_id": id }));
    assert!(server.terminate().success());
}

#[test]
fn tokens_are_listed_without_their_secret_and_odd_names_are_refused() {
    let home = Home::new();
    let ci = token(&home, &["ci", "--expires", "90d"]);
    assert!(ci.starts_with("hct_") && ci.len() == 76, "{ci}");
    for name in [
        "",
        "a b",
        "-x",
        "a/b",
        "../a",
        "a\nb",
        "ä",
        "local:",
        &"x".repeat(65),
    ] {
        let output = home.run(&["token", "add", "--", name]);
        assert_eq!(output.status.code(), Some(2), "{name:?}");
    }
    assert_eq!(home.run(&["token", "add", "ci"]).status.code(), Some(1));
    assert_eq!(
        home.run(&["token", "revoke", "nobody"]).status.code(),
        Some(1)
    );
    let output = home.run(&["token", "list", "--json"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!text.contains(&ci[4..]), "{text}");
    let tokens = listed(&home);
    assert_eq!(tokens.len(), 1, "{tokens:?}");
    assert!(tokens[0]["expires_at"].is_string() && tokens[0]["last_used_at"].is_null());
    let file = std::fs::read_to_string(home.path().join("tokens.json")).unwrap();
    assert!(!file.contains(&ci[4..68]));
    let mode = std::fs::metadata(home.path().join("tokens.json"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
}
