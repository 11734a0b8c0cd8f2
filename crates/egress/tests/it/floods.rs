//! Programs that send without end, slowly, or do not read, and what it costs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use hotcell_egress::{Access, Pattern, ProfileSettings, RuleSettings, Target};
use http_body_util::Full;
use hyper::{Request, Response};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::attacks::hello;
use crate::world::{Origin, World, name, serve};

const HOST: &str = "api.example.com";

fn ruled(access: &str) -> ProfileSettings {
    let access = Access::parse(access).unwrap();
    let rule = RuleSettings::new(Pattern::parse(HOST).unwrap(), access);
    ProfileSettings {
        rules: vec![rule],
        ..ProfileSettings::default()
    }
}

/// A host that counts its requests.
async fn counting() -> (Origin, Arc<AtomicU64>) {
    let count: Arc<AtomicU64> = Arc::default();
    let own = Arc::clone(&count);
    let origin = Origin::answering(HOST, move |_: Request<Bytes>| {
        own.fetch_add(1, Ordering::Relaxed);
        Response::new(Full::new(Bytes::from_static(b"ok")))
    })
    .await;
    (origin, count)
}

/// A connection that was opened, on which HTTP/2 has begun.
async fn h2(world: &World) -> TlsStream<TcpStream> {
    let door = world.door(Target::Name(name(HOST), 443)).await;
    let mut tls = rustls::ClientConfig::builder()
        .with_root_certificates(world.authority())
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"h2".to_vec()];
    let stream = TcpStream::connect(door).await.unwrap();
    let connecting = TlsConnector::from(Arc::new(tls)).connect(HOST.try_into().unwrap(), stream);
    let mut stream = connecting.await.unwrap();
    let settings = frame(4, 0, 0, &[]);
    let begin = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &settings[..]].concat();
    stream.write_all(&begin).await.unwrap();
    stream
}

const HEADERS: u8 = 1;
const RESET: u8 = 3;
const GO_AWAY: u8 = 7;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// `GET https://HOST/`, compressed by the static table alone.
fn request_head() -> Vec<u8> {
    let mut head = vec![0x82, 0x84, 0x87, 0x41, u8::try_from(HOST.len()).unwrap()];
    head.extend(HOST.as_bytes());
    head
}

/// The kinds of the frames that come until the connection ends, or until there is one of this kind.
async fn frames(stream: &mut TlsStream<TcpStream>, until: Option<u8>) -> Vec<u8> {
    let mut kinds = Vec::new();
    let mut head = [0; 9];
    while stream.read_exact(&mut head).await.is_ok() {
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; usize::try_from(length).unwrap()];
        if stream.read_exact(&mut payload).await.is_err() {
            break;
        }
        kinds.push(head[3]);
        if Some(head[3]) == until {
            break;
        }
    }
    kinds
}

#[tokio::test]
async fn streams_that_are_opened_and_reset_end_their_connection() {
    let (origin, count) = counting().await;
    let world = World::with_origin(ruled("read"), HOST, &origin);
    let mut stream = h2(&world).await;
    let opened = frame(HEADERS, END_STREAM | END_HEADERS, 1, &request_head());
    stream.write_all(&opened).await.unwrap();
    let kinds = frames(&mut stream, Some(HEADERS)).await;
    assert!(kinds.contains(&HEADERS), "a request is answered: {kinds:?}");
    let before = count.load(Ordering::Relaxed);
    let mut flood = Vec::new();
    for number in 1..20_000 {
        let id = 2 * number + 1;
        flood.extend(frame(
            HEADERS,
            END_STREAM | END_HEADERS,
            id,
            &request_head(),
        ));
        flood.extend(frame(RESET, 0, id, &8_u32.to_be_bytes()));
    }
    let _ = stream.write_all(&flood).await;
    let _ = stream.flush().await;
    let ending = frames(&mut stream, Some(GO_AWAY));
    let kinds = tokio::time::timeout(Duration::from_mins(1), ending).await;
    assert!(kinds.is_ok(), "the connection goes on");
    let asked = count.load(Ordering::Relaxed) - before;
    assert!(asked < 2000, "the host got {asked} requests");
}

