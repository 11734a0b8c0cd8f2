//! Faults of servers on the network.

#![expect(clippy::unwrap_used, reason = "a test may fail here")]

use std::process::Stdio;

use hotcell_upstream::{Endpoint, Entry, Health, Launch, Template, UpstreamError};
use serde_json::json;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::fixture::{Bench, entry, python, structured};

struct Fake {
    url: String,
    #[expect(dead_code, reason = "dropped, it is killed")]
    child: Child,
}

async fn fake(faults: &[&str]) -> Fake {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/http_server.py");
    let mut command = Command::new(python());
    command
        .arg(script)
        .args(faults)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true);
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let port = lines.next_line().await.unwrap().unwrap();
    Fake {
        url: format!("http://127.0.0.1:{port}/mcp"),
        child,
    }
}

fn at(url: &str, headers: &[(&str, &str)]) -> Entry {
    let headers = headers
        .iter()
        .map(|(name, value)| ((*name).to_owned(), Template::parse(value).unwrap()));
    let endpoint = Endpoint {
        url: Template::parse(url).unwrap(),
        headers: headers.collect(),
    };
    entry("s", Launch::Http(endpoint))
}

#[tokio::test]
async fn a_session_that_the_server_forgets_is_begun_anew_and_the_call_repeated() {
    let server = fake(&["sessions"]).await;
    let bench = Bench::new(vec![at(&server.url, &[])]);
    let first = structured(&bench.call("s", "t", &json!({})).await.unwrap());
    let second = structured(&bench.call("s", "t", &json!({})).await.unwrap());
    assert_ne!(first["session"], second["session"]);
    assert_eq!(bench.local().servers()[0].health, Health::Running);
}

#[tokio::test]
async fn an_answer_without_end_is_too_large() {
    let server = fake(&["huge"]).await;
    let bench = Bench::new(vec![at(&server.url, &[])]);
    let error = bench.call("s", "t", &json!({})).await.unwrap_err();
    assert!(matches!(error, UpstreamError::TooLarge { .. }), "{error}");
}

#[tokio::test]
async fn an_interrupted_stream_is_taken_up_again() {
    let server = fake(&["cut"]).await;
    let bench = Bench::new(vec![at(&server.url, &[])]);
    let result = bench.call("s", "t", &json!({})).await.unwrap();
    assert!(format!("{result:?}").contains("resumed"));
}

#[tokio::test]
async fn headers_are_sent_with_their_secrets_and_not_to_another_server() {
    let server = fake(&["secret"]).await;
    let headers = [("authorization", "Bearer ${ENV:HOME}"), ("x-team", "blue")];
    let bench = Bench::new(vec![at(&server.url, &headers)]);
    let arrived = structured(&bench.call("s", "t", &json!({})).await.unwrap());
    let home = std::env::var("HOME").unwrap();
    assert_eq!(arrived["authorization"], format!("Bearer {home}"));
    assert_eq!(arrived["x-team"], "blue");

    let elsewhere = fake(&[&format!("redirect={}", server.url)]).await;
    let bench = Bench::new(vec![at(&elsewhere.url, &headers)]);
    let error = bench.call("s", "t", &json!({})).await.unwrap_err();
    assert!(error.to_string().contains("HTTP status 307"), "{error}");
}

#[tokio::test]
async fn a_server_that_refuses_or_is_not_there_is_told() {
    let server = fake(&["status=401"]).await;
    let bench = Bench::new(vec![at(&server.url, &[])]);
    let error = bench.call("s", "t", &json!({})).await.unwrap_err();
    let said =
        "the MCP server `s` could not be started: it refused the request with HTTP status 401";
    assert_eq!(error.to_string(), said);
    // A port that nobody has.
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/mcp", closed.local_addr().unwrap());
    drop(closed);
    let bench = Bench::new(vec![at(&url, &[])]);
    let error = bench.call("s", "t", &json!({})).await.unwrap_err();
    assert!(
        error.to_string().ends_with("it cannot be reached"),
        "{error}"
    );
    assert!(error.was_not_sent());
    for (url, headers, said) in [
        ("ftp://x/", vec![], "its URL is not one of http or https"),
        (
            "http://x/",
            vec![("Host", "y")],
            "its header `Host` cannot be set",
        ),
        (
            "http://x/",
            vec![("a b", "y")],
            "its header `a b` cannot be set",
        ),
        (
            "http://x/${ENV:SURELY_NOT_SET}",
            vec![],
            "the environment variable SURELY_NOT_SET is not set",
        ),
    ] {
        let bench = Bench::new(vec![at(url, &headers)]);
        let error = bench.call("s", "t", &json!({})).await.unwrap_err();
        assert!(error.to_string().ends_with(said), "{error}");
    }
}
