//! The trace of a request, from its caller to the operator's log.

use serde_json::json;

use crate::support::home::Home;
use crate::support::http::Http;
use crate::support::server::Server;

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
