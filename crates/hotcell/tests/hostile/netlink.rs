//! Netlink sockets: programs get them to list interfaces, a container gets no more than a few.
//!
//! What the kernel holds for one whose answers nobody reads is charged to no cgroup.

use std::fs;
use std::path::Path;
use std::process::Command as Program;

use hotcell_agent_client::{Command, WriteOptions};
use hotcell_testkit::{Need, skip};

use crate::support::attack::{attack, by_everyone, everyone_gets};
use crate::support::{TestContainer, scratch, shell};

/// How many a container may have: at most 32, and fewer where they could hold more than
/// 64 MiB together.
fn sockets_max() -> usize {
    let rmem_max = fs::read_to_string("/proc/sys/net/core/rmem_max").expect("it can be read");
    let rmem_max: usize = rmem_max.trim().parse().expect("a number");
    ((64 << 20) / (2 * rmem_max)).clamp(4, 32)
}

/// What the attacks on these sockets begin with.
const WORDS: &str = r"
import fcntl, socket, threading
# Without a cgroup the stacks of all threads count against the limit of one process.
threading.stack_size(256 << 10)
def netlink(kind=socket.SOCK_RAW):
    return socket.socket(socket.AF_NETLINK, kind, 0)
def now():
    for line in open('/proc/net/protocols'):
        if line.startswith('NETLINK'): return int(line.split()[2])
";

fn script(text: &str) -> String {
    format!("{WORDS}{text}")
}

#[tokio::test]
async fn one_too_many_fails_and_a_closed_one_makes_room() {
    let script = script(
        r"
held = []
while not isinstance(answer := attempt(netlink), str):
    held.append(answer)
print(len(held), answer, now(), attempt(netlink))
held.pop().close()
again = attempt(netlink)
print(type(again).__name__, attempt(netlink))
for one in held + [again]: one.close()
print(now())
",
    );
    let max = sockets_max();
    let expected = format!("{max} ENOBUFS {max} ENOBUFS\nsocket ENOBUFS\n0\n");
    everyone_gets(&script, &expected).await;
}

#[tokio::test]
async fn many_at_once_are_no_more_than_one_after_the_other() {
    // Few enough that an ordinary user's containers, whose processes count together where
    // there is no cgroup, have room for them.
    const THREADS: usize = 64;
    let script = script(
        r"
held, errors = [], []
start = threading.Barrier(64)
def one():
    start.wait()
    answer = attempt(netlink)
    (errors if isinstance(answer, str) else held).append(answer)
threads = [threading.Thread(target=one) for _ in range(64)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len(held), len(errors), set(errors), now())
",
    );
    let max = sockets_max();
    let expected = format!("{max} {} {{'ENOBUFS'}} {max}\n", THREADS - max);
    everyone_gets(&script, &expected).await;
}

#[tokio::test]
async fn a_socket_is_what_was_asked_for() {
    let script = script(
        r"
for kind in (socket.SOCK_RAW, socket.SOCK_DGRAM):
    for flags in (0, socket.SOCK_CLOEXEC, socket.SOCK_NONBLOCK, socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK):
        fd = call(SOCKET, 16, kind | flags, 0)
        cloexec = fcntl.fcntl(fd, fcntl.F_GETFD) & 1
        nonblock = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_NONBLOCK
        one = socket.socket(fileno=fd)
        wrong = bool(cloexec) != bool(flags & socket.SOCK_CLOEXEC) or bool(nonblock) != bool(flags & socket.SOCK_NONBLOCK)
        print(one.family.name, one.type.name, one.proto, one.getsockname(), wrong)
        one.bind((0, 0))
        one.close()
print([call(SOCKET, 16, kind, 0) for kind in (0, 1, 4, 5, 3 | 0x10, 3 | 1 << 31)])
print(call(SOCKET, 16 | 1 << 32, 3 | 1 << 32, 1 << 32) >= 0)
",
    );
    let script = format!("SOCKET = {}\n{script}", libc::SYS_socket);
    let made = |kind: &str| format!("AF_NETLINK {kind} 0 (0, 0) False\n").repeat(4);
    let (stream, invalid) = ("'ESOCKTNOSUPPORT', ".repeat(4), "'EINVAL', 'EINVAL'");
    let expected = [
        made("SOCK_RAW"),
        made("SOCK_DGRAM"),
        format!("[{stream}{invalid}]\nTrue\n"),
    ];
    everyone_gets(&script, &expected.concat()).await;
}

