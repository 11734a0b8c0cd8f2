use std::time::Duration;

use hotcell_domain::TraceContext;
use hotcell_otlp::{Endpoint, Exporter, Headers, Span, SpanKind};
use hotcell_testkit::collector::Collector;

/// Only for tests that hang.
const DEADLINE: Duration = Duration::from_mins(1);

fn exporter(url: &str) -> Exporter {
    let endpoint = Endpoint::parse(url).expect("an address");
    let headers = Headers::parse("authorization=Bearer%20key").expect("a header");
    Exporter::start(&endpoint, &headers).expect("a client")
}

fn span(name: &'static str) -> Span {
    Span {
        trace_id: TraceContext::new([0xab; 16]).trace_id,
        span_id: [1, 2, 3, 4, 5, 6, 7, 8],
        parent_id: [0; 8],
        has_remote_parent: false,
        name: name.into(),
        kind: SpanKind::Internal,
        start_unix_ns: 1_785_000_000_000_000_001,
        end_unix_ns: 1_785_000_000_000_500_000,
        attributes: Vec::new(),
        is_error: false,
    }
}

#[tokio::test]
async fn a_span_arrives_as_the_official_schema_has_it() {
    let collector = Collector::start();
    let exporter = exporter(&collector.url);
    exporter.record(Span {
        parent_id: [9; 8],
        has_remote_parent: true,
        kind: SpanKind::Server,
        attributes: vec![
            ("hotcell.outcome", "failed".to_owned()),
            ("long", "é".repeat(500)),
        ],
        is_error: true,
        ..span("spawn")
    });
    exporter.record(span("engine.create"));
    assert!(exporter.flush(DEADLINE).await);
    let spans = collector.spans();
    let [spawn, create] = &spans[..] else {
        panic!("{spans:?}")
    };
    assert_eq!(collector.authorization().as_deref(), Some("bearer key"));
    assert_eq!(spawn.resource["service.name"], "hotcell");
    assert_eq!(spawn.resource["service.version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(
        (spawn.trace_id.as_str(), spawn.span_id.as_str()),
        ("ab".repeat(16).as_str(), "0102030405060708")
    );
    assert_eq!(spawn.parent_span_id, "09".repeat(8));
    assert_eq!(
        (spawn.name.as_str(), spawn.kind, spawn.status),
        ("spawn", 2, 2)
    );
    assert_eq!(spawn.start_unix_ns, 1_785_000_000_000_000_001);
    assert_eq!(spawn.end_unix_ns, 1_785_000_000_000_500_000);
    assert_eq!(spawn.attributes["hotcell.outcome"], "failed");
    assert_eq!(spawn.attributes["long"], "é".repeat(128));
    assert_eq!((spawn.flags, create.flags), (0x301, 0x101));
    assert_eq!((create.kind, create.status), (1, 0));
    assert_eq!(create.parent_span_id, "");
    let counts = exporter.counts();
    assert_eq!((counts.exported, counts.dropped, counts.failed), (2, 0, 0));
}

#[tokio::test]
async fn what_a_collector_refuses_is_counted_and_the_rest_goes_on() {
    let collector = Collector::start();
    let exporter = exporter(&collector.url);
    collector.answers(400, b"");
    exporter.record(span("refused"));
    assert!(exporter.flush(DEADLINE).await);
    assert_eq!(collector.requests(), 1, "what is wrong stays wrong");
    assert_eq!(exporter.counts().failed, 1);
    // partial_success { rejected_spans: 1 }
    collector.answers(200, &[0x0a, 0x02, 0x08, 0x01]);
    exporter.record(span("taken"));
    exporter.record(span("rejected"));
    assert!(exporter.flush(DEADLINE).await);
    let counts = exporter.counts();
    assert_eq!((counts.exported, counts.failed), (1, 2));
}

#[tokio::test]
async fn a_busy_collector_is_asked_again() {
    let collector = Collector::start();
    let exporter = exporter(&collector.url);
    collector.answers(503, b"");
    exporter.record(span("patient"));
    let flushed = exporter.clone();
    let flushed = tokio::spawn(async move { flushed.flush(DEADLINE).await });
    while collector.requests() == 0 {
        tokio::task::yield_now().await;
    }
    collector.answers(200, b"");
    assert!(flushed.await.expect("no panic"));
    assert_eq!(exporter.counts().exported, 1);
    assert!(collector.requests() >= 2);
}

#[tokio::test]
async fn nobody_waits_for_a_collector_that_is_away() {
    // Nobody listens there any more.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    drop(listener);
    let exporter = exporter(&url);
    for _ in 0..10_000 {
        exporter.record(span("lost"));
    }
    let counts = exporter.counts();
    assert!(counts.dropped >= 10_000 - 2048 - 512, "{counts:?}");
    assert!(
        !exporter.flush(Duration::from_millis(1)).await,
        "a flush has its bound"
    );
    assert_eq!(exporter.counts().exported, 0);
}
