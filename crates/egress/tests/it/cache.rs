//! Downloads that are kept and shared.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use hotcell_egress::{Access, Guest, Limits, Pattern, ProfileSettings, Target};
use http_body_util::Full;
use hyper::{Request, Response};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::world::{Origin, World, name};

const HOST: &str = "index.example.com";
const WHEEL: &str = "/packages/aa/x-1.0-py3-none-any.whl";

fn cached() -> ProfileSettings {
    ProfileSettings {
        allow: vec![Pattern::parse(HOST).unwrap()],
        access: Access::Read,
        cache: true,
        ..ProfileSettings::default()
    }
}

/// A package index that counts, and can be made to fail.
#[derive(Clone, Default)]
struct Index {
    asked: Arc<Mutex<Vec<String>>>,
    is_down: Arc<AtomicBool>,
}

impl Index {
    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }

    fn answer(&self, request: &Request<Bytes>) -> Response<Full<Bytes>> {
        let text = |name: &str| {
            let value = request.headers().get(name);
            value
                .map_or("-", |value| value.to_str().unwrap())
                .to_owned()
        };
        let path = request.uri().path().to_owned();
        let mut asked = self.asked.lock().unwrap();
        asked.push(format!(
            "{} {path} {}",
            request.method(),
            text("if-none-match")
        ));
        drop(asked);
        let response = Response::builder();
        if self.is_down.load(Ordering::Relaxed) {
            return response.status(503).body(Full::default()).unwrap();
        }
        let (response, body) = match path.as_str() {
            "/simple/x/" if text("if-none-match") == "\"v1\"" => (
                response.status(304).header("cache-control", "no-cache"),
                String::new(),
            ),
            "/simple/x/" => (
                response
                    .header("etag", "\"v1\"")
                    .header("cache-control", "no-cache"),
                format!("index {}", text("accept")),
            ),
            "/cookie.whl" => (response.header("set-cookie", "a=b"), "cookie".to_owned()),
            "/vary.whl" => (response.header("vary", "*"), "vary".to_owned()),
            "/missing.whl" => (response.status(404), "missing".to_owned()),
            "/debian/by-hash/SHA256/0000000000000000000000000000000000000000000000000000000000000000" => {
                (response, "another content".to_owned())
            }
            _ => (
                response,
                format!("body of {path} for {}", text("user-agent")),
            ),
        };
        response.body(Full::new(Bytes::from(body))).unwrap()
    }
}

async fn world() -> (World, Index, Origin) {
    let index = Index::default();
    let own = index.clone();
    let origin = Origin::answering(HOST, move |request| own.answer(&request)).await;
    let world = World::with_origin(cached(), HOST, &origin);
    (world, index, origin)
}

async fn client(world: &World) -> reqwest::Client {
    let door = world.door(Target::Name(name(HOST), 443)).await;
    world.trusting(HOST, door)
}

async fn client_of(world: &World, guest: Arc<Guest>) -> reqwest::Client {
    let door: SocketAddr = World::door_of(guest, Target::Name(name(HOST), 443)).await;
    world.trusting(HOST, door)
}

async fn get(client: &reqwest::Client, path: &str) -> String {
    got(client.get(format!("https://{HOST}{path}"))).await
}

async fn got(request: reqwest::RequestBuilder) -> String {
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    format!("{status} {}", response.text().await.unwrap())
}

/// The entry is written after the last byte was given out.
async fn once_kept(world: &World) {
    let bodies = world.directory.path().join("cache/bodies");
    let waiting = async {
        while std::fs::read_dir(&bodies).map_or(0, Iterator::count) == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), waiting)
        .await
        .unwrap();
}

#[tokio::test]
async fn the_second_container_gets_a_release_without_a_connection_to_the_host() {
    let (world, index, _origin) = world().await;
    let first = client(&world).await;
    let request = first.get(format!("https://{HOST}{WHEEL}"));
    let answer = got(request.header("user-agent", "pip/1 (secrets of this system)")).await;
    assert!(answer.starts_with("200 body of /packages/"), "{answer}");
    assert!(answer.contains("for hotcell/"), "{answer}");
    once_kept(&world).await;
    assert_eq!(index.asked().len(), 1);
    index.is_down.store(true, Ordering::Relaxed);
    let second = client_of(&world, world.neighbour()).await;
    assert_eq!(get(&second, WHEEL).await, answer);
    assert_eq!(index.asked(), [""; 0]);
    // Ranges and questions are answered from the whole.
    let part = second.get(format!("https://{HOST}{WHEEL}"));
    assert_eq!(got(part.header("range", "bytes=0-3")).await, "206 body");
    let head = second.head(format!("https://{HOST}{WHEEL}"));
    let head = head.send().await.unwrap();
    assert_eq!(
        head.headers()["content-length"],
        (answer.len() - 4).to_string()
    );
    assert_eq!(index.asked(), [""; 0]);
}

#[tokio::test]
async fn an_index_is_asked_for_again_and_given_out_stale_if_the_host_fails() {
    let (world, index, _origin) = world().await;
    let client = client(&world).await;
    let first = get(&client, "/simple/x/").await;
    assert_eq!(first, "200 index */*");
    once_kept(&world).await;
    assert_eq!(get(&client, "/simple/x/").await, first);
    let asked = index.asked();
    assert_eq!(asked, ["GET /simple/x/ -", "GET /simple/x/ \"v1\""]);
    index.is_down.store(true, Ordering::Relaxed);
    assert_eq!(get(&client, "/simple/x/").await, first);
    assert_eq!(index.asked().len(), 1);
    // A host that fails is left alone for a while.
    assert_eq!(get(&client, "/simple/x/").await, first);
    assert_eq!(index.asked(), [""; 0]);
    assert!(get(&client, "/simple/y/").await.starts_with("503"));
}

