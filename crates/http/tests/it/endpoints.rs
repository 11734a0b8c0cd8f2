//! Files through `/v1`, on a real service with the fake engine: streaming, ranges, conditions, and
//! no partial effects.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use hotcell_http::{Anonymous, Guard, Http, HttpLimits, HttpSettings, MCP_PATH, endpoints};
use hotcell_mcp::{Options, Server};
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use hotcell_testkit::world::World;

/// A container behind the endpoints.
struct Place {
    _world: World,
    router: axum::Router,
    base: String,
    _stop: tokio_util::sync::DropGuard,
}

impl Place {
    async fn new() -> Self {
        Self::with(HttpLimits::default()).await
    }

    async fn with(limits: HttpLimits) -> Self {
        Self::known_by(limits, Anonymous::default()).await
    }

    async fn known_by(limits: HttpLimits, identify: Anonymous) -> Self {
        let world = World::new().await;
        let base = format!("/v1/containers/{}", world.spawn().await);
        let endpoints = endpoints::router(world.service.clone(), &limits);
        let settings = HttpSettings {
            path: MCP_PATH.to_owned(),
            guard: Guard::default(),
            limits,
            identify: Arc::new(identify),
        };
        let stop = CancellationToken::new();
        let server = Server::new(world.service.clone(), Options::default());
        let router = Http::new(server, endpoints, &settings, &stop).router;
        Self {
            _world: world,
            router,
            base,
            _stop: stop.drop_guard(),
        }
    }

    async fn ask(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Body,
    ) -> Response {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.base));
        request = request.header("host", "localhost");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = self.router.clone().oneshot(request.body(body).unwrap());
        response.await.unwrap()
    }

    async fn get(&self, path: &str, headers: &[(&str, &str)]) -> (u16, Response) {
        let response = self.ask("GET", path, headers, Body::empty()).await;
        (response.status().as_u16(), response)
    }

    async fn put(
        &self,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Body>,
    ) -> (u16, Value) {
        let response = self.ask("PUT", path, headers, body.into()).await;
        let status = response.status().as_u16();
        (
            status,
            serde_json::from_slice(&bytes(response).await).unwrap(),
        )
    }

    async fn read(&self, path: &str) -> Vec<u8> {
        let (status, response) = self.get(path, &[]).await;
        assert_eq!(status, 200);
        bytes(response).await
    }
}

async fn bytes(response: Response) -> Vec<u8> {
    response
        .into_body()
        .collect()
        .await
        .unwrap()
        .to_bytes()
        .to_vec()
}

