//! A small container makes the kernel allocate as much memory as it can: buffers that nobody reads.
//!
//! The allocated memory is taken from the kernel's own counters, and measured on the host. Other
//! programs run there, too, so an attack is repeated a few times and the lowest value counts: it is
//! low if the kernel holds little, and high each time if it does not. The same attack from outside
//! a container shows that the attack works.

use std::fs;
use std::io::{BufRead, BufReader};
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::process::{Command as Program, Stdio};
use std::time::Duration;

use futures_util::FutureExt as _;
use hotcell_domain::Bytes;
use hotcell_engine::Enforcement;
use hotcell_testkit::{Need, skip};
use tokio::sync::Mutex;

use crate::support::{TestContainer, deadline, python};

const MIB: u64 = 1 << 20;

/// The container's limit.
const MEMORY_MIB: u64 = 64;

/// How much an attack tries to allocate; it stops there, because the host is in use.
const WANTED_MIB: u64 = 400;

/// How much passes through sockets that are closed at once.
const PASSING_MIB: u64 = 1000;

/// Most memory that the kernel may hold by its own count: the container's memory, or the limit of
/// netlink sockets, which is as much; plus rounding.
const HELD_MIB_MAX: u64 = MEMORY_MIB + 8;

/// Most memory that the host may lose.
const TAKEN_MIB_MAX: u64 = 200;

/// Most repetitions of an attack.
const ATTEMPTS_MAX: u32 = 5;

/// Each attack takes hundreds of MiB of the host, and two at once would be measured as one.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

/// Fills buffers of one kind until the kernel allocates no more or the wanted amount is reached,
/// and prints how many MiB that is, by the kernel's own count or by what was written.
const SCRIPT: &str = r"
import errno, fcntl, os, resource, socket, struct, sys, time
held, written, misses = [], 0, 0
def attempt(action, *args):
    try:
        return action(*args)
    except OSError as error:
        return errno.errorcode[error.errno]
def failed(answer):
    return isinstance(answer, str)
def big(one):
    for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
        one.setsockopt(socket.SOL_SOCKET, option, 1 << 28)
    one.setblocking(False)
    return one
# What the kernel holds for a socket: what was received, and what was not sent yet.
def unread(one):
    counts = struct.unpack('9I', one.getsockopt(socket.SOL_SOCKET, 55, 36))
    return counts[0] + counts[5]
def fill(one, more):
    before = -1
    while (now := unread(one)) > before and not failed(more()): before = now
# False if the kernel takes no more, however many sockets there are.
def goes_on():
    global written, misses
    filled = unread(held[-1])
    written += filled
    misses = misses + 1 if filled < 1 << 14 else 0
    return misses < 8 and len(held) < 2000

# Each asks about its one interface until there is no room for a further answer.
QUESTIONS = struct.pack('IHHIIBxHiII', 32, 18, 1, 1, 0, 0, 0, 1, 0, 0) * 100
def netlink_socket():
    answer = attempt(socket.socket, socket.AF_NETLINK, socket.SOCK_RAW, 0)
    if not failed(answer): held.append(big(answer))
    return not failed(answer)
def fill_netlink(one):
    fill(one, lambda: attempt(one.send, QUESTIONS))
def netlink():
    if not netlink_socket(): return False
    fill_netlink(held[-1])
    return goes_on()
unbound = None
def unbound_netlink():
    global unbound
    if unbound is None:
        while len(held) < 2000 and netlink_socket(): pass
        unbound = held[:]
        held.clear()
    if not unbound: return False
    held.append(unbound.pop())
    fill_netlink(held[-1])
    return goes_on()
def fleeting_netlink():
    if not netlink(): return False
    held.pop().close()
    return True

def udp():
    one = big(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    one.bind(('127.0.0.1', 0))
    held.append(one)
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    fill(one, lambda: [attempt(sender.sendto, bytes(60000), one.getsockname()) for _ in range(8)])
    sender.close()
    return goes_on()
listener = None
def tcp():
    global listener
    if listener is None:
        listener = socket.create_server(('127.0.0.1', 0))
        listener.settimeout(10)
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 28)
    one.connect(listener.getsockname())
    other, _ = listener.accept()
    held.extend((other, big(one)))
    while not failed(attempt(one.send, bytes(1 << 18))): pass
    return goes_on()
def unix():
    global written
    pair = socket.socketpair()
    held.extend(pair)
    big(pair[0])
    while not failed(sent := attempt(pair[0].send, bytes(1 << 14))): written += sent
    return len(held) < 2000
def pipe():
    global written
    read, write = os.pipe()
    held.extend((read, write))
    attempt(fcntl.fcntl, write, 1031, 1 << 20)
    os.set_blocking(write, False)
    while not failed(sent := attempt(os.write, write, bytes(1 << 16))): written += sent
    return len(held) < 2000

def holds():
    return (written if KIND in ('unix', 'pipe') else sum(map(unread, held))) >> 20
def full():
    return written >> 20 >= WANTED
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
step = globals()[KIND]
while step() and not full(): pass
print('holds', holds(), flush=True)
sys.stdin.read()
";

fn script(kind: &str) -> String {
    let wanted = match kind {
        "fleeting_netlink" => PASSING_MIB,
        _ => WANTED_MIB,
    };
    format!("KIND, WANTED = '{kind}', {wanted}\n{SCRIPT}")
}

/// Memory of the host, in MiB.
#[derive(Debug, Clone, Copy)]
struct Host {
    available: u64,
    slab: u64,
}

