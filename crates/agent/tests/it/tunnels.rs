//! Tunnels in both directions, with the real agent.
#![allow(clippy::unwrap_used, reason = "all of it is for tests")]

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::Path;
use std::time::Duration;

use crate::harness::{self, Agent, within};
use hotcell_agent_client as client;
use hotcell_agent_client::bounds::TUNNELS_MAX;
use hotcell_agent_client::{
    AgentError, AgentRefusal, Feature, IncomingTunnel, TunnelAddress, TunnelStream, Tunnels,
};
use rustix::net::sockopt::set_socket_linger;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket, UnixStream};

const ANY_PORT: TunnelAddress = TunnelAddress::Tcp(SocketAddr::new(
    std::net::IpAddr::V4(Ipv4Addr::LOCALHOST),
    0,
));

/// More than all buffers on the path hold.
const PLENTY: usize = 16 << 20;

async fn connect(agent: &Agent) -> client::Agent {
    let stream = UnixStream::connect(agent.socket()).await.unwrap();
    client::Agent::connect(stream).await.unwrap()
}

/// An agent that listens for the purpose `test`, and the address.
pub(crate) async fn listening() -> (Agent, client::Agent, Tunnels, SocketAddr) {
    let agent = Agent::start().await;
    let server = connect(&agent).await;
    let mut tunnels = server.tunnels().await.unwrap();
    let address = listen(&mut tunnels).await;
    (agent, server, tunnels, address)
}

async fn listen(tunnels: &mut Tunnels) -> SocketAddr {
    match tunnels.listen("test", &ANY_PORT).await.unwrap() {
        TunnelAddress::Tcp(address) => address,
        other @ (TunnelAddress::Unix(_) | TunnelAddress::Udp(_)) => {
            panic!("{other:?} is no port")
        }
    }
}

/// A connection inside and its tunnel.
pub(crate) async fn tunnel(
    tunnels: &mut Tunnels,
    address: SocketAddr,
) -> (TcpStream, TunnelStream) {
    let inside = TcpStream::connect(address).await.unwrap();
    let incoming = within(tunnels.accept()).await.unwrap();
    assert_eq!(incoming.purpose(), "test");
    (inside, within(incoming.accept()).await.unwrap())
}

/// Echoes until end of file.
async fn echo(stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin) {
    let (mut read, mut write) = tokio::io::split(stream);
    tokio::io::copy(&mut read, &mut write).await.unwrap();
    write.shutdown().await.unwrap();
}

/// Sends bytes that are specific to this number, and reads them back.
async fn exchange(mut stream: TcpStream, number: u8, bytes: usize) {
    let sent: Vec<u8> = (0..bytes).map(|at| number ^ at.to_le_bytes()[1]).collect();
    let (mut read, mut write) = stream.split();
    let mut received = Vec::new();
    let sending = async {
        write.write_all(&sent).await.unwrap();
        write.shutdown().await.unwrap();
    };
    tokio::join!(sending, async {
        read.read_to_end(&mut received).await.unwrap();
    });
    assert!(received == sent, "{} of {bytes} bytes came", received.len());
}

/// Writes until nothing more is accepted for a while.
async fn fill(stream: &mut (impl tokio::io::AsyncWrite + Unpin)) -> usize {
    fill_with(stream, 4096, Duration::from_millis(300)).await
}

/// Writes chunks until nothing more is accepted for so long.
pub(crate) async fn fill_with(
    stream: &mut (impl tokio::io::AsyncWrite + Unpin),
    chunk_bytes: usize,
    quiet: Duration,
) -> usize {
    let chunk = vec![7; chunk_bytes];
    let mut written = 0;
    while let Ok(count) = tokio::time::timeout(quiet, stream.write(&chunk)).await {
        written += count.unwrap();
        assert!(written < PLENTY, "nothing holds the writer back");
    }
    written
}

fn kind<T>(result: std::io::Result<T>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind())
}

#[tokio::test]
async fn many_streams_run_side_by_side() {
    let (_agent, _server, mut tunnels, address) = listening().await;
    let mut inside = tokio::task::JoinSet::new();
    for number in 0..32 {
        let stream = TcpStream::connect(address).await.unwrap();
        inside.spawn(exchange(stream, number, 300_000));
    }
    for _ in 0..32 {
        let stream = within(tunnels.accept()).await.unwrap();
        tokio::spawn(echo(stream.accept().await.unwrap()));
    }
    within(async { while inside.join_next().await.transpose().unwrap().is_some() {} }).await;
}

