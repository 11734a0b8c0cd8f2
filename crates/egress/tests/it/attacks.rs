//! What hostile programs try, and what they get.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use hotcell_egress::{Access, Limits, Pattern, ProfileSettings, RuleSettings, Target};
use http_body_util::{Empty, Full};
use hyper::{Method, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::world::{Origin, World, ends, name, serve};

const HOST: &str = "api.example.com";

fn ruled(access: &str) -> ProfileSettings {
    let access = Access::parse(access).unwrap();
    let rule = RuleSettings::new(Pattern::parse(HOST).unwrap(), access);
    ProfileSettings {
        rules: vec![rule],
        ..ProfileSettings::default()
    }
}

/// A host that writes down what it is asked.
async fn witness() -> (Origin, Arc<Mutex<Vec<String>>>) {
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let own = Arc::clone(&asked);
    let origin = Origin::answering(HOST, move |request: Request<Bytes>| {
        let framing = ["content-length", "transfer-encoding"]
            .map(|name| request.headers().contains_key(name));
        let (method, path, body) = (request.method(), request.uri().path(), request.body());
        let body = String::from_utf8_lossy(body);
        let mut own = own.lock().unwrap();
        own.push(format!("{method} {path} {body:?}"));
        assert_ne!(framing, [true, true], "two framings reached the host");
        Response::new(Full::new(Bytes::from_static(b"ok")))
    })
    .await;
    (origin, asked)
}

/// Sends bytes as they are and reads until the connection ends or `count` answers have come.
async fn raw(door: SocketAddr, bytes: &[u8], count: usize) -> Vec<u16> {
    let mut stream = TcpStream::connect(door).await.unwrap();
    // The broker may end the connection before it has read all.
    let _ = stream.write_all(bytes).await;
    let (mut text, mut buffer) = (String::new(), [0; 4096]);
    while text.matches("HTTP/1.1 ").count() < count {
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => break,
            Ok(read) => text.push_str(&String::from_utf8_lossy(&buffer[..read])),
        }
    }
    let answers = text.split("HTTP/1.1 ").skip(1);
    answers.map(|answer| answer[..3].parse().unwrap()).collect()
}

#[tokio::test]
async fn requests_for_another_host_are_misdirected_wherever_they_name_it() {
    let (origin, asked) = witness().await;
    let world = World::with_origin(ruled("full"), HOST, &origin);
    let door = world.door(Target::Name(name(HOST), 80)).await;
    for request in [
        "GET / HTTP/1.1\r\nHost: evil.example.org\r\n\r\n".to_owned(),
        format!("GET http://evil.example.org/ HTTP/1.1\r\nHost: {HOST}\r\n\r\n"),
        format!("GET / HTTP/1.1\r\nHost: {HOST}\r\nHost: {HOST}\r\n\r\n"),
        format!("GET / HTTP/1.1\r\nHost: {HOST}:8080\r\n\r\n"),
        format!("GET / HTTP/1.1\r\nHost: user@{HOST}\r\n\r\n"),
        "GET / HTTP/1.1\r\n\r\n".to_owned(),
        "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".to_owned(),
    ] {
        let answers = raw(door, request.as_bytes(), 1).await;
        assert!(matches!(answers[..], [421 | 400]), "{request}: {answers:?}");
    }
    assert!(asked.lock().unwrap().is_empty());
    // The second of two requests in one piece is read by itself.
    let two = format!(
        "GET /a HTTP/1.1\r\nHost: {HOST}\r\n\r\nGET /b HTTP/1.1\r\nHost: evil.example.org\r\n\r\n"
    );
    assert_eq!(raw(door, two.as_bytes(), 2).await, [200, 421]);
    assert_eq!(*asked.lock().unwrap(), ["GET /a \"\""]);
}

