//! Bodies that stand still, and those that are only slow. Time passes when a test lets it.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hotcell_egress::{Pattern, ProfileSettings, Target};
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, Incoming};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::{Instant, advance, pause, resume};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::world::{Origin, World, name};

const HOST: &str = "api.example.com";

/// Nearly as long as a body may stand still.
const SLOW: Duration = Duration::from_mins(4);
const TIMEOUT: Duration = Duration::from_mins(5);

/// A body that consists of what a test sends, and ends when its sender is dropped.
struct Events {
    pieces: Receiver<()>,
    /// What it answers, which lasts as long.
    _request: Option<Incoming>,
}

impl Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let event = || Ok(Frame::data(Bytes::from_static(b"event\n")));
        self.pieces.poll_recv(cx).map(|sent| sent.map(|()| event()))
    }
}

/// A host that a test lets read and answer.
struct Host {
    world: World,
    /// A request has come, or a piece of its body.
    has_read: Arc<Notify>,
    /// It may begin to answer.
    begin: Arc<Notify>,
    answer: Sender<()>,
}

impl Host {
    async fn start() -> Self {
        let (has_read, begin) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (answer, events) = channel(1);
        let events = Arc::new(Mutex::new(Some(events)));
        let (read, may_begin) = (Arc::clone(&has_read), Arc::clone(&begin));
        let origin = Origin::streaming(HOST, move |request: Request<Incoming>| {
            let events = events.lock().unwrap().take().expect("it is asked once");
            let (read, may_begin) = (Arc::clone(&read), Arc::clone(&may_begin));
            read.notify_one();
            async move {
                let is_read = request.method() == "POST";
                let mut body = request.into_body();
                while is_read && let Some(frame) = body.frame().await.transpose()? {
                    drop(frame);
                    read.notify_one();
                }
                may_begin.notified().await;
                Ok(Response::new(Events {
                    pieces: events,
                    _request: Some(body),
                }))
            }
        })
        .await;
        let profile = ProfileSettings {
            allow: vec![Pattern::parse(HOST).unwrap()],
            strict: true,
            ..ProfileSettings::default()
        };
        Self {
            world: World::with_origin(profile, HOST, &origin),
            has_read,
            begin,
            answer,
        }
    }

    /// Sends the beginning of a request.
    async fn ask(&self, request: &str) -> TlsStream<TcpStream> {
        let mut stream = opened(&self.world, "http/1.1").await;
        stream.write_all(request.as_bytes()).await.unwrap();
        self.has_read.notified().await;
        stream
    }

    /// Begins a request of HTTP/2 whose body is what the sender sends.
    async fn ask_h2(&self, method: &str) -> (Sender<()>, Incoming) {
        let stream = TokioIo::new(opened(&self.world, "h2").await);
        let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), stream);
        let (mut sender, connection) = handshake.await.unwrap();
        tokio::spawn(connection);
        let (events, body) = channel(1);
        let request = Request::builder().method(method);
        let request = request.uri(format!("https://{HOST}/"));
        let body = Events {
            pieces: body,
            _request: None,
        };
        let request = request.body(body).unwrap();
        self.begin.notify_one();
        let answer = sender.send_request(request).await.unwrap();
        (events, answer.into_body())
    }
}

/// Time passes in which nothing happens.
async fn pass(time: Duration) {
    pause();
    advance(time).await;
    resume();
}

/// A connection that the broker has opened.
async fn opened(world: &World, protocol: &str) -> TlsStream<TcpStream> {
    let door = world.door(Target::Name(name(HOST), 443)).await;
    let mut tls = rustls::ClientConfig::builder()
        .with_root_certificates(world.authority())
        .with_no_client_auth();
    tls.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    let stream = TcpStream::connect(door).await.unwrap();
    let connecting = TlsConnector::from(Arc::new(tls)).connect(HOST.try_into().unwrap(), stream);
    connecting.await.unwrap()
}

/// Reads until there are so many events.
async fn read_events(stream: &mut TlsStream<TcpStream>, text: &mut String, count: usize) {
    while text.matches("event").count() < count {
        let mut bytes = [0; 1024];
        let read = stream.read(&mut bytes).await.unwrap();
        assert!(read > 0, "it ends: {text}");
        text.push_str(std::str::from_utf8(&bytes[..read]).unwrap());
    }
}