#[tokio::test]
async fn signals_at_most_interrupt_the_call_and_leak_no_socket() {
    let script = script(
        r"
signal.signal(signal.SIGALRM, lambda *_: None)
signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
answers = set()
for _ in range(1000):
    answer = attempt(netlink)
    if isinstance(answer, str): answers.add(answer)
    else: answer.close()
signal.setitimer(signal.ITIMER_REAL, 0)
# The agent lets go of the last one a moment after it was handed over.
wait_for(lambda: now() == 0)
print(answers - {'EINTR'}, now(), len(os.listdir('/proc/self/fd')) < 10)
",
    );
    everyone_gets(&script, "set() 0 True\n").await;
}

#[tokio::test]
async fn callers_that_are_killed_while_they_wait_harm_nobody() {
    let script = script(
        r"
import random
def hammer():
    while True: attempt(netlink)
for _ in range(60):
    children = []
    for _ in range(10):
        child = os.fork()
        if child == 0:
            for _ in range(3): threading.Thread(target=hammer).start()
            hammer()
        children.append(child)
    time.sleep(random.random() / 50)
    for child in children: os.kill(child, signal.SIGKILL)
    for child in children: os.waitpid(child, 0)
# What was on its way to a process that is gone is closed in a moment.
wait_for(lambda: now() == 0)
print(type(attempt(netlink)).__name__)
",
    );
    everyone_gets(&script, "socket\n").await;
}

#[tokio::test]
async fn an_exec_that_waits_for_sockets_can_be_cancelled() {
    let container = TestContainer::new().await;
    let text = r"
def hammer():
    while True: attempt(netlink)
for _ in range(32): threading.Thread(target=hammer, daemon=True).start()
print('begun', flush=True)
hammer()
";
    for _ in 0..5 {
        let running = container.begin_until(&script(text), "begun").await;
        running.cancel(std::time::Duration::ZERO).await;
        assert_eq!(running.ended().await.exit.signal, Some(9));
    }
    let ran = container
        .run(&attack(&script("wait_for(lambda: now() == 0)")))
        .await;
    assert_eq!(ran.code(), 0, "{ran:?}");
    container.answers().await;
    container.remove().await;
}

#[tokio::test]
async fn no_filter_of_ones_own_answers_for_the_socket() {
    // A newer filter is asked first. Without a listener it fails the call; with one it could
    // let it through, and so there can be none.
    let script = script(&format!(
        r"
import struct
def install(flags, verdict):
    code = struct.pack('HBBI', 0x20, 0, 0, 0) + struct.pack('HBBI', 0x15, 0, 1, {socket}) \
        + struct.pack('HBBI', 6, 0, 0, verdict) + struct.pack('HBBI', 6, 0, 0, 0x7fff0000)
    buffer = ctypes.create_string_buffer(code)
    program = ctypes.create_string_buffer(struct.pack('HxxxxxxP', 4, ctypes.addressof(buffer)))
    return call({seccomp}, 1, flags, program)
held = [netlink() for _ in range(MAX)]
print(install(8, 0x7fc00000), install(8 | 0x20, 0x7fc00000), install(8 | 1 << 32, 0x7fc00000), flush=True)
for verdict in (0x7fff0000, 0x7ffc0000, 0x7fc00000):
    if os.fork() == 0:
        installed = install(0, verdict)
        print(installed, attempt(netlink), flush=True)
        os._exit(0)
    os.wait()
",
        socket = libc::SYS_socket,
        seccomp = libc::SYS_seccomp,
    ));
    let script = format!("MAX = {}\n{script}", sockets_max());
    let expected = "EPERM EPERM EPERM\n0 ENOBUFS\n0 ENOBUFS\n0 ENOSYS\n";
    everyone_gets(&script, expected).await;
}