#[tokio::test]
async fn nothing_is_smuggled_between_two_readers() {
    let (origin, asked) = witness().await;
    let world = World::with_origin(ruled("GET /a"), HOST, &origin);
    let door = world.door(Target::Name(name(HOST), 80)).await;
    let head = format!("GET /a HTTP/1.1\r\nHost: {HOST}\r\n");
    let many = "x: y\r\n".repeat(100_000);
    let long = format!("x: {}\r\n", "y".repeat(1 << 20));
    for (what, status, rest) in [
        // The chunks count, the length does not reach the host, and the connection ends.
        (
            "a length and chunks",
            200,
            "Content-Length: 44\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /b HTTP/1.1\r\nHost: api.example.com\r\n\r\n",
        ),
        (
            "two lengths",
            400,
            "Content-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        ),
        (
            "an unknown coding",
            400,
            "Transfer-Encoding: chunked, x\r\n\r\n0\r\n\r\n",
        ),
        ("a folded header", 400, "X: a\r\n b: c\r\n\r\n"),
        (
            "a space before the colon",
            400,
            "Content-Length : 5\r\n\r\nabcde",
        ),
        ("too many headers", 431, &format!("{many}\r\n")),
        ("a header that is too long", 431, &format!("{long}\r\n")),
        (
            "a chunk size that overflows",
            502,
            "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n\r\n",
        ),
    ] {
        let answers = raw(door, format!("{head}{rest}").as_bytes(), 3).await;
        assert!(
            matches!(answers[..], [own] if own == status) || (answers.is_empty() && status != 200),
            "{what}: {answers:?}"
        );
        let seen: Vec<String> = asked.lock().unwrap().drain(..).collect();
        assert!(
            !seen.iter().any(|line| line.contains("/b")),
            "{what}: {seen:?}"
        );
        assert!(seen.len() <= 1, "{what}: {seen:?}");
    }
    // And ordinary requests pass, a body in chunks included.
    assert_eq!(raw(door, format!("{head}\r\n").as_bytes(), 1).await, [200]);
    let chunks = format!("{head}Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n");
    assert_eq!(raw(door, chunks.as_bytes(), 1).await, [200]);
    assert_eq!(*asked.lock().unwrap(), ["GET /a \"\"", "GET /a \"ab\""]);
}

#[tokio::test]
async fn methods_upgrades_and_pushes_that_a_rule_does_not_list_are_refused() {
    let (origin, asked) = witness().await;
    let request = |access: &'static str, head: &'static str| {
        let world = World::with_origin(ruled(access), HOST, &origin);
        async move {
            let door = world.door(Target::Name(name(HOST), 80)).await;
            let head = format!("{head}\r\nHost: {HOST}\r\n\r\n");
            raw(door, head.as_bytes(), 1).await
        }
    };
    for (access, head) in [
        ("full", "TRACE / HTTP/1.1"),
        (
            "full",
            "GET / HTTP/1.1\r\nConnection: upgrade, http2-settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__",
        ),
        (
            "read",
            "GET / HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: websocket",
        ),
        ("read", "POST / HTTP/1.1\r\nContent-Length: 0"),
        ("read", "GET / HTTP/1.1\r\nContent-Length: 2"),
        (
            "git-read",
            "GET /a/b.git/info/refs?service=git-receive-pack HTTP/1.1",
        ),
        (
            "git-read",
            "POST /a/b.git/git-receive-pack HTTP/1.1\r\nContent-Length: 0",
        ),
        ("GET /a/**", "GET /a/../b HTTP/1.1"),
        ("GET /a/**", "GET /a/%2e%2e/b HTTP/1.1"),
        ("GET /a/**", "GET //a/b HTTP/1.1"),
    ] {
        assert_eq!(request(access, head).await, [403], "{access}: {head}");
    }
    assert!(asked.lock().unwrap().is_empty());
    let clone = "GET /a/b.git/info/refs?service=git-upload-pack HTTP/1.1";
    assert_eq!(request("git-read", clone).await, [200]);
}

#[tokio::test]
async fn http2_is_held_to_the_same_rules() {
    let (origin, asked) = witness().await;
    let world = World::with_origin(ruled("read"), HOST, &origin);
    let door = world.door(Target::Name(name(HOST), 443)).await;
    let mut tls = rustls::ClientConfig::builder()
        .with_root_certificates(world.authority())
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"h2".to_vec()];
    let stream = TcpStream::connect(door).await.unwrap();
    let connecting = TlsConnector::from(Arc::new(tls));
    let stream = connecting
        .connect(HOST.try_into().unwrap(), stream)
        .await
        .unwrap();
    let handshake =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (mut sender, connection) = handshake.await.unwrap();
    tokio::spawn(connection);
    for (method, uri, status) in [
        (Method::GET, format!("https://{HOST}/a"), 200),
        (Method::GET, "https://evil.example.org/a".to_owned(), 421),
        (Method::POST, format!("https://{HOST}/a"), 403),
        (Method::CONNECT, format!("{HOST}:443"), 403),
        (Method::CONNECT, "evil.example.org:443".to_owned(), 421),
        (Method::GET, format!("https://{HOST}/b"), 200),
    ] {
        let mut request = Request::new(Empty::<Bytes>::new());
        *request.method_mut() = method.clone();
        *request.uri_mut() = uri.parse().unwrap();
        let response = sender.send_request(request).await.unwrap();
        assert_eq!(response.status(), status, "{method} {uri}");
    }
    assert_eq!(*asked.lock().unwrap(), ["GET /a \"\"", "GET /b \"\""]);
}

/// A `ClientHello` of a real client, for this name or for none.
pub(crate) fn hello(server_name: &'static str) -> Vec<u8> {
    let roots = rustls::RootCertStore::empty();
    let config = rustls::ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = server_name.try_into().unwrap();
    let mut client = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).unwrap();
    bytes
}