/// All that comes until the connection ends, in whichever way.
async fn rest(stream: &mut TlsStream<TcpStream>) -> String {
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes).await;
    String::from_utf8(bytes).unwrap()
}

fn assert_timed_out(began: Instant) {
    let taken = began.elapsed();
    assert!((TIMEOUT..TIMEOUT + SLOW).contains(&taken), "{taken:?}");
}

const POST: &str = "POST / HTTP/1.1\r\nHost: api.example.com\r\nConnection: close\r\n\
                    Content-Length: 4\r\n\r\n";
const GET: &str = "GET / HTTP/1.1\r\nHost: api.example.com\r\nConnection: close\r\n\r\n";
const LAST_CHUNK: &str = "0\r\n\r\n";

#[tokio::test]
async fn a_request_whose_body_stands_still_is_answered_that_it_does() {
    let host = Host::start().await;
    let mut stream = host.ask(POST).await;
    stream.write_all(b"1").await.unwrap();
    host.has_read.notified().await;
    let began = Instant::now();
    // From here on, time passes whenever nothing else happens.
    pause();
    let answer = rest(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    let text = "egress to api.example.com: the body of the request stopped: nothing came for 300 s";
    assert!(answer.contains(text), "{answer}");
    assert_timed_out(began);
    let closed = format!("close {HOST} true");
    host.world.events_with(&closed, 1).await;
}

#[tokio::test]
async fn a_request_whose_body_is_slow_is_answered_by_the_host() {
    let host = Host::start().await;
    let mut stream = host.ask(POST).await;
    for byte in [b"1", b"2", b"3", b"4"] {
        pass(SLOW).await;
        stream.write_all(byte).await.unwrap();
        host.has_read.notified().await;
    }
    host.begin.notify_one();
    host.answer.send(()).await.unwrap();
    drop(host.answer);
    let answer = rest(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(answer.contains("event"), "{answer}");
}

#[tokio::test]
async fn an_answer_that_stands_still_is_cut_off_and_does_not_look_whole() {
    let host = Host::start().await;
    let mut stream = host.ask(GET).await;
    host.begin.notify_one();
    host.answer.send(()).await.unwrap();
    let mut answer = String::new();
    read_events(&mut stream, &mut answer, 1).await;
    let began = Instant::now();
    pause();
    answer += &rest(&mut stream).await;
    assert!(!answer.ends_with(LAST_CHUNK), "{answer}");
    assert_timed_out(began);
    let closed = format!("close {HOST} true");
    host.world.events_with(&closed, 1).await;
}

#[tokio::test]
async fn events_may_be_slow_and_an_answer_may_take_long_to_begin() {
    let host = Host::start().await;
    let mut stream = host.ask(GET).await;
    pass(Duration::from_mins(20)).await;
    host.begin.notify_one();
    let mut answer = String::new();
    for count in 1..=5 {
        host.answer.send(()).await.unwrap();
        read_events(&mut stream, &mut answer, count).await;
        pass(SLOW).await;
    }
    drop(host.answer);
    answer += &rest(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(answer.ends_with(LAST_CHUNK), "{answer}");
}

/// As calls of gRPC, whose sides are streams.
#[tokio::test]
async fn one_side_may_be_silent_while_the_other_speaks() {
    let host = Host::start().await;
    let (silent, mut answer) = host.ask_h2("PUT").await;
    for _ in 0..3 {
        host.answer.send(()).await.unwrap();
        let frame = answer.frame().await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), "event\n");
        pass(SLOW).await;
    }
    drop(silent);
}

#[tokio::test]
async fn a_stream_of_http_2_on_which_nobody_speaks_ends() {
    let host = Host::start().await;
    let (silent, mut answer) = host.ask_h2("PUT").await;
    host.answer.send(()).await.unwrap();
    answer.frame().await.unwrap().unwrap();
    let began = Instant::now();
    pause();
    let next = answer.frame().await;
    assert!(next.is_some_and(|frame| frame.is_err()), "it looks whole");
    assert_timed_out(began);
    drop(silent);
}