impl Host {
    fn now() -> Self {
        let text = fs::read_to_string("/proc/meminfo").expect("it can be read");
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            let word = line.and_then(|line| line.split_whitespace().nth(1));
            let kib = word.and_then(|word| word.parse::<u64>().ok());
            kib.expect("the kernel tells") / 1024
        };
        Self {
            available: field("MemAvailable"),
            slab: field("SUnreclaim"),
        }
    }

    /// Memory that became free since, which others hardly change in so short a time.
    fn released_since(before: Self) -> u64 {
        Self::now().available.saturating_sub(before.available)
    }

    /// Slab memory that the kernel allocated since.
    fn slab_since(before: Self) -> u64 {
        Self::now().slab.saturating_sub(before.slab)
    }
}

/// The kernel holds little for an attack from inside, whichever way it is measured.
async fn expect_little(kind: &str) {
    let mut least = u64::MAX;
    for _ in 0..ATTEMPTS_MAX {
        let taken = attack_once(kind).await;
        least = least.min(taken);
        if least <= TAKEN_MIB_MAX {
            return;
        }
    }
    panic!("{kind}: the host lost at least {least} MiB each time");
}

/// Memory that the host lost while the attack held its buffers.
async fn attack_once(kind: &str) -> u64 {
    let memory = Bytes::new(MEMORY_MIB * MIB).expect("a size");
    let container = TestContainer::with(|spec| spec.limits.memory = memory).await;
    if container.inspect().await.enforced.memory != Enforcement::Cgroup && !kind.contains("netlink")
    {
        let reason = "nothing limits the memory of a container as a whole";
        skip(Need::Cgroups, reason);
        container.remove().await;
        return 0;
    }
    let before = Host::now();
    let measured = AssertUnwindSafe(hold_and_measure(&container, kind, before)).catch_unwind();
    let taken = match measured.await {
        Ok(taken) => taken,
        Err(panic) if !was_killed_for_memory(&container).await => resume_unwind(panic),
        Err(_) => Host::slab_since(before),
    };
    container.remove().await;
    taken
}

/// Whether the OOM killer killed the agent after the attack. The kernel frees the sockets of a
/// killed process after its memory: an allocation in between triggers another kill, and the last
/// process left is the agent. On a slow host that is likely.
async fn was_killed_for_memory(container: &TestContainer) -> bool {
    let exited = tokio::time::timeout(deadline(), container.engine.exited(&container.id)).await;
    matches!(exited, Ok(Ok(()))) && container.inspect().await.oom_kills > 1
}

/// Memory that the host lost while the attack held its buffers; 0 if the attack was killed. The
/// container continues.
async fn hold_and_measure(container: &TestContainer, kind: &str, before: Host) -> u64 {
    let mut command = python(&script(kind));
    command.stdin = true;
    let mut running = container.begin(&command).await;
    let taken = match running.says_or_ends("holds ").await {
        Ok(held) => {
            let held: u64 = held.parse().expect("a number");
            assert!(held <= HELD_MIB_MAX, "{kind}: the kernel holds {held} MiB");
            let full = Host::now();
            let slab = Host::slab_since(before);
            running.cancel(Duration::ZERO).await;
            running.ended().await;
            slab.max(Host::released_since(full))
        }
        // Killed because it reached its limit; then it holds nothing.
        Err(ran) => {
            assert_eq!(ran.exit.signal, Some(9), "{kind}: {ran:?}");
            0
        }
    };
    container.answers().await;
    taken
}

/// The same attack succeeds if nothing limits it. Not measured on the host: the kernel may keep
/// what one attempt releases for the next one without counting it as available.
fn expect_much_outside(kind: &str) {
    let mut attacker = Program::new("python3")
        .args(["-c", &script(kind)])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python runs");
    let mut line = String::new();
    let stdout = attacker.stdout.take().expect("it was asked for");
    let read = BufReader::new(stdout).read_line(&mut line);
    read.expect("it says what it holds");
    drop(attacker.stdin.take());
    attacker.wait().expect("it ends");
    let held = line.trim().strip_prefix("holds ");
    let held = held.and_then(|held| held.parse::<u64>().ok());
    assert!(
        held.is_some_and(|held| held > TAKEN_MIB_MAX),
        "{kind}: outside of a container this is no attack: {line:?}"
    );
}

#[tokio::test]
async fn unread_answers_of_netlink_take_little() {
    let _alone = ONE_AT_A_TIME.lock().await;
    expect_much_outside("netlink");
    expect_little("netlink").await;
}

#[tokio::test]
async fn netlink_sockets_that_are_made_first_and_used_later_take_little() {
    let _alone = ONE_AT_A_TIME.lock().await;
    expect_much_outside("unbound_netlink");
    expect_little("unbound_netlink").await;
}

#[tokio::test]
async fn netlink_sockets_that_come_and_go_take_little() {
    let _alone = ONE_AT_A_TIME.lock().await;
    expect_little("fleeting_netlink").await;
}

#[tokio::test]
async fn unread_datagrams_take_little() {
    let _alone = ONE_AT_A_TIME.lock().await;
    expect_much_outside("udp");
    expect_little("udp").await;
}

#[tokio::test]
async fn unread_streams_take_little() {
    let _alone = ONE_AT_A_TIME.lock().await;
    expect_much_outside("tcp");
    expect_little("tcp").await;
}

#[tokio::test]
async fn unread_unix_sockets_take_little() {
    let _alone = ONE_AT_A_TIME.lock().await;
    expect_much_outside("unix");
    expect_little("unix").await;
}

#[tokio::test]
async fn full_pipes_take_little() {
    let _alone = ONE_AT_A_TIME.lock().await;
    expect_little("pipe").await;
}