#[tokio::test]
async fn a_reader_that_stops_holds_back_its_own_writer_and_nobody_else() {
    let (agent, _server, mut tunnels, address) = listening().await;
    // Nobody reads the output of the first, or the input of the second.
    let (mut flooding, _unread) = tunnel(&mut tunnels, address).await;
    let (_not_reading, mut flooded) = tunnel(&mut tunnels, address).await;
    assert!(fill(&mut flooding).await > 0);
    assert!(fill(&mut flooded).await > 0);
    let (inside, outside) = tunnel(&mut tunnels, address).await;
    let echoing = tokio::spawn(echo(outside));
    within(exchange(inside, 1, 1 << 20)).await;
    within(echoing).await.unwrap();
    assert_eq!(agent.sh("echo alive").await.text(), "alive\n");
}

#[tokio::test]
async fn either_side_may_end_first_and_still_read() {
    let (_agent, _server, mut tunnels, address) = listening().await;
    let (mut inside, mut outside) = tunnel(&mut tunnels, address).await;
    let mut text = String::new();
    inside.write_all(b"question").await.unwrap();
    inside.shutdown().await.unwrap();
    within(outside.read_to_string(&mut text)).await.unwrap();
    outside.write_all(b" and answer").await.unwrap();
    outside.shutdown().await.unwrap();
    within(inside.read_to_string(&mut text)).await.unwrap();
    assert_eq!(text, "question and answer");
    assert_eq!(
        kind(outside.write_all(b"more").await),
        Some(ErrorKind::BrokenPipe)
    );
    let (mut inside, mut outside) = tunnel(&mut tunnels, address).await;
    outside.shutdown().await.unwrap();
    assert_eq!(within(inside.read(&mut [0; 9])).await.unwrap(), 0);
    inside.write_all(b"late").await.unwrap();
    drop(inside);
    text.clear();
    within(outside.read_to_string(&mut text)).await.unwrap();
    assert_eq!(text, "late");
}

#[tokio::test]
async fn a_reset_goes_through_in_both_directions() {
    let (_agent, _server, mut tunnels, address) = listening().await;
    let (inside, mut outside) = tunnel(&mut tunnels, address).await;
    set_socket_linger(&inside, Some(Duration::ZERO)).unwrap();
    drop(inside);
    let read = within(outside.read(&mut [0; 9])).await;
    assert_eq!(kind(read), Some(ErrorKind::ConnectionReset));
    let (mut inside, outside) = tunnel(&mut tunnels, address).await;
    drop(outside);
    let read = within(inside.read(&mut [0; 9])).await;
    assert_eq!(kind(read), Some(ErrorKind::ConnectionReset));
}

#[tokio::test]
async fn a_refused_connection_is_reset_and_the_next_is_served() {
    let (_agent, _server, mut tunnels, address) = listening().await;
    let mut inside = TcpStream::connect(address).await.unwrap();
    let incoming = within(tunnels.accept()).await.unwrap();
    within(incoming.refuse()).await.unwrap();
    let read = within(inside.read(&mut [0; 9])).await;
    assert_eq!(kind(read), Some(ErrorKind::ConnectionReset));
    let (inside, outside) = tunnel(&mut tunnels, address).await;
    tokio::spawn(echo(outside));
    within(exchange(inside, 3, 100)).await;
}

#[tokio::test]
async fn a_connection_that_nobody_takes_is_reset_in_the_end() {
    let (_agent, _server, mut tunnels, address) = listening().await;
    let mut inside = TcpStream::connect(address).await.unwrap();
    let incoming = within(tunnels.accept()).await.unwrap();
    let read = within(inside.read(&mut [0; 9])).await;
    assert_eq!(kind(read), Some(ErrorKind::ConnectionReset));
    assert!(within(incoming.accept()).await.unwrap_err().is_not_found());
}

#[tokio::test]
async fn the_server_opens_tunnels_into_the_container() {
    let agent = Agent::start().await;
    let server = connect(&agent).await;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let target = TunnelAddress::Tcp(address);
    let mut outside = within(server.open_tunnel(&target)).await.unwrap();
    let inside = listener.accept().await.unwrap().0;
    tokio::spawn(echo(inside));
    outside.write_all(b"there and back").await.unwrap();
    outside.shutdown().await.unwrap();
    let mut text = String::new();
    within(outside.read_to_string(&mut text)).await.unwrap();
    assert_eq!(text, "there and back");
    drop(listener);
    let nobody = within(server.open_tunnel(&target)).await.unwrap_err();
    assert!(nobody.is_not_found(), "{nobody:?}");
    for address in ["192.0.2.1:80", "0.0.0.0:80", "[::ffff:127.0.0.1]:80"] {
        let outside = TunnelAddress::Tcp(address.parse().unwrap());
        let error = within(server.open_tunnel(&outside)).await.unwrap_err();
        assert!(
            is_refused(&error, &AgentRefusal::InvalidArgument),
            "{error:?}"
        );
    }
}

