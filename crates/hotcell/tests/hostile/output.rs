//! A container writes too much, too little, or malformed output.

use std::time::Duration;

use hotcell_agent_client::bounds::{UNACKED_BYTES_MAX, UNACKED_EVENTS_MAX};
use hotcell_agent_client::{Command, EventKind, ExitCause, Output, Winsize};
use tokio::sync::Mutex;

use crate::support::attack::attack;
use crate::support::{TestContainer, deadline, eventually, pids, shell};

/// What the agent or we may need, whatever a container writes.
const RSS_BYTES_MAX: u64 = 16 << 20;

/// Held by tests with much output, so that the memory of one is not attributed to another.
static MUCH: Mutex<()> = Mutex::const_new(());

/// Memory of a process of the host.
fn rss_bytes(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let kib = status.lines().find_map(|line| {
        let value = line.strip_prefix("VmRSS:")?;
        value.trim().strip_suffix(" kB")?.parse::<u64>().ok()
    });
    kib.expect("it has memory") << 10
}

/// The agent's number on the host.
fn agent_pid(container: &TestContainer) -> u32 {
    let is_agent = |pid: &u32| {
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).into_owned();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        command.contains(container.id.as_str())
            && status
                .lines()
                .any(|l| l.starts_with("NSpid:") && l.ends_with("\t1"))
    };
    pids().into_iter().find(is_agent).expect("the agent runs")
}

fn with_terminal(mut command: Command) -> Command {
    command.tty = Some(Winsize { rows: 24, cols: 80 });
    command
}

