//! A container tries to make the kernel run a program as the host's root: its crash handler, or
//! `modprobe`. Only the `vm` tier has helpers that tell when they are run; see `tests/vm/init`.
//! What a filter cannot tell apart from everyday calls stands in SECURITY.md and is not tried.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests panic when the setup fails"
)]

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::support::attack::by_everyone;
use crate::support::deadline;

/// Where the helpers leave a line each time they are run; `None` where there are none.
fn helped() -> Option<PathBuf> {
    let path = std::env::var_os("HOTCELL_KERNEL_HELPERS").map(PathBuf::from);
    if path.is_none() {
        let reason = "this kernel's helpers do not tell when they are run";
        hotcell_testkit::skip(hotcell_testkit::Need::Machine, reason);
    }
    path
}

/// Runs Python on the host, as the user of this test.
fn on_the_host(script: &str) {
    let mut python = Command::new("python3");
    let status = python.args(["-c", script]).stderr(Stdio::null()).status();
    status.unwrap();
}

/// Waits until a helper was run for this; returns what all of them were run for.
async fn all_until(path: &PathBuf, line: &str) -> Vec<String> {
    let start = Instant::now();
    loop {
        let text = std::fs::read_to_string(path).unwrap();
        let lines: Vec<_> = text.lines().map(str::to_owned).collect();
        if lines.iter().any(|one| one == line) {
            return lines;
        }
        assert!(start.elapsed() < deadline(), "no {line:?} in {lines:?}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_crash_does_not_run_the_hosts_handler() {
    let Some(path) = helped() else { return };
    // By each of the ways to lower the limit, and without.
    let script = format!(
        r"
import resource, struct
none = ctypes.create_string_buffer(struct.pack('QQ', 0, 0))
ways = (lambda: None, lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0)), lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 1)),
        lambda: call({setrlimit}, 4, none), lambda: call({prlimit}, 0, 4, none, 0), lambda: call({prlimit}, 0, 4, none, none))
for way in ways:
    pid = os.fork()
    if pid == 0:
        call({prctl}, 15, b'inside')
        way()
        os.kill(os.getpid(), signal.SIGSEGV)
    print(os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGSEGV)
",
        setrlimit = libc::SYS_setrlimit,
        prlimit = libc::SYS_prlimit64,
        prctl = libc::SYS_prctl,
    );
    by_everyone(&script, |who, ran| {
        assert_eq!(ran.stdout, "True\n".repeat(6), "{who:?}: {ran:?}");
    })
    .await;
    // The handler is there, and what it is run for later comes later.
    on_the_host(
        "import ctypes, os, resource, signal\n\
         resource.setrlimit(resource.RLIMIT_CORE, (0, 0))\n\
         ctypes.CDLL(None).prctl(15, b'outside')\n\
         os.kill(os.getpid(), signal.SIGSEGV)",
    );
    let lines = all_until(&path, "crash outside").await;
    assert!(
        !lines.iter().any(|line| line == "crash inside"),
        "{lines:?}"
    );
}

#[tokio::test]
async fn nothing_that_the_filter_can_tell_apart_makes_the_host_load_a_module() {
    let Some(path) = helped() else { return };
    let script = r"
import fcntl, socket, struct
for family in range(46):
    for kind in range(16):
        for protocol in (0, 1, 6, 17, 58, 132, 136, 262):
            s = attempt(socket.socket, family, kind, protocol)
            if s not in ('EPERM', 'EINVAL', 'ESOCKTNOSUPPORT', 'EPROTONOSUPPORT', 'EACCES'): s.close()
network = socket.socket()
for request in list(range(0x8900, 0x8a00)) + list(range(0x8b00, 0x8b20)):
    attempt(fcntl.ioctl, network, request, b'absent0'.ljust(256, bytes(1)))
master, slave = os.openpty()
for discipline in range(31):
    attempt(fcntl.ioctl, slave, 0x5423, struct.pack('i', discipline))
for option in (13, 31):
    attempt(network.setsockopt, 6, option, b'absent')
address = struct.pack('=HH4s120x', 2, 0, bytes([127, 0, 0, 1]))
attempt(network.setsockopt, 6, 14, (address + struct.pack('=BBHI80s', 0, 0, 3, 0, b'key')).ljust(216, bytes(1)))
attempt(network.setsockopt, 6, 38, (address + b'hmac(absent)'.ljust(64, bytes(1)) + struct.pack('=iIHBBBBBB80s', 0, 0, 0, 32, 1, 1, 0, 0, 3, b'key')))
print('asked')
";
    by_everyone(script, |who, ran| {
        assert_eq!(ran.stdout, "asked\n", "{who:?}: {ran:?}");
    })
    .await;
    // The helper is there: the family of IPX has no protocol of that type anywhere.
    on_the_host("import socket\nsocket.socket(4, 2, 0)");
    let lines = all_until(&path, "-q -- net-pf-4").await;
    let ours = ["-q -- net-pf-4"];
    let loaded: Vec<_> = lines
        .iter()
        .filter(|line| line.starts_with("-q") && !ours.contains(&line.as_str()))
        .collect();
    assert!(loaded.is_empty(), "{loaded:?}");
}