#[tokio::test]
async fn no_more_tunnels_are_open_than_the_bound() {
    let agent = Agent::start().await;
    let server = connect(&agent).await;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let target = TunnelAddress::Tcp(listener.local_addr().unwrap());
    let mut open = Vec::new();
    for _ in 0..TUNNELS_MAX {
        open.push(within(server.open_tunnel(&target)).await.unwrap());
    }
    let error = within(server.open_tunnel(&target)).await.unwrap_err();
    assert!(is_refused(&error, &AgentRefusal::Exhausted), "{error:?}");
    open.pop();
    // The agent notices it a moment later.
    within(async { while server.open_tunnel(&target).await.is_err() {} }).await;
}

#[tokio::test]
async fn connections_beyond_the_bound_wait_until_one_is_gone() {
    let (_agent, _server, mut tunnels, address) = listening().await;
    let mut inside = Vec::new();
    let mut waiting: Vec<IncomingTunnel> = Vec::new();
    for _ in 0..TUNNELS_MAX + 5 {
        inside.push(TcpStream::connect(address).await.unwrap());
    }
    for _ in 0..TUNNELS_MAX {
        waiting.push(within(tunnels.accept()).await.unwrap());
    }
    let taken = waiting.pop().unwrap();
    within(taken.refuse()).await.unwrap();
    within(tunnels.accept()).await.unwrap();
}

#[tokio::test]
async fn a_lost_connection_fails_its_tunnels_and_leaves_the_listeners() {
    let agent = Agent::start().await;
    let (ours, mut theirs) = tokio::io::duplex(1 << 16);
    let mut socket = UnixStream::connect(agent.socket()).await.unwrap();
    let wire = tokio::spawn(async move {
        let _ = tokio::io::copy_bidirectional(&mut theirs, &mut socket).await;
    });
    let server = client::Agent::connect(ours).await.unwrap();
    let mut tunnels = server.tunnels().await.unwrap();
    let address = listen(&mut tunnels).await;
    let (mut inside, mut outside) = tunnel(&mut tunnels, address).await;
    wire.abort();
    let error = within(outside.read(&mut [0; 9])).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionAborted);
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref());
    assert_eq!(cause, Some(&AgentError::Lost));
    let write = async { while outside.write_all(&[0; 999]).await.is_ok() {} };
    within(write).await;
    let read = within(inside.read(&mut [0; 9])).await;
    assert_eq!(kind(read), Some(ErrorKind::ConnectionReset));
    assert_eq!(
        within(tunnels.accept()).await.unwrap_err(),
        AgentError::Lost
    );
    // Meanwhile a process connects and waits for the next server.
    let between = TcpStream::connect(address).await.unwrap();
    let server = connect(&agent).await;
    let mut tunnels = server.tunnels().await.unwrap();
    let known = tunnels.listeners().get("test");
    assert_eq!(known, Some(&TunnelAddress::Tcp(address)));
    let incoming = within(tunnels.accept()).await.unwrap();
    tokio::spawn(echo(within(incoming.accept()).await.unwrap()));
    within(exchange(between, 9, 10_000)).await;
}

#[tokio::test]
async fn a_second_watcher_takes_over_with_what_still_waits() {
    let (_agent, server, mut tunnels, address) = listening().await;
    let inside = TcpStream::connect(address).await.unwrap();
    drop(within(tunnels.accept()).await.unwrap());
    let mut second = server.tunnels().await.unwrap();
    let error = within(tunnels.accept()).await.unwrap_err();
    assert!(is_refused(&error, &AgentRefusal::Aborted), "{error:?}");
    let incoming = within(second.accept()).await.unwrap();
    tokio::spawn(echo(within(incoming.accept()).await.unwrap()));
    within(exchange(inside, 5, 1000)).await;
}

#[tokio::test]
async fn a_purpose_has_one_address_until_it_is_given_up() {
    let (_agent, _server, mut tunnels, address) = listening().await;
    let bound = TunnelAddress::Tcp(address);
    assert_eq!(tunnels.listen("test", &ANY_PORT).await.unwrap(), bound);
    assert_eq!(tunnels.listen("test", &bound).await.unwrap(), bound);
    let other = TunnelAddress::Tcp("127.0.0.2:0".parse().unwrap());
    let error = tunnels.listen("test", &other).await.unwrap_err();
    assert!(
        is_refused(&error, &AgentRefusal::AlreadyExists),
        "{error:?}"
    );
    let error = tunnels.listen("other", &bound).await.unwrap_err();
    assert!(
        is_refused(&error, &AgentRefusal::AlreadyExists),
        "{error:?}"
    );
    for purpose in ["", "Upper", "-x", "a b", "a/b", &"x".repeat(289)] {
        let error = tunnels.listen(purpose, &ANY_PORT).await.unwrap_err();
        assert!(
            is_refused(&error, &AgentRefusal::InvalidArgument),
            "{error:?}"
        );
    }
    tunnels.unlisten("test").await.unwrap();
    assert!(tunnels.unlisten("test").await.unwrap_err().is_not_found());
    within(async { while TcpStream::connect(address).await.is_ok() {} }).await;
}