#[tokio::test]
async fn each_representation_is_kept_and_a_container_cannot_choose_what_others_get() {
    let (world, index, _origin) = world().await;
    let client = client(&world).await;
    let json = "application/vnd.pypi.simple.v1+json";
    let with = |accept: String| {
        let request = client.get(format!("https://{HOST}/simple/x/"));
        got(request.header("accept", accept))
    };
    let odd = with(format!("text/evil, {json};q=0.001")).await;
    assert!(
        odd.starts_with("200 index application/vnd.pypi.simple.v1+json,"),
        "{odd}"
    );
    assert!(!odd.contains("evil"), "{odd}");
    once_kept(&world).await;
    assert_eq!(with(json.to_owned()).await, odd);
    assert_eq!(get(&client, "/simple/x/").await, "200 index */*");
    assert_eq!(index.asked().len(), 3);
}

#[tokio::test]
async fn what_is_personal_or_broken_is_not_kept() {
    let (world, index, _origin) = world().await;
    let client = client(&world).await;
    let by_hash = format!("/debian/by-hash/SHA256/{}", "0".repeat(64));
    for path in [
        "/cookie.whl",
        "/vary.whl",
        "/missing.whl",
        &by_hash,
        "/x.whl?a=b",
    ] {
        let first = get(&client, path).await;
        assert_eq!(get(&client, path).await, first, "{path}");
        assert_eq!(index.asked().len(), 2, "{path}");
    }
    for header in ["authorization", "cookie"] {
        let request = || {
            client
                .get(format!("https://{HOST}/x.whl"))
                .header(header, "mine")
        };
        got(request()).await;
        got(request()).await;
        assert_eq!(index.asked().len(), 2, "{header}");
    }
    let ranged = client.get(format!("https://{HOST}/x.whl"));
    got(ranged.header("range", "bytes=0-3")).await;
    get(&client, "/x.whl").await;
    assert_eq!(index.asked().len(), 2, "a part is not taken for the whole");
}

#[tokio::test]
async fn bytes_from_the_cache_count_against_the_budget() {
    let (world, _index, _origin) = world().await;
    let client = client(&world).await;
    get(&client, WHEEL).await;
    once_kept(&world).await;
    let before = world.guest.report(std::time::SystemTime::now()).bytes_down;
    get(&client, WHEEL).await;
    let after = world.guest.report(std::time::SystemTime::now()).bytes_down;
    assert!(after > before, "{before} {after}");
    let poor = ProfileSettings {
        limits: Limits {
            down_bytes: 10,
            ..Limits::default()
        },
        ..cached()
    };
    world.replace_profile(poor);
    let client = client_of(&world, world.neighbour()).await;
    get(&client, WHEEL).await;
    let again = client.get(format!("https://{HOST}{WHEEL}")).send().await;
    assert!(again.unwrap().text().await.is_err());
}

/// A host that answers slowly, and breaks off if it is told to.
async fn slow_host(
    gate: Arc<tokio::sync::Semaphore>,
    is_whole: bool,
) -> (SocketAddr, Arc<Mutex<u32>>) {
    let asked: Arc<Mutex<u32>> = Arc::default();
    let own = Arc::clone(&asked);
    let address = crate::world::serve(move |mut stream| {
        let (gate, own) = (Arc::clone(&gate), Arc::clone(&own));
        async move {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                match stream.read_u8().await {
                    Ok(byte) => head.push(byte),
                    Err(_) => return,
                }
            }
            *own.lock().unwrap() += 1;
            let begin = b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhello";
            stream.write_all(begin).await.unwrap();
            gate.acquire().await.unwrap().forget();
            if is_whole {
                let _ = stream.write_all(b"world").await;
            }
        }
    })
    .await;
    (address, asked)
}

async fn plain_client(world: &World) -> reqwest::Client {
    let door = world.door(Target::Name(name(HOST), 80)).await;
    world.trusting(HOST, door)
}

#[tokio::test]
async fn requests_for_the_same_become_one_and_are_streamed_while_it_is_written() {
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let (address, asked) = slow_host(Arc::clone(&gate), true).await;
    let world = World::with_hosts(cached(), &[(HOST, 80, address)], None);
    let url = format!("http://{HOST}/x.whl");
    let (first, second) = (plain_client(&world).await, plain_client(&world).await);
    let mut first = first.get(&url).send().await.unwrap();
    let mut second = second.get(&url).send().await.unwrap();
    for response in [&mut first, &mut second] {
        // The host has not sent the rest yet.
        assert_eq!(response.chunk().await.unwrap().unwrap(), "hello");
    }
    gate.add_permits(2);
    for response in [first, second] {
        assert_eq!(response.text().await.unwrap(), "world");
    }
    assert_eq!(*asked.lock().unwrap(), 1);
}

#[tokio::test]
async fn a_download_that_is_cut_off_is_cut_off_inside_and_not_kept() {
    let gate = Arc::new(tokio::sync::Semaphore::new(9));
    let (address, asked) = slow_host(gate, false).await;
    let world = World::with_hosts(cached(), &[(HOST, 80, address)], None);
    for count in 1..=2 {
        let client = plain_client(&world).await;
        let got = client.get(format!("http://{HOST}/x.whl")).send().await;
        assert!(got.unwrap().text().await.is_err());
        assert_eq!(*asked.lock().unwrap(), count);
    }
}
