//! The trace of a request, from its caller to the operator's log.

use std::net::TcpListener;

use hotcell_testkit::collector::{Collector, ReceivedSpan};
use serde_json::json;

use crate::support::home::Home;
use crate::support::http::Http;
use crate::support::server::Server;
use crate::support::wait_until;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const OTHER: &str = "0af7651916cd43dd8448eb211c80319c";

fn traceparent(trace: &str) -> String {
    format!("00-{trace}-00f067aa0ba902b7-01")
}

#[test]
fn the_log_names_the_trace_of_a_request() {
    let home = Home::new().with("HOTCELL_LOG", "info,hotcell_service=debug");
    let mut server = Server::start(&home, &[]);
    let listed = json!({
        "name": "list_containers",
        "arguments": {},
        "_meta": {"traceparent": traceparent(TRACE)},
    });
    server
        .client()
        .request("tools/call", listed)
        .expect("it lists");
    let line = server.wait_for("operation ended");
    assert!(
        line.contains(TRACE) && line.contains("list_containers"),
        "{line}"
    );

    let missing = "/v1/containers/c_00000000000000000000000000/files/x";
    let header = |value: String| [("traceparent", value)];
    let mut http = Http::connect(&server.url);
    http.get(missing, &header(traceparent(OTHER)));
    assert_eq!(http.status, 404);
    let line = server.wait_for("operation ended");
    assert!(line.contains(OTHER) && line.contains("fs_read"), "{line}");

    // What is malformed is as if there were none: then the trace is a new one.
    let mut http = Http::connect(&server.url);
    http.get(missing, &header(traceparent(&TRACE.to_uppercase())));
    let line = server.wait_for("operation ended");
    assert!(line.contains("trace_id="), "{line}");
    assert!(!line.to_lowercase().contains(TRACE), "{line}");
    assert!(server.terminate().success());
}

/// The spans of a trace that have this name.
fn named<'a>(spans: &'a [ReceivedSpan], trace: &str, name: &str) -> Vec<&'a ReceivedSpan> {
    let is_it = |span: &&ReceivedSpan| span.trace_id == trace && span.name == name;
    spans.iter().filter(is_it).collect()
}

#[test]
fn a_collector_gets_the_span_of_each_operation_and_of_its_steps() {
    let collector = Collector::start();
    let home = Home::new().with("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url);
    let server = Server::start(&home, &["--warm=0"]);
    server.said("OTEL_EXPORTER_OTLP_ENDPOINT is used");
    let call = |tool: &str, arguments: serde_json::Value, traceparent: String| {
        let call = json!({
            "name": tool,
            "arguments": arguments,
            "_meta": {"traceparent": traceparent},
        });
        let answer = server.client().request("tools/call", call);
        answer.expect("it is answered")["structuredContent"].clone()
    };
    let spawn = json!({"env": {"KEY": "hunter2"}});
    let container = call("spawn", spawn, traceparent(TRACE))["container_id"].clone();
    let file = json!({"container_id": container, "path": "hunter3", "content": "hunter4"});
    call("fs_write", file, traceparent(TRACE));
    let missing = json!({"container_id": "c_00000000000000000000000000"});
    call("kill", missing, traceparent(OTHER));
    // Its caller records nothing of this one.
    let unsampled = traceparent(OTHER).replace("-01", "-00");
    call("list_containers", json!({}), unsampled);
    // The trace of this one begins here.
    server
        .client()
        .ok("kill", json!({"container_id": container}));
    assert!(
        server.terminate().success(),
        "what is left is sent at the end"
    );
    let spans = collector.spans();
    let [spawn] = named(&spans, TRACE, "spawn")[..] else {
        panic!("{spans:?}")
    };
    assert_eq!(
        (spawn.parent_span_id.as_str(), spawn.kind),
        ("00f067aa0ba902b7", 2)
    );
    assert_eq!(spawn.attributes["hotcell.principal"], "local");
    assert_eq!(spawn.attributes["hotcell.outcome"], "ok");
    let [create] = named(&spans, TRACE, "engine.create")[..] else {
        panic!("{spans:?}")
    };
    assert_eq!(create.parent_span_id, spawn.span_id);
    assert!(spawn.start_unix_ns <= create.start_unix_ns && create.end_unix_ns <= spawn.end_unix_ns);
    let is_of = |part: &str| {
        let is_it = |span: &&ReceivedSpan| span.name.starts_with(part);
        let mut found = spans.iter().filter(is_it);
        found.any(|span| span.parent_span_id == spawn.span_id)
    };
    assert!(is_of("store.") && is_of("agent."), "{spans:?}");
    let [write] = named(&spans, TRACE, "fs_write")[..] else {
        panic!("{spans:?}")
    };
    let [step] = named(&spans, TRACE, "agent.Write")[..] else {
        panic!("{spans:?}")
    };
    assert_eq!(step.parent_span_id, write.span_id);
    let [kill] = named(&spans, OTHER, "kill")[..] else {
        panic!("{spans:?}")
    };
    assert_eq!(
        (kill.status, kill.attributes["error.type"].as_str()),
        (2, "not_found")
    );
    assert!(named(&spans, OTHER, "list_containers").is_empty());
    let mut own = spans
        .iter()
        .filter(|span| span.name == "kill" && span.trace_id != OTHER);
    let own = own.next().expect("the other kill");
    assert_eq!((own.parent_span_id.as_str(), own.status), ("", 0));
    let told = format!("{spans:?}");
    assert!(
        !told.contains("hunter"),
        "secrets and contents stay here: {told}"
    );
    let mut ids: Vec<_> = spans.iter().map(|span| &span.span_id).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), spans.len(), "each span has an id of its own");
}

#[test]
fn a_collector_that_is_away_costs_its_traces_only() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let nobody = format!("http://{}", listener.local_addr().expect("an address"));
    drop(listener);
    let home = Home::operated();
    let mut server = Server::start(&home, &["--warm=0", "--otel-endpoint", &nobody]);
    server.client().ok("list_containers", json!({}));
    server.wait_for("traces cannot be exported");
    let metrics = || {
        let mut http = Http::connect(&server.url);
        http.get("/metrics", &[]);
        String::from_utf8(http.read_whole()).expect("text")
    };
    wait_until("the loss is counted", || {
        let metrics = metrics();
        let line = "hotcell_otel_spans_total{outcome=\"failed\"} ";
        let count = metrics.lines().find_map(|found| found.strip_prefix(line));
        count.is_some_and(|count| count != "0")
    });
    server.client().ok("list_containers", json!({}));
    assert!(server.terminate().success());
}
