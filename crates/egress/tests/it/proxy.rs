//! The proxy port, for programs that want one.

use std::net::SocketAddr;
use std::sync::Arc;

use hotcell_egress::{Pattern, ProfileSettings};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::world::{Origin, World, serve};

const HOST: &str = "api.example.com";

fn allowing(pattern: &str) -> ProfileSettings {
    ProfileSettings {
        allow: vec![Pattern::parse(pattern).unwrap()],
        ..ProfileSettings::default()
    }
}

async fn proxy(world: &World) -> SocketAddr {
    let guest = Arc::clone(&world.guest);
    serve(move |stream| {
        let guest = Arc::clone(&guest);
        async move { guest.serve_proxy(stream).await }
    })
    .await
}

/// Sends a head and reads until the answer's head ends.
async fn said(proxy: SocketAddr, head: &str) -> String {
    let mut stream = TcpStream::connect(proxy).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => answer.push(byte),
            Err(_) => break,
        }
    }
    String::from_utf8(answer).unwrap()
}

#[tokio::test]
async fn a_program_with_a_proxy_reaches_what_is_allowed_and_nothing_else() {
    let origin = Origin::start(HOST).await;
    let world = World::with_origin(allowing(HOST), HOST, &origin);
    let proxy = proxy(&world).await;
    for kind in ["http", "socks5h"] {
        let client = world.through(&format!("{kind}://{proxy}"));
        for scheme in ["http", "https"] {
            let url = format!("{scheme}://{HOST}/x");
            let got = client.get(url).send().await.unwrap();
            let text = got.text().await.unwrap();
            assert_eq!(text, "origin HTTP/1.1 GET /x 0", "{kind} {scheme}");
            let refused = client.get(format!("{scheme}://evil.example.org/"));
            let refused = refused.send().await.unwrap();
            assert_eq!(refused.status(), 403, "{kind} {scheme}");
            assert_eq!(refused.headers()["hotcell-egress"], "denied");
        }
    }
}

#[tokio::test]
async fn a_connection_to_another_name_than_was_asked_for_is_refused() {
    let origin = Origin::start(HOST).await;
    let world = World::with_origin(allowing(HOST), HOST, &origin);
    let proxy = proxy(&world).await;
    let mut stream = TcpStream::connect(proxy).await.unwrap();
    let connect = format!("CONNECT {HOST}:80 HTTP/1.1\r\nHost: {HOST}:80\r\n\r\n");
    stream.write_all(connect.as_bytes()).await.unwrap();
    let request = b"GET / HTTP/1.1\r\nHost: evil.example.org\r\n\r\n";
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
    while !answer.ends_with(b"\r\n\r\n") {
        answer.rotate_left(1);
        answer[11] = stream.read_u8().await.unwrap();
    }
    stream.write_all(request).await.unwrap();
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 421");
}

#[tokio::test]
async fn targets_that_are_no_names_are_refused_and_spellings_mean_their_name() {
    let origin = Origin::start(HOST).await;
    let world = World::with_origin(allowing(HOST), HOST, &origin);
    let proxy = proxy(&world).await;
    let connect = |target: &str| format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n");
    for target in [
        "127.0.0.1:443",
        "127.1:443",
        "0x7f000001:443",
        "169.254.169.254:80",
        "[::ffff:169.254.169.254]:443",
        "a.com@api.example.com:443",
        "api.example.com%00.evil.org:443",
        "localhost:443",
        "api.example.com",
        "api.example.com:0",
    ] {
        let answer = said(proxy, &connect(target)).await;
        let is_refused = answer.starts_with("HTTP/1.1 403") || answer.starts_with("HTTP/1.1 400");
        assert!(is_refused || answer.is_empty(), "{target}: {answer}");
    }
    for target in [
        "api.example.com:443",
        "API.example.com:443",
        "api.example.com.:443",
    ] {
        let answer = said(proxy, &connect(target)).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{target}: {answer}");
    }
    // A port where nobody could answer with the reason is refused at the door.
    let answer = said(proxy, &connect("api.example.com:22")).await;
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    assert!(answer.contains("listed with other ports"), "{answer}");
}

#[tokio::test]
async fn requests_in_absolute_form_name_one_host() {
    let origin = Origin::start(HOST).await;
    let world = World::with_origin(allowing(HOST), HOST, &origin);
    let proxy = proxy(&world).await;
    for (head, status) in [
        (
            format!("GET http://{HOST}/ HTTP/1.1\r\nHost: {HOST}\r\n\r\n"),
            200,
        ),
        (
            format!("GET http://{HOST}:80/ HTTP/1.1\r\nHost: {HOST}\r\n\r\n"),
            200,
        ),
        (
            format!("GET http://{HOST}/ HTTP/1.1\r\nHost: evil.example.org\r\n\r\n"),
            400,
        ),
        (
            format!("GET http://{HOST}/ HTTP/1.1\r\nHost: {HOST}\r\nHost: {HOST}\r\n\r\n"),
            400,
        ),
        (
            format!("GET https://{HOST}/ HTTP/1.1\r\nHost: {HOST}\r\n\r\n"),
            400,
        ),
        (format!("GET / HTTP/1.1\r\nHost: {HOST}\r\n\r\n"), 400),
        (
            "GET http://169.254.169.254/ HTTP/1.1\r\nHost: 169.254.169.254\r\n\r\n".into(),
            403,
        ),
        (
            format!("TRACE http://{HOST}/ HTTP/1.1\r\nHost: {HOST}\r\n\r\n"),
            403,
        ),
    ] {
        let answer = said(proxy, &head).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{head}: {answer}"
        );
    }
}

#[tokio::test]
async fn one_connection_may_ask_for_several_hosts_and_each_is_decided() {
    let origin = Origin::start(HOST).await;
    let world = World::with_origin(allowing(HOST), HOST, &origin);
    let proxy = proxy(&world).await;
    let mut stream = TcpStream::connect(proxy).await.unwrap();
    for (host, status) in [(HOST, "200"), ("evil.example.org", "403"), (HOST, "200")] {
        let head = format!("GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let answer = read_answer(&mut stream).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{host}: {answer}"
        );
    }
}

/// Reads a head, and a body of the length that it says.
async fn read_answer(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    let head = String::from_utf8(head).unwrap();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.unwrap().parse().unwrap()];
    stream.read_exact(&mut body).await.unwrap();
    head
}

#[tokio::test]
async fn socks_connects_names_and_refuses_all_else() {
    let origin = Origin::start(HOST).await;
    let world = World::with_origin(allowing(HOST), HOST, &origin);
    let proxy = proxy(&world).await;
    let name = |name: &[u8], port: u16| {
        let mut request = vec![5, 1, 0, 3, u8::try_from(name.len()).unwrap()];
        request.extend(name);
        request.extend(port.to_be_bytes());
        request
    };
    for (request, code) in [
        (name(b"api.example.com", 443), 0),
        (name(b"API.example.com.", 80), 0),
        (name(b"evil.example.org", 443), 0),
        (name(b"evil.example.org", 22), 2),
        (name(b"api.example.com\0.evil.org", 443), 2),
        (name(b"169.254.169.254", 80), 2),
        (vec![5, 1, 0, 1, 169, 254, 169, 254, 0, 80], 2),
        (vec![5, 2, 0, 1, 127, 0, 0, 1, 0, 80], 7),
    ] {
        let mut stream = TcpStream::connect(proxy).await.unwrap();
        stream.write_all(&[5, 1, 0]).await.unwrap();
        stream.write_all(&request).await.unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(answer[..4], [5, 0, 5, code], "{request:?}");
    }
}
