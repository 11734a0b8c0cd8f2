//! Hosts that lie to the cache about where their answers end.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use hotcell_egress::{Access, Guest, Pattern, ProfileSettings, Target};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::world::{World, name, serve};

const HOST: &str = "index.example.com";

/// A host that answers each request on a connection with the bytes that its path has, and ends the
/// connection after those that say so.
async fn host(answers: &'static [(&str, &str)]) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let own = Arc::clone(&asked);
    let address = serve(move |mut stream| {
        let own = Arc::clone(&own);
        async move {
            let mut head = Vec::new();
            while let Ok(byte) = stream.read_u8().await {
                head.push(byte);
                if !head.ends_with(b"\r\n\r\n") {
                    continue;
                }
                let text = String::from_utf8(std::mem::take(&mut head)).unwrap();
                let path = text.split(' ').nth(1).unwrap().to_owned();
                let answer = answers.iter().find(|(own, _)| *own == path).unwrap().1;
                own.lock().unwrap().push(path.clone());
                let bytes = format!("HTTP/1.1 200 OK\r\n{answer}");
                stream.write_all(bytes.as_bytes()).await.unwrap();
                if path.contains("end") {
                    return;
                }
            }
        }
    })
    .await;
    (address, asked)
}

fn world(address: SocketAddr) -> World {
    let profile = ProfileSettings {
        allow: vec![Pattern::parse(HOST).unwrap()],
        access: Access::Read,
        cache: true,
        ..ProfileSettings::default()
    };
    World::with_hosts(profile, &[(HOST, 80, address)], None)
}

/// What a container gets; `None` if it is cut off.
async fn get(world: &World, guest: Arc<Guest>, path: &str) -> Option<String> {
    let door = World::door_of(guest, Target::Name(name(HOST), 80)).await;
    let client = world.trusting(HOST, door);
    let got = client.get(format!("http://{HOST}{path}")).send().await;
    got.ok()?.text().await.ok()
}

#[tokio::test]
async fn an_answer_whose_end_is_missing_is_not_kept() {
    let (address, asked) = host(&[
        ("/end/length.whl", "Content-Length: 9\r\n\r\nhello"),
        (
            "/end/chunks.whl",
            "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
        ),
        ("/end/nothing.whl", "\r\nhello"),
        (
            "/whole.whl",
            "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        ),
    ])
    .await;
    let world = world(address);
    for (path, expected, count) in [
        ("/end/length.whl", None, 2),
        ("/end/chunks.whl", None, 2),
        ("/end/nothing.whl", Some("hello"), 2),
        ("/whole.whl", Some("hello"), 1),
    ] {
        for guest in [Arc::clone(&world.guest), world.neighbour()] {
            let got = get(&world, guest, path).await;
            assert_eq!(got.as_deref(), expected, "{path}");
        }
        let asked = std::mem::take(&mut *asked.lock().unwrap());
        assert_eq!(asked.len(), count, "{path}: {asked:?}");
    }
}

#[tokio::test]
async fn bytes_behind_an_answer_are_not_the_answer_to_anybodys_next_request() {
    let (address, asked) = host(&[
        (
            "/a.whl",
            "Content-Length: 5\r\n\r\nhelloHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
        ),
        ("/b.whl", "Content-Length: 4\r\n\r\ngood"),
    ])
    .await;
    let world = world(address);
    for _ in 0..8 {
        let first = get(&world, Arc::clone(&world.guest), "/a.whl").await;
        assert_eq!(first.as_deref(), Some("hello"));
        let second = get(&world, world.neighbour(), "/b.whl").await;
        assert_eq!(second.as_deref(), Some("good"));
    }
    let asked = asked.lock().unwrap().clone();
    assert!(asked.iter().any(|path| path == "/b.whl"), "{asked:?}");
}
