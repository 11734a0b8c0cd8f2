//! A door lets in one user, whoever else can reach it.
#![allow(clippy::unwrap_used, reason = "all of it is for tests")]

use std::io::{Read as _, Write as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use hotcell_agent_api::bounds::{HANDSHAKE_ACCEPTED, HANDSHAKE_REQUEST};
use hotcell_agent_api::v1::HelloRequest;

use crate::harness;

/// More connections than wait for a knock.
const SILENT: usize = 40;

/// An agent behind a door of its own.
struct Doored {
    agent: Child,
    name: String,
}

impl Doored {
    fn start(guest: u32) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("hotcell-test-{}-{number}", std::process::id());
        let agent = Command::new(harness::program())
            .args(["init", "--root", "/tmp", "--listen-abstract", &name])
            .arg(guest.to_string())
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

impl Drop for Doored {
    fn drop(&mut self) {
        let _ = self.agent.kill();
        let _ = self.agent.wait();
    }
}

/// Whether the bridge was let in, and its end.
fn is_welcome(mut bridge: Child) -> bool {
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
async fn the_guest_is_let_in_and_can_call() {
    let doored = Doored::start(ourselves());
    let mut bridge = tokio::process::Command::new(harness::program())
        .args(["connect", "--door", &doored.name])
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
async fn another_user_is_sent_away_without_a_word() {
    let doored = Doored::start(ourselves() + 1);
    assert!(!is_welcome(doored.bridge()));
    // Nor does it help to knock without credentials, or to begin with the protocol.
    for opening in [
        &[HANDSHAKE_REQUEST][..],
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ] {
        let mut stream = doored.connect().await;
        stream.write_all(opening).unwrap();
        let mut answer = Vec::new();
        // What was not read yet makes the end a reset.
        let _ = stream.read_to_end(&mut answer);
        assert_eq!(answer, b"");
    }
}

#[tokio::test]
async fn those_who_do_not_knock_keep_nobody_out() {
    let doored = Doored::start(ourselves());
    let mut silent = Vec::new();
    for _ in 0..SILENT {
        silent.push(doored.connect().await);
    }
    assert!(is_welcome(doored.bridge()));
    let mut byte = [0];
    let sent_away = silent.iter_mut().filter_map(|stream| {
        stream.set_nonblocking(true).unwrap();
        stream.read(&mut byte).ok()
    });
    assert!(sent_away.count() > 0, "all of them still wait");
}

#[tokio::test]
async fn nobody_can_take_the_door_from_the_agent() {
    let doored = Doored::start(ourselves());
    drop(doored.connect().await);
    let address = SocketAddr::from_abstract_name(&doored.name).unwrap();
    let taken = std::os::unix::net::UnixListener::bind_addr(&address);
    assert_eq!(taken.unwrap_err().kind(), std::io::ErrorKind::AddrInUse);
}
