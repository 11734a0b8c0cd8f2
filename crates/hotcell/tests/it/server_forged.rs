//! Tokens of an issuer that nobody should believe, through the real binary: each is refused, each
//! leaves one `AUTH_FAILED`, and nothing else changes.

use hotcell_testkit::issuer::{AUDIENCE, Issuer, Signer, message};
use serde_json::{Value, json};

use super::server_audit::{names, query};
use super::server_auth::token;
use crate::support::home::Home;
use crate::support::http::Http;
use crate::support::mcp::Client;
use crate::support::server::Server;
use crate::support::wait_until;

fn serve(home: &Home, issuer: &Issuer) -> Server {
    home.serve_with(&[
        "--auth",
        "oidc",
        "--oidc-issuer",
        &issuer.url,
        "--oidc-audience",
        AUDIENCE,
        "--drain-grace-s",
        "0",
    ])
}

/// The answer to a request with this token: its status and its challenge.
fn answered(server: &Server, token: &str) -> (u16, String) {
    let mut http = Http::connect(&server.url).with_token(token);
    http.get("/mcp", &[]);
    let challenge = http.header("www-authenticate").unwrap_or_default();
    (http.status, challenge.to_owned())
}

/// Claims of the issuer with another value.
fn changed(issuer: &Issuer, field: &str, value: Value) -> Value {
    let mut claims = issuer.claims();
    claims[field] = value;
    claims
}

#[test]
fn forged_and_foreign_tokens_are_refused_recorded_and_change_nothing() {
    let home = Home::new();
    let (key, stranger) = (Signer::rs256("a"), Signer::p256("a"));
    let issuer = Issuer::start(&[&key]);
    let server = serve(&home, &issuer);
    let claims = issuer.claims();
    let good = key.token(&claims);
    let bad = |field: &str, value: Value| key.token(&changed(&issuer, field, value));
    let unsigned = |header: &Value| message(header, &claims) + ".";
    let broken = good.replacen('.', ".e30", 1);
    let cases = [
        (unsigned(&json!({ "alg": "none" })), "algorithm"),
        (unsigned(&json!({ "alg": "None", "kid": "a" })), "algorithm"),
        (key.confused_token(&claims), "algorithm"),
        (unsigned(&key.header()), "signature"),
        (broken, "signature"),
        (stranger.token(&claims), "unknown_key"),
        (Signer::p256("b").token(&claims), "unknown_key"),
        (bad("exp", json!(1_000_000_000)), "expired"),
        (bad("nbf", json!(9_000_000_000_u64)), "not_yet_valid"),
        (bad("aud", json!("https://other.example/mcp")), "audience"),
        (bad("iss", json!("https://evil.example")), "issuer"),
        (bad("scope", json!("openid")), "insufficient_scope"),
        (bad("sub", json!("x".repeat(75_000))), "too_long"),
        ("a.b.c".to_owned(), "malformed"),
    ];
    for (token, reason) in &cases {
        let (status, challenge) = answered(&server, token);
        let expected = match *reason {
            "insufficient_scope" => 403,
            _ => 401,
        };
        assert_eq!(status, expected, "{reason}: {challenge}");
        assert!(challenge.contains("resource_metadata="), "{challenge}");
        let error = match *reason {
            "insufficient_scope" => "insufficient_scope",
            "too_long" => "invalid_request",
            // Whatever else is wrong with a token, its sender hears no more.
            _ => "error=\"",
        };
        assert!(challenge.contains(error), "{reason}: {challenge}");
    }
    // The positive control: a good one is let in.
    assert!(!matches!(answered(&server, &good).0, 401 | 403));
    assert!(server.terminate().success());

    let events = query(&home, &[]);
    let expected: Vec<_> = ["SYSTEM_START"]
        .into_iter()
        .chain(cases.iter().map(|_| "AUTH_FAILED"))
        .chain(["SYSTEM_SHUTDOWN"])
        .collect();
    assert_eq!(names(&events), expected);
    for ((token, reason), event) in cases.iter().zip(&events[1..]) {
        assert_eq!(event["args"]["reason"], *reason, "{event}");
        assert_eq!(event["args"]["address"], "127.0.0.1", "{event}");
        assert_eq!(event["outcome"], "denied", "{event}");
        let parts = token.split('.').filter(|part| part.len() > 8);
        let told = event.to_string();
        assert!(
            parts.into_iter().all(|part| !told.contains(part)),
            "{event}"
        );
    }
}

#[test]
fn a_named_token_works_beside_the_issuers_until_it_is_revoked() {
    let home = Home::new();
    let key = Signer::ed25519("a");
    let issuer = Issuer::start(&[&key]);
    let named = token(&home, &["ci"]);
    let server = serve(&home, &issuer);
    server.said("named tokens");
    let mut program = Client::http_by_token(&server.url, &named);
    let mut person = Client::http_by_token(&server.url, &key.token(&issuer.claims()));
    let id = program.ok("spawn", json!({}))["container_id"].clone();
    let listed = person.ok("list_containers", json!({}));
    assert_eq!(listed["containers"], json!([]), "they are two principals");
    program.ok("kill", json!({ "container_id": id }));
    assert!(home.run(&["token", "revoke", "ci"]).status.success());
    wait_until("the revoked token is refused", || {
        answered(&server, &named).0 == 401
    });
    person.ok("list_containers", json!({}));
    assert!(server.terminate().success());
    let spawned = query(&home, &["--event", "CONTAINER_SPAWN"]);
    assert_eq!(spawned[0]["principal"], "token:ci");
}