/// Whether a program is there; the test is skipped if not.
fn is_installed(program: &str) -> bool {
    let found = ["/usr/bin", "/usr/sbin"]
        .iter()
        .any(|dir| Path::new(dir).join(program).exists());
    if !found {
        skip(Need::Programs, &format!("{program} is not installed"));
    }
    found
}

#[tokio::test]
async fn python_lists_interfaces() {
    let script = r"
import socket
print([name for _, name in socket.if_nameindex()])
class Address(ctypes.Structure): pass
Address._fields_ = [('next', ctypes.POINTER(Address)), ('name', ctypes.c_char_p)]
first = ctypes.POINTER(Address)()
print(libc.getifaddrs(ctypes.byref(first)), first.contents.name)
print(socket.getaddrinfo('127.0.0.1', 80, flags=socket.AI_ADDRCONFIG)[0][4])
";
    let expected = "['lo']\n0 b'lo'\n('127.0.0.1', 80)\n";
    by_everyone(script, |who, ran| {
        assert_eq!(ran.stdout, expected, "{who:?}: {ran:?}");
    })
    .await;
}

#[tokio::test]
async fn node_lists_interfaces() {
    if !is_installed("node") {
        return;
    }
    let text = "console.log(Object.keys(require('os').networkInterfaces()))";
    expect_output(&Command::new(["/usr/bin/node", "-e", text]), "[ 'lo' ]\n").await;
}

#[tokio::test]
async fn ip_lists_interfaces() {
    if !is_installed("ip") {
        return;
    }
    let command = shell("PATH=$PATH:/usr/sbin; ip -o addr | grep -c 127.0.0.1; ip -o link | wc -l");
    expect_output(&command, "1\n1\n").await;
}

#[tokio::test]
async fn go_lists_interfaces() {
    if !is_installed("go") {
        return;
    }
    let container = TestContainer::new().await;
    let program = go_program();
    let written = container
        .agent
        .write_all(b"interfaces", program.into(), WriteOptions::default());
    written.await.expect("the program is written");
    let ran = container.sh("chmod +x interfaces && ./interfaces").await;
    assert_eq!(ran.stdout, "lo 127.0.0.1/8\n", "{ran:?}");
    container.remove().await;
}

/// Built on the host: a compiler needs more memory than a container has.
fn go_program() -> Vec<u8> {
    let dir = scratch();
    let text = r#"package main
import ("fmt"; "net")
func main() {
    interfaces, err := net.Interfaces()
    if err != nil { panic(err) }
    addresses, err := interfaces[0].Addrs()
    if err != nil { panic(err) }
    fmt.Println(interfaces[0].Name, addresses[0])
}
"#;
    fs::write(dir.path().join("main.go"), text).expect("a file");
    let built = Program::new("go")
        .args(["build", "-o", "interfaces", "main.go"])
        .current_dir(dir.path())
        .env("GOCACHE", dir.path().join("cache"))
        .env("GOFLAGS", "-mod=mod")
        .env("GO111MODULE", "off")
        .env("CGO_ENABLED", "0")
        .output()
        .expect("go runs");
    assert!(built.status.success(), "{built:?}");
    fs::read(dir.path().join("interfaces")).expect("the program")
}

async fn expect_output(command: &Command, expected: &str) {
    let container = TestContainer::new().await;
    let ran = container.run(command).await;
    assert_eq!(ran.stdout, expected, "{ran:?}");
    container.remove().await;
}