/// Waits until an exec is paused because nobody reads; returns how far it got.
async fn paused_at(container: &TestContainer, id: &str) -> u64 {
    let mut last = 0;
    let work = async {
        loop {
            let execs = container
                .agent
                .list_execs()
                .await
                .expect("the agent answers");
            let exec = execs.iter().find(|exec| exec.exec_id == id);
            let exec = exec.expect("the agent holds the exec");
            if exec.last_seq > 1 && exec.last_seq == last {
                return last;
            }
            last = exec.last_seq;
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    };
    tokio::time::timeout(deadline(), work)
        .await
        .expect("it pauses in time")
}

#[tokio::test]
async fn endless_output_that_nobody_reads_pauses_its_writer() {
    let _alone = MUCH.lock().await;
    for terminal in [false, true] {
        let container = TestContainer::new().await;
        let yes = shell("exec yes");
        let yes = if terminal { with_terminal(yes) } else { yes };
        let before = rss_bytes(std::process::id());
        let mut follow = container.agent.start("yes", &yes).await.unwrap();
        let seq = paused_at(&container, "yes").await;
        assert!(seq <= UNACKED_EVENTS_MAX as u64 + 1);
        let agent = rss_bytes(agent_pid(&container));
        assert!(agent < RSS_BYTES_MAX, "the agent has {agent} bytes");
        let more = rss_bytes(std::process::id()).saturating_sub(before);
        assert!(more < RSS_BYTES_MAX, "{more} bytes more in the server");
        container.answers().await;
        let cancel = container.agent.cancel("yes", Duration::ZERO);
        tokio::time::timeout(deadline(), cancel)
            .await
            .unwrap()
            .unwrap();
        let (mut bytes, mut exit) = (0, None);
        while let Some(event) = follow.next().await.unwrap() {
            follow.ack(event.seq);
            match event.kind {
                EventKind::Started(_) => {}
                EventKind::Output(_, data) => bytes += data.len(),
                EventKind::Exit(end) => exit = Some(end),
            }
        }
        assert_eq!(exit.unwrap().cause, ExitCause::Cancelled);
        // What was held, and what the pipe or the terminal held.
        assert!(bytes <= UNACKED_BYTES_MAX + (256 << 10), "{bytes}");
        container.answers().await;
        container.remove().await;
    }
}

#[tokio::test]
async fn many_endless_writers_do_not_hold_up_the_others() {
    let _alone = MUCH.lock().await;
    let container = TestContainer::new().await;
    let mut follows = Vec::new();
    for number in 0..20 {
        let id = format!("yes{number}");
        follows.push(
            container
                .agent
                .start(&id, &shell("exec yes"))
                .await
                .unwrap(),
        );
    }
    for number in 0..20 {
        paused_at(&container, &format!("yes{number}")).await;
    }
    container.answers().await;
    let agent = rss_bytes(agent_pid(&container));
    assert!(agent < 2 * RSS_BYTES_MAX, "the agent has {agent} bytes");
    drop(follows);
    container.remove().await;
}

#[tokio::test]
async fn single_bytes_come_in_their_order() {
    let container = TestContainer::new().await;
    let script = "for n in range(50000): os.write(1, b'abcdefghij'[n % 10:n % 10 + 1])";
    let ran = container.run(&attack(script)).await;
    assert_eq!(ran.stdout, "abcdefghij".repeat(5000));
    container.remove().await;
}

#[tokio::test]
async fn any_bytes_pass_as_they_are() {
    let container = TestContainer::new().await;
    let script = r"os.write(1, bytes(range(256)) + b'\x1b]0;title\x07\x1b[2J\x1b[6n\xff\xfe\xc3(' + bytes(range(255, -1, -1)))";
    let mut expected: Vec<u8> = (0..=255).collect();
    expected.extend(b"\x1b]0;title\x07\x1b[2J\x1b[6n\xff\xfe\xc3(");
    expected.extend((0..=255).rev());
    let mut follow = container
        .agent
        .start("bytes", &attack(script))
        .await
        .unwrap();
    let mut read = Vec::new();
    while let Some(event) = follow.next().await.unwrap() {
        follow.ack(event.seq);
        if let EventKind::Output(Output::Stdout, data) = event.kind {
            read.extend_from_slice(&data);
        }
    }
    assert_eq!(read, expected);
    container.remove().await;
}

#[tokio::test]
async fn a_line_without_an_end_needs_no_memory() {
    let _alone = MUCH.lock().await;
    let container = TestContainer::new().await;
    let slow = std::env::var_os("HOTCELL_SLOW_HOST").is_some();
    let bytes: u64 = if slow { 64 << 20 } else { 1 << 30 };
    let command = shell(&format!("head -c {bytes} /dev/zero"));
    let before = rss_bytes(std::process::id());
    let mut follow = container.agent.start("line", &command).await.unwrap();
    let (mut read, mut most) = (0, 0);
    while let Some(event) = follow.next().await.unwrap() {
        follow.ack(event.seq);
        if let EventKind::Output(_, data) = event.kind {
            read += data.len() as u64;
        }
        if event.seq % 1024 == 0 {
            most = most.max(rss_bytes(agent_pid(&container)));
        }
    }
    assert_eq!(read, bytes);
    assert!(most < RSS_BYTES_MAX, "the agent had {most} bytes");
    let more = rss_bytes(std::process::id()).saturating_sub(before);
    assert!(more < 2 * RSS_BYTES_MAX, "{more} bytes more in the server");
    container.remove().await;
}

#[tokio::test]
async fn closed_streams_do_not_end_an_exec() {
    let container = TestContainer::new().await;
    let script = r"
os.closerange(0, 100)
fd = os.open('/workspace/went-on', os.O_CREAT | os.O_WRONLY)
os._exit(7)
";
    let ran = container.run(&attack(script)).await;
    assert_eq!((ran.code(), ran.exit.cause), (7, ExitCause::Exited));
    assert_eq!(container.sh("ls").await.stdout, "went-on\n");
    container.remove().await;
}

#[tokio::test]
async fn background_writers_neither_delay_the_exit_nor_escape() {
    for terminal in [false, true] {
        let container = TestContainer::new().await;
        let script = r"
signal.signal(signal.SIGHUP, signal.SIG_IGN)
ready, told = os.pipe()
pid = os.fork()
if pid == 0:
    os.setsid()
    os.write(told, b'x')
    while True: os.write(1, b'x' * 1000)
os.read(ready, 1)
open('/workspace/pid', 'w').write(str(pid))
os._exit(3)
";
        let command = attack(script);
        let command = if terminal {
            with_terminal(command)
        } else {
            command
        };
        let running = container.begin(&command).await;
        let id = running.id.clone();
        let ran = running.ended().await;
        assert_eq!((ran.code(), ran.exit.cause), (3, ExitCause::Exited));
        let pid = container.sh("cat pid").await.stdout;
        assert!(container.lives(&pid).await, "terminal: {terminal}");
        container.agent.cancel(&id, Duration::ZERO).await.unwrap();
        assert!(!container.lives(&pid).await);
        container.answers().await;
        container.remove().await;
    }
}

#[tokio::test]
async fn output_that_is_stolen_back_does_not_delay_the_exit() {
    // The leader fills its pipe and ends; before the rest is read, its child takes it away.
    let container = TestContainer::new().await;
    let script = r"
pid = os.fork()
if pid == 0:
    os.setsid()
    reader = os.open('/proc/self/fd/1', os.O_RDONLY | os.O_NONBLOCK)
    wait_for(lambda: os.path.exists('/workspace/steal'))
    while not isinstance(attempt(os.read, reader, 65536), str): pass
    open('/workspace/stolen', 'w').close()
    time.sleep(1000)
writer = os.open('/proc/self/fd/1', os.O_WRONLY | os.O_NONBLOCK)
while not os.path.exists('/workspace/end'):
    attempt(os.write, writer, b'x' * 4096)
os._exit(5)
";
    let mut follow = container
        .agent
        .start("robbed", &attack(script))
        .await
        .unwrap();
    paused_at(&container, "robbed").await;
    container.sh("touch end").await;
    eventually("the leader has ended", || async {
        let execs = container.agent.list_execs().await.unwrap();
        execs
            .iter()
            .any(|exec| exec.exec_id == "robbed" && !exec.running)
    })
    .await;
    container.sh("touch steal").await;
    eventually("its output is stolen", || async {
        container.sh("test -e stolen").await.code() == 0
    })
    .await;
    let work = async {
        while let Some(event) = follow.next().await.unwrap() {
            follow.ack(event.seq);
            if let EventKind::Exit(exit) = event.kind {
                return exit;
            }
        }
        panic!("it has no end")
    };
    let exit = tokio::time::timeout(deadline(), work).await;
    assert_eq!(exit.expect("the exit is told").code, Some(5));
    container.answers().await;
    container.remove().await;
}