fn header<'a>(response: &'a Response, name: &str) -> &'a str {
    response.headers()[name].to_str().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_put_can_be_got_by_any_name() {
    let place = Place::new().await;
    for name in [
        "a.txt",
        "deep/er/b",
        "with%20blank",
        "new%0Aline",
        "%C3%A4%25%3F%23",
        "bar|%FF",
    ] {
        let path = format!("/files/{name}");
        let (status, written) = place.put(&path, &[], name.to_owned()).await;
        assert_eq!(status, 200, "{name}: {written}");
        let (_, response) = place.get(&path, &[]).await;
        assert_eq!(
            header(&response, "etag"),
            format!("\"{}\"", written["etag"].as_str().unwrap())
        );
        assert_eq!(header(&response, "content-length"), name.len().to_string());
        assert_eq!(
            header(&response, "content-type"),
            "application/octet-stream"
        );
        assert_eq!(header(&response, "x-content-type-options"), "nosniff");
        assert_eq!(bytes(response).await, name.as_bytes());
    }
    let (_, response) = place.get("/files/new%0Aline", &[]).await;
    assert_eq!(
        header(&response, "content-disposition"),
        "attachment; filename*=UTF-8''new%0Aline"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_of_a_file_can_be_got() {
    let place = Place::new().await;
    place.put("/files/a", &[], "0123456789").await;
    for (range, expected, content_range) in [
        ("bytes=2-4", "234", "bytes 2-4/10"),
        ("bytes=8-", "89", "bytes 8-9/10"),
        ("bytes=-3", "789", "bytes 7-9/10"),
        ("bytes=5-500", "56789", "bytes 5-9/10"),
    ] {
        let (status, response) = place.get("/files/a", &[("range", range)]).await;
        assert_eq!(status, 206, "{range}");
        assert_eq!(header(&response, "content-range"), content_range);
        assert_eq!(bytes(response).await, expected.as_bytes());
    }
    let (status, response) = place.get("/files/a", &[("range", "bytes=10-")]).await;
    assert_eq!(status, 416);
    assert_eq!(header(&response, "content-range"), "bytes */10");
    let stale = [("range", "bytes=2-4"), ("if-range", "\"another\"")];
    let (status, response) = place.get("/files/a", &stale).await;
    assert_eq!(
        (status, bytes(response).await),
        (200, b"0123456789".to_vec())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn conditions_hold() {
    let place = Place::new().await;
    let (_, written) = place
        .put("/files/a", &[("if-none-match", "*")], "one")
        .await;
    let etag = format!("\"{}\"", written["etag"].as_str().unwrap());
    assert_eq!(
        place.get("/files/a", &[("if-none-match", &etag)]).await.0,
        304
    );
    assert_eq!(place.get("/files/a", &[("if-match", "\"x\"")]).await.0, 412);
    let (status, refused) = place
        .put("/files/a", &[("if-none-match", "*")], "two")
        .await;
    assert_eq!(status, 412, "{refused}");
    let (status, refused) = place
        .put("/files/a", &[("if-match", "\"0123456789abcdef\"")], "two")
        .await;
    assert_eq!(status, 412, "{refused}");
    assert_eq!(refused["code"], "conflict");
    assert_eq!(refused["current_etag"], written["etag"]);
    assert_eq!(
        place.put("/files/a", &[("if-match", &etag)], "two").await.0,
        200
    );
    assert_eq!(place.read("/files/a").await, b"two");
    assert_eq!(
        place.get("/files/a", &[("if-none-match", &etag)]).await.0,
        200
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn head_tells_all_but_the_content() {
    let place = Place::new().await;
    place.put("/files/a", &[], "12345").await;
    let response = place.ask("HEAD", "/files/a", &[], Body::empty()).await;
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(header(&response, "content-length"), "5");
    assert!(bytes(response).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_breaks_off_or_pauses_leaves_the_file_as_it_was() {
    let upload_idle_timeout = Duration::from_millis(200);
    let place = Place::with(HttpLimits {
        upload_idle_timeout,
        ..HttpLimits::default()
    })
    .await;
    place.put("/files/a", &[], "before").await;
    let half = || Ok(Bytes::from(vec![b'x'; 1 << 20]));
    let broken = stream::iter([half(), Err(std::io::Error::other("the client is gone"))]);
    assert_eq!(
        place
            .put("/files/a", &[], Body::from_stream(broken))
            .await
            .0,
        400
    );
    let paused = stream::iter([half()]);
    let paused = futures_util::StreamExt::chain(paused, stream::pending());
    let (status, refused) = place.put("/files/a", &[], Body::from_stream(paused)).await;
    assert_eq!(status, 408, "{refused}");
    assert_eq!(place.read("/files/a").await, b"before");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_travels_as_an_archive_packed_or_not() {
    let place = Place::new().await;
    place.put("/files/in/a.rs", &[], "a").await;
    place
        .put("/files/in/sub/b.txt", &[], vec![b'b'; 300_000])
        .await;
    for (query, dest) in [("?path=in", "one"), ("?path=in&gzip=false", "two")] {
        let archive = place.read(&format!("/archive{query}")).await;
        assert_eq!(archive.starts_with(&[0x1f, 0x8b]), dest == "one");
        let (status, imported) = place
            .put(&format!("/archive?dest={dest}"), &[], archive)
            .await;
        assert_eq!(status, 200, "{imported}");
    }
    for dest in ["one", "two"] {
        assert_eq!(place.read(&format!("/files/{dest}/a.rs")).await, b"a");
        assert_eq!(
            place.read(&format!("/files/{dest}/sub/b.txt")).await,
            vec![b'b'; 300_000]
        );
    }
    let archive = place.read("/archive?path=in&exclude=**/*.txt").await;
    place.put("/archive?dest=three", &[], archive).await;
    assert_eq!(place.get("/files/three/sub/b.txt", &[]).await.0, 404);
    assert_eq!(place.read("/files/three/a.rs").await, b"a");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_archive_that_is_cut_short_is_refused() {
    let place = Place::new().await;
    place.put("/files/in/a", &[], vec![7; 100_000]).await;
    let mut archive = place.read("/archive?path=in").await;
    archive.truncate(archive.len() - 5);
    let (status, refused) = place.put("/archive?dest=out", &[], archive).await;
    assert_eq!(status, 400, "{refused}");
    assert_eq!(place.get("/files/out/a", &[]).await.0, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_have_the_status_of_their_code() {
    let place = Place::new().await;
    for (path, status, code) in [
        ("/files/missing", 404, "not_found"),
        ("/files/..%2F..%2Fetc%2Fpasswd", 403, "denied"),
        ("/files/a%00b", 400, "invalid_argument"),
        ("/archive?path=missing", 404, "not_found"),
        ("/archive?gzip=maybe", 400, "invalid_argument"),
        ("/archive?unknown=1", 400, "invalid_argument"),
        ("x/archive", 404, "not_found"),
    ] {
        let (found, response) = place.get(path, &[]).await;
        let body: Value = serde_json::from_slice(&bytes(response).await).unwrap();
        assert_eq!(
            (found, body["code"].as_str().unwrap()),
            (status, code),
            "{path}: {body}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_says_how_it_is() {
    let mut place = Place::new().await;
    place.base = String::new();
    assert_eq!(place.read("/healthz").await, br#"{"status":"ok"}"#);
    assert_eq!(place.read("/readyz").await, br#"{"status":"ready"}"#);
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_are_for_the_operator_alone() {
    let mut place = Place::new().await;
    place.base = String::new();
    let (status, response) = place.get("/metrics", &[]).await;
    let body: Value = serde_json::from_slice(&bytes(response).await).unwrap();
    assert_eq!((status, &body["code"]), (403, &"denied".into()), "{body}");
    let hint = body["hint"].as_str().unwrap();
    assert!(hint.contains("--admin-over-http"), "{body}");

    let operator = Anonymous { is_admin: true };
    let mut place = Place::known_by(HttpLimits::default(), operator).await;
    place.base = String::new();
    let metrics = String::from_utf8(place.read("/metrics").await).unwrap();
    assert!(
        metrics.contains("mcp_devbench_active_containers"),
        "{metrics}"
    );
    assert!(metrics.ends_with("# EOF\n"), "{metrics}");
}