#[tokio::test]
async fn headers_that_are_continued_without_end_end_their_connection() {
    let (origin, _count) = counting().await;
    let world = World::with_origin(ruled("read"), HOST, &origin);
    // Continued twice, it is a request.
    let mut stream = h2(&world).await;
    let head = request_head();
    let (first, rest) = head.split_at(3);
    let (second, third) = rest.split_at(2);
    let request = [
        frame(HEADERS, END_STREAM, 1, first),
        frame(CONTINUATION, 0, 1, second),
        frame(CONTINUATION, END_HEADERS, 1, third),
    ];
    stream.write_all(&request.concat()).await.unwrap();
    let kinds = frames(&mut stream, Some(HEADERS)).await;
    assert!(kinds.contains(&HEADERS), "{kinds:?}");

    let mut stream = h2(&world).await;
    let begin = frame(HEADERS, END_STREAM, 1, &request_head());
    stream.write_all(&begin).await.unwrap();
    // Each a header of its own that is not kept: name and value of 8000 bytes.
    let mut header = vec![0, 1, b'x', 0x7f, 0xc1, 0x3d];
    header.extend(vec![b'y'; 8000]);
    let more = frame(CONTINUATION, 0, 1, &header);
    let mut sent = 0;
    while sent < 64 << 20 && stream.write_all(&more).await.is_ok() {
        sent += more.len();
    }
    assert!(sent < 64 << 20, "the broker read {sent} bytes of headers");
}

#[tokio::test(start_paused = true)]
async fn a_program_that_sends_byte_by_byte_is_not_waited_for() {
    let world = World::new(ruled("full"));
    let request = format!(
        "GET / HTTP/1.1\r\nHost: {HOST}\r\n{}",
        "x: y\r\n".repeat(99)
    );
    for (target, bytes) in [
        (Target::Refused(443), hello(HOST)),
        (Target::Name(name("evil.example.org"), 443), hello(HOST)),
        (Target::Refused(80), request.clone().into_bytes()),
        (
            Target::Name(name("evil.example.org"), 80),
            request.into_bytes(),
        ),
    ] {
        let (mut near, far) = tokio::io::duplex(1024);
        let sending = tokio::spawn(async move {
            for byte in bytes {
                if near.write_all(&[byte]).await.is_err() {
                    return;
                }
                tokio::time::sleep(Duration::from_secs(2)).await;
            }
            panic!("it was read to its end");
        });
        let since = tokio::time::Instant::now();
        world.guest.serve(target.clone(), far).await;
        let taken = since.elapsed().as_secs();
        assert!((9..=41).contains(&taken), "{target:?}: {taken} s");
        sending.await.unwrap();
    }
}

#[tokio::test]
async fn requests_that_stall_fill_up_their_own_container_and_no_other() {
    let (origin, _count) = counting().await;
    let world = World::with_origin(ruled("full"), HOST, &origin);
    let door = world.door(Target::Name(name(HOST), 80)).await;
    let mut stalled = Vec::new();
    for _ in 0..64 {
        let mut stream = TcpStream::connect(door).await.unwrap();
        let begin = format!("POST / HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: 9\r\n\r\nab");
        stream.write_all(begin.as_bytes()).await.unwrap();
        stalled.push(stream);
    }
    world.events_once(64).await;
    let status = |guest| async {
        let door = World::door_of(guest, Target::Name(name(HOST), 80)).await;
        let got = world.pinned(HOST, door).get(format!("http://{HOST}/"));
        got.send().await.unwrap().status().as_u16()
    };
    assert_eq!(status(Arc::clone(&world.guest)).await, 403);
    assert_eq!(status(world.neighbour()).await, 200);
    let before = world.events().len();
    drop(stalled);
    world.events_once(before + 64).await;
    assert_eq!(status(Arc::clone(&world.guest)).await, 200);
}

/// A host that sends without end, and tells when nobody takes it any more.
struct Endless {
    address: std::net::SocketAddr,
    sent: Arc<AtomicU64>,
    stalled: Arc<Notify>,
}

impl Endless {
    async fn start() -> Self {
        let (sent, stalled) = (Arc::new(AtomicU64::new(0)), Arc::new(Notify::new()));
        let (own, told) = (Arc::clone(&sent), Arc::clone(&stalled));
        let address = serve(move |mut stream| {
            let (sent, stalled) = (Arc::clone(&own), Arc::clone(&told));
            async move {
                stream.read_u8().await.unwrap();
                let head = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\n";
                stream.write_all(head).await.unwrap();
                let piece = vec![7; 64 * 1024];
                loop {
                    let writing = stream.write(&piece);
                    let written = tokio::time::timeout(Duration::from_millis(500), writing).await;
                    match written {
                        Ok(Ok(count)) => {
                            sent.fetch_add(u64::try_from(count).unwrap(), Ordering::Relaxed);
                        }
                        Ok(Err(_)) => return,
                        Err(_) => stalled.notify_one(),
                    }
                }
            }
        })
        .await;
        Self {
            address,
            sent,
            stalled,
        }
    }
}

