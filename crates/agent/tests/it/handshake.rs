//! The abstract socket accepts one user, although every process can connect to it.
#![allow(clippy::unwrap_used, reason = "all of it is for tests")]

use std::io::{Read as _, Write as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use hotcell_agent_api::bounds::{HANDSHAKE_ACCEPTED, HANDSHAKE_REQUEST};
use hotcell_agent_api::v1::HelloRequest;

use crate::harness;

/// More connections than the agent keeps pending.
const SILENT: usize = 40;

/// An agent on an abstract socket of its own.
struct AbstractAgent {
    agent: Child,
    name: String,
}

impl AbstractAgent {
    fn start(allowed_uid: u32) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("hotcell-test-{}-{number}", std::process::id());
        let agent = Command::new(harness::program())
            .args(["init", "--root", "/tmp", "--listen-abstract", &name])
            .arg(allowed_uid.to_string())
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        Self { agent, name }
    }

    fn bridge(&self) -> Child {
        Command::new(harness::program())
            .args(["connect", "--door", &self.name])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    }

    async fn connect(&self) -> UnixStream {
        let address = SocketAddr::from_abstract_name(&self.name).unwrap();
        let mut stream = None;
        harness::until("the agent listens", || {
            stream = UnixStream::connect_addr(&address).ok();
            stream.is_some()
        })
        .await;
        let stream = stream.unwrap();
        stream.set_read_timeout(Some(harness::DEADLINE)).unwrap();
        stream
    }
}

impl Drop for AbstractAgent {
    fn drop(&mut self) {
        let _ = self.agent.kill();
        let _ = self.agent.wait();
    }
}

/// Whether the bridge was accepted; waits for its exit.
fn is_accepted(mut bridge: Child) -> bool {
    let mut first = [0];
    let count = bridge.stdout.as_mut().unwrap().read(&mut first).unwrap();
    drop(bridge.stdin.take());
    bridge.wait().unwrap();
    count == 1 && first[0] == HANDSHAKE_ACCEPTED
}

fn ourselves() -> u32 {
    rustix::process::getuid().as_raw()
}

#[tokio::test]
async fn the_allowed_user_is_accepted_and_can_call() {
    let agent = AbstractAgent::start(ourselves());
    let mut bridge = tokio::process::Command::new(harness::program())
        .args(["connect", "--door", &agent.name])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut stdout = bridge.stdout.take().unwrap();
    let welcome = tokio::io::AsyncReadExt::read_u8(&mut stdout).await.unwrap();
    assert_eq!(welcome, HANDSHAKE_ACCEPTED);
    let stream = tokio::io::join(stdout, bridge.stdin.take().unwrap());
    let mut client = harness::connect_over(stream).await;
    let hello = client.hello(HelloRequest::default()).await.unwrap();
    assert_eq!(hello.into_inner().root, "/tmp");
}

#[tokio::test]
async fn another_user_is_disconnected_without_an_answer() {
    let agent = AbstractAgent::start(ourselves() + 1);
    assert!(!is_accepted(agent.bridge()));
    // A request without credentials, or starting with the protocol, does not help either.
    for opening in [
        &[HANDSHAKE_REQUEST][..],
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ] {
        let mut stream = agent.connect().await;
        stream.write_all(opening).unwrap();
        let mut answer = Vec::new();
        // Unread data turns the close into a reset.
        let _ = stream.read_to_end(&mut answer);
        assert_eq!(answer, b"");
    }
}

#[tokio::test]
async fn silent_connections_keep_nobody_out() {
    let agent = AbstractAgent::start(ourselves());
    let mut silent = Vec::new();
    for _ in 0..SILENT {
        silent.push(agent.connect().await);
    }
    assert!(is_accepted(agent.bridge()));
    let mut byte = [0];
    let sent_away = silent.iter_mut().filter_map(|stream| {
        stream.set_nonblocking(true).unwrap();
        stream.read(&mut byte).ok()
    });
    assert!(sent_away.count() > 0, "all of them still wait");
}

#[tokio::test]
async fn nobody_can_take_the_address_from_the_agent() {
    let agent = AbstractAgent::start(ourselves());
    drop(agent.connect().await);
    let address = SocketAddr::from_abstract_name(&agent.name).unwrap();
    let taken = std::os::unix::net::UnixListener::bind_addr(&address);
    assert_eq!(taken.unwrap_err().kind(), std::io::ErrorKind::AddrInUse);
}