#[tokio::test]
async fn datagrams_are_carried_both_ways_and_wait_for_a_server() {
    let (agent, server, mut tunnels, _) = listening().await;
    let any = TunnelAddress::Udp(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0));
    let bound = tunnels.listen("names", &any).await.unwrap();
    let TunnelAddress::Udp(address) = bound else {
        panic!("{bound:?} has no datagrams");
    };
    // Asked while nobody is there to answer.
    let inside = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    inside.send_to(b"question", address).await.unwrap();
    let mut datagrams = server.datagrams("names").await.unwrap();
    let (from, question) = within(datagrams.receive()).await.unwrap();
    assert_eq!(SocketAddr::V4(from), inside.local_addr().unwrap());
    assert_eq!(question, "question");
    datagrams.sender().send(from, b"answer").await;
    let mut buffer = [0; 99];
    let (count, peer) = within(inside.recv_from(&mut buffer)).await.unwrap();
    assert_eq!(
        (&buffer[..count], peer),
        (&b"answer"[..], SocketAddr::V4(address))
    );
    drop((datagrams, tunnels, server));
    let server = connect(&agent).await;
    let mut tunnels = server.tunnels().await.unwrap();
    assert_eq!(tunnels.listeners().get("names"), Some(&bound));
    let mut first = server.datagrams("names").await.unwrap();
    inside.send_to(b"later", address).await.unwrap();
    assert_eq!(within(first.receive()).await.unwrap().1, "later");
    // A second call takes over; datagrams that are none end the call that sends them.
    let mut second = server.datagrams("names").await.unwrap();
    let error = within(first.receive()).await.unwrap_err();
    assert!(is_refused(&error, &AgentRefusal::Aborted), "{error:?}");
    second
        .sender()
        .send(SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 53), b"x")
        .await;
    let error = within(second.receive()).await.unwrap_err();
    assert!(
        is_refused(&error, &AgentRefusal::InvalidArgument),
        "{error:?}"
    );
    assert!(server.datagrams("test").await.is_err());
    assert!(server.datagrams("nobody").await.unwrap_err().is_not_found());
    tunnels.unlisten("names").await.unwrap();
    UdpSocket::bind(address).await.unwrap();
}

#[tokio::test]
async fn a_purpose_may_be_bound_to_a_path() {
    let (agent, _server, mut tunnels, _) = listening().await;
    let path = agent.socket().with_file_name("purpose.sock");
    let bytes = path.as_os_str().as_encoded_bytes().to_vec();
    let address = TunnelAddress::Unix(bytes);
    assert_eq!(tunnels.listen("path", &address).await.unwrap(), address);
    let mut inside = UnixStream::connect(&path).await.unwrap();
    let incoming = within(tunnels.accept()).await.unwrap();
    assert_eq!(incoming.purpose(), "path");
    tokio::spawn(echo(within(incoming.accept()).await.unwrap()));
    inside.write_all(b"through a path").await.unwrap();
    inside.shutdown().await.unwrap();
    let mut text = String::new();
    within(inside.read_to_string(&mut text)).await.unwrap();
    assert_eq!(text, "through a path");
    tunnels.unlisten("path").await.unwrap();
    harness::until("the path is gone", || !Path::new(&path).exists()).await;
}

#[tokio::test]
async fn an_agent_of_the_first_version_has_no_tunnels_and_serves_the_rest() {
    let agent = Agent::start_with(&["--protocol-max", "1"]).await;
    let server = connect(&agent).await;
    assert_eq!(server.hello().protocol, 1);
    assert!(!server.has(Feature::Tunnel));
    let too_old = AgentError::TooOld {
        feature: Feature::Tunnel,
    };
    assert_eq!(server.tunnels().await.unwrap_err(), too_old);
    assert_eq!(server.open_tunnel(&ANY_PORT).await.unwrap_err(), too_old);
    let mut calls = agent.client.clone();
    let status = calls.tunnel_events(hotcell_agent_api::v1::TunnelEventsRequest {});
    let status = status.await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::Unimplemented);
    let command = client::Command::new(["/bin/true"]);
    let mut exec = server.start("older", &command).await.unwrap();
    while within(exec.next()).await.unwrap().is_some() {}
    assert_eq!(server.list_execs().await.unwrap().len(), 1);
    // The current agent, for comparison.
    let today = Agent::start().await;
    let server = connect(&today).await;
    assert_eq!(server.hello().protocol, 2);
    assert!(server.has(Feature::Tunnel));
    server.tunnels().await.unwrap();
}

fn is_refused(error: &AgentError, wanted: &AgentRefusal) -> bool {
    matches!(error, AgentError::Refused { refusal, .. } if refusal == wanted)
}