#[tokio::test]
async fn a_program_that_stops_reading_stops_the_host() {
    for port in [5432, 80] {
        let host = Endless::start().await;
        let pattern = Pattern::parse(&format!("{HOST}:{port}")).unwrap();
        let profile = ProfileSettings {
            allow: vec![pattern],
            ..ProfileSettings::default()
        };
        let world = World::with_hosts(profile, &[(HOST, port, host.address)], None);
        let (mut near, far) = tokio::io::duplex(64 * 1024);
        let guest = Arc::clone(&world.guest);
        let serving =
            tokio::spawn(async move { guest.serve(Target::Name(name(HOST), port), far).await });
        let request = format!("GET / HTTP/1.1\r\nHost: {HOST}\r\n\r\n");
        near.write_all(request.as_bytes()).await.unwrap();
        near.read_exact(&mut [0; 16]).await.unwrap();
        let down = || world.guest.report(SystemTime::UNIX_EPOCH).bytes_down;
        host.stalled.notified().await;
        // What waits is in the kernel's buffers, and not in ours.
        assert!(down() < 2 << 20, "{port}: {} bytes are held", down());
        let before = host.sent.load(Ordering::Relaxed);
        // Reading goes on where it stopped.
        let mut rest = vec![0; 1 << 20];
        while host.sent.load(Ordering::Relaxed) < before + (8 << 20) {
            near.read_exact(&mut rest).await.unwrap();
        }
        assert!(down() > 1 << 20);
        drop(near);
        serving.await.unwrap();
    }
}

/// The type of that extension, and its length.
const ENCRYPTED: [u8; 4] = [0xfe, 0x0d, 0, 11];

/// A `ClientHello` that has an extension for encrypted ones besides.
fn with_encrypted_hello(bytes: &[u8]) -> Vec<u8> {
    let extension = [ENCRYPTED.as_slice(), &[0, 0, 1, 0, 1, 5, 0, 0, 0, 1, 7]].concat();
    let number = |at: usize| usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]));
    // Record and handshake heads, version, randomness; then session, suites, compressions.
    let session = 5 + 4 + 2 + 32;
    let suites = session + 1 + usize::from(bytes[session]);
    let compressions = suites + 2 + number(suites);
    let extensions = compressions + 1 + usize::from(bytes[compressions]);
    let mut longer = [bytes, &extension].concat();
    let mut lengthen = |at: usize| {
        let length = u16::try_from(number(at) + extension.len()).unwrap();
        longer[at..at + 2].copy_from_slice(&length.to_be_bytes());
    };
    // Of the record, the last two of the handshake's three bytes, and of all extensions.
    lengthen(3);
    lengthen(7);
    lengthen(extensions);
    longer
}

#[tokio::test]
async fn only_the_outer_name_of_an_encrypted_hello_counts_and_none_reaches_an_opened_host() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let strict = ProfileSettings {
        strict: true,
        allow: vec![Pattern::parse(HOST).unwrap()],
        ..ProfileSettings::default()
    };
    let world = World::with_hosts(strict, &[(HOST, 443, address)], None);
    let door = world.door(Target::Name(name(HOST), 443)).await;
    let mut stream = TcpStream::connect(door).await.unwrap();
    let other = with_encrypted_hello(&hello("evil.example.org"));
    stream.write_all(&other).await.unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    assert!(answer.is_empty());
    let refused = format!(
        "egress to {HOST}:443 denied by profile work (the connection names evil.example.org)"
    );
    assert!(world.events().contains(&refused), "{:?}", world.events());
    // With the right one, the host is greeted by the broker.
    let mut stream = TcpStream::connect(door).await.unwrap();
    let right = with_encrypted_hello(&hello(HOST));
    stream.write_all(&right).await.unwrap();
    let (mut outside, _) = listener.accept().await.unwrap();
    let mut greeting = vec![0; 5];
    outside.read_exact(&mut greeting).await.unwrap();
    let length = usize::from(u16::from_be_bytes([greeting[3], greeting[4]]));
    greeting.resize(5 + length, 0);
    outside.read_exact(&mut greeting[5..]).await.unwrap();
    let has = |bytes: &[u8]| greeting.windows(bytes.len()).any(|own| own == bytes);
    assert!(has(HOST.as_bytes()));
    assert!(!has(&ENCRYPTED));
    assert!(right.windows(4).any(|own| own == ENCRYPTED));
}