#[tokio::test]
async fn tls_without_the_name_of_its_connection_is_refused_however_it_is_sent() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let world = World::with_hosts(ruled("full"), &[(HOST, 443, address)], None);
    let door = world.door(Target::Name(name(HOST), 443)).await;
    // An address as the name means that no name is sent.
    for bytes in [hello("evil.example.org"), hello("127.0.0.1")] {
        for piece_bytes in [1, 7, bytes.len()] {
            let mut stream = TcpStream::connect(door).await.unwrap();
            stream.set_nodelay(true).unwrap();
            for piece in bytes.chunks(piece_bytes) {
                let _ = stream.write_all(piece).await;
            }
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer).await;
            assert!(answer.is_empty());
        }
    }
    assert_eq!(
        world
            .events()
            .iter()
            .filter(|event| event.contains("denied"))
            .count(),
        6
    );
    // Nobody was dialled; the right name is, and gets the same bytes.
    let right = hello(HOST);
    let mut stream = TcpStream::connect(door).await.unwrap();
    stream.write_all(&right).await.unwrap();
    let (mut outside, _) = listener.accept().await.unwrap();
    let mut received = vec![0; right.len()];
    outside.read_exact(&mut received).await.unwrap();
    assert_eq!(received, right);
}

#[tokio::test(start_paused = true)]
async fn a_program_that_sends_slowly_is_not_waited_for() {
    let world = World::new(ruled("full"));
    for (target, begin) in [
        (Target::Refused(443), &hello(HOST)[..20]),
        (Target::Refused(443), b""),
        (Target::Refused(80), b"GET / HTTP/1.1\r\nHost: "),
        (Target::Name(name("evil.example.org"), 443), b"\x16\x03"),
        (Target::Name(name("evil.example.org"), 80), b""),
    ] {
        let (mut near, far) = tokio::io::duplex(1024);
        near.write_all(begin).await.unwrap();
        let since = tokio::time::Instant::now();
        world.guest.serve(target.clone(), far).await;
        let taken = since.elapsed().as_secs();
        assert!((9..=31).contains(&taken), "{target:?}: {taken} s");
    }
    let (mut near, far) = tokio::io::duplex(1024);
    near.write_all(b"\x05\x01").await.unwrap();
    world.guest.serve_proxy(far).await;
}

#[tokio::test]
async fn an_address_of_an_older_policy_is_decided_anew() {
    let (origin, asked) = witness().await;
    let world = World::with_origin(ruled("full"), HOST, &origin);
    let door = world.door(Target::Name(name(HOST), 80)).await;
    let request = format!("GET / HTTP/1.1\r\nHost: {HOST}\r\n\r\n");
    assert_eq!(raw(door, request.as_bytes(), 1).await, [200]);
    world.replace_profile(ProfileSettings::default());
    assert_eq!(raw(door, request.as_bytes(), 1).await, [403]);
    assert_eq!(asked.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_container_has_so_many_connections_and_others_are_unharmed() {
    let (origin, _asked) = witness().await;
    let profile = ProfileSettings {
        limits: Limits {
            connections: 2,
            ..Limits::default()
        },
        ..ruled("full")
    };
    let world = World::with_origin(profile, HOST, &origin);
    let door = world.door(Target::Name(name(HOST), 80)).await;
    let request = format!("GET / HTTP/1.1\r\nHost: {HOST}\r\n\r\n");
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut stream = TcpStream::connect(door).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        stream.read_exact(&mut [0; 12]).await.unwrap();
        held.push(stream);
    }
    assert_eq!(raw(door, request.as_bytes(), 1).await, [403]);
    let other = World::door_of(world.neighbour(), Target::Name(name(HOST), 80)).await;
    assert_eq!(raw(other, request.as_bytes(), 1).await, [200]);
    drop(held);
    world.events_once(4).await;
    assert_eq!(raw(door, request.as_bytes(), 1).await, [200]);
}

#[tokio::test]
async fn a_websocket_is_carried_after_its_upgrade_and_ends_with_the_policy() {
    let host = serve(|mut stream| async move {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        let answer = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
        stream.write_all(answer).await.unwrap();
        let (mut read, mut write) = stream.split();
        let _ = tokio::io::copy(&mut read, &mut write).await;
    })
    .await;
    let world = World::with_hosts(ruled("full"), &[(HOST, 80, host)], None);
    let door = world.door(Target::Name(name(HOST), 80)).await;
    let mut stream = TcpStream::connect(door).await.unwrap();
    let head = format!(
        "GET / HTTP/1.1\r\nHost: {HOST}\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(stream.read_u8().await.unwrap());
    }
    assert!(answer.starts_with(b"HTTP/1.1 101"));
    stream.write_all(b"frame").await.unwrap();
    let mut frame = [0; 5];
    stream.read_exact(&mut frame).await.unwrap();
    assert_eq!(&frame, b"frame");
    world.replace_profile(ProfileSettings::default());
    assert!(ends(&mut stream).await);
}
