//! A container's processes turn against its limits, its agent and the end of their exec.

use std::time::Duration;

use hotcell_agent_client::ExitCause;
use hotcell_domain::{ContainerSpec, Pids};

use crate::support::attack::{OTHERS, Who, as_root, attack, by_everyone, everyone_gets};
use crate::support::{TestContainer, deadline, eventually};

/// From TERM to KILL, where a test does not care.
const GRACE: Duration = Duration::from_millis(50);

const FORK_BOMB: &str = r"
told = False
while True:
    try:
        os.fork()
    except OSError as error:
        if not told:
            told = True
            print('full', errno.errorcode[error.errno], flush=True)
";

#[tokio::test]
async fn a_fork_bomb_fills_its_own_container_and_is_cancelled() {
    let container = TestContainer::new().await;
    let mut bomb = container.begin(&attack(FORK_BOMB)).await;
    assert_eq!(bomb.says("full ").await, "EAGAIN");
    // There is no room for another process, and yet the agent serves.
    let listed = container.agent.list(b"/workspace", true, None, 10, None);
    let listed = tokio::time::timeout(deadline(), listed).await;
    listed.expect("in time").expect("the agent lists files");
    bomb.cancel(Duration::ZERO).await;
    let ran = bomb.ended().await;
    assert_eq!(ran.exit.cause, ExitCause::Cancelled);
    assert_only_us(&container).await;
    container.answers().await;
    container.remove().await;
}

#[tokio::test]
async fn a_fork_bomb_on_another_engine_is_cancelled_too() {
    for flavor in OTHERS {
        let few = Pids::new(64).expect("a number");
        let small = |spec: &mut ContainerSpec| {
            spec.limits.pids = few;
            spec.allow_root = true;
        };
        let Some(container) = TestContainer::on(flavor, small).await else {
            return;
        };
        for command in [attack(FORK_BOMB), as_root(attack(FORK_BOMB))] {
            let mut bomb = container.begin(&command).await;
            assert_eq!(bomb.says("full ").await, "EAGAIN", "{}", flavor.name());
            bomb.cancel(Duration::ZERO).await;
            assert_eq!(bomb.ended().await.exit.cause, ExitCause::Cancelled);
            container.answers().await;
        }
        container.remove().await;
    }
}

#[tokio::test]
async fn a_fork_bomb_of_root_is_cancelled_too() {
    let Some(container) = TestContainer::with_root().await else {
        return;
    };
    let mut bomb = container.begin(&as_root(attack(FORK_BOMB))).await;
    assert_eq!(bomb.says("full ").await, "EAGAIN");
    bomb.cancel(Duration::ZERO).await;
    assert_eq!(bomb.ended().await.exit.cause, ExitCause::Cancelled);
    assert_only_us(&container).await;
    container.answers().await;
    container.remove().await;
}

#[tokio::test]
async fn a_fork_bomb_ends_with_its_container() {
    let container = TestContainer::new().await;
    let mut bomb = container.begin(&attack(FORK_BOMB)).await;
    bomb.says("full ").await;
    drop(bomb);
    container.remove().await;
}

/// The agent, the keeper of this very exec and its shell are all there is.
async fn assert_only_us(container: &TestContainer) {
    let ran = container
        .sh("for p in /proc/[0-9]*; do [ -e $p ] && cat $p/comm; done; :")
        .await;
    let strangers: Vec<_> = ran
        .stdout
        .lines()
        .filter(|name| !["hotcell-keeper", "sh", "cat"].contains(name))
        .collect();
    assert_eq!(strangers.len(), 1, "{ran:?}");
}

/// A daemon as by the book, which also ignores everything that can be ignored.
const ESCAPE: &str = r"
ready, told = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for number in range(1, 65):
            try:
                signal.signal(number, signal.SIG_IGN)
            except (OSError, ValueError):
                pass
        os.setpgid(0, 0)
        print('daemon', os.getpid(), flush=True)
        os.write(told, b'x')
        os.closerange(0, 10)
        while True:
            time.sleep(1)
    os._exit(0)
os.read(ready, 1)
";

#[tokio::test]
async fn a_daemon_does_not_escape_a_cancel() {
    let container = TestContainer::new().await;
    let script = format!("{ESCAPE}\ntime.sleep(1000)");
    let mut running = container.begin(&attack(&script)).await;
    let daemon = running.says("daemon ").await;
    assert!(container.lives(&daemon).await);
    running.cancel(GRACE).await;
    assert_eq!(running.ended().await.exit.cause, ExitCause::Cancelled);
    assert!(!container.lives(&daemon).await);
    container.answers().await;
    container.remove().await;
}

#[tokio::test]
async fn a_daemon_does_not_escape_a_timeout() {
    let container = TestContainer::new().await;
    let mut command = attack(&format!("{ESCAPE}\ntime.sleep(1000)"));
    // Time enough for a daemon on a busy machine, of which the rest of the test needs little.
    command.timeout = Some(deadline() / 10);
    command.grace = GRACE;
    let mut running = container.begin(&command).await;
    let daemon = running.says("daemon ").await;
    assert_eq!(running.ended().await.exit.cause, ExitCause::TimedOut);
    // The exit is told when the leader is gone; the rest follows at once.
    eventually("the daemon is gone", || async {
        !container.lives(&daemon).await
    })
    .await;
    container.answers().await;
    container.remove().await;
}

#[tokio::test]
async fn a_daemon_that_outlives_its_leader_does_not_escape_a_cancel() {
    let container = TestContainer::new().await;
    let mut running = container
        .begin(&attack(&format!("{ESCAPE}\nos.wait()")))
        .await;
    let daemon = running.says("daemon ").await;
    let cancel = running.id.clone();
    assert_eq!(running.ended().await.code(), 0);
    assert!(container.lives(&daemon).await);
    container.agent.cancel(&cancel, GRACE).await.unwrap();
    assert!(!container.lives(&daemon).await);
    container.answers().await;
    container.remove().await;
}

/// The first thread ends and the process looks like a zombie; the others go on.
fn headless() -> String {
    format!(
        r"
import threading
def go_on():
    wait_for(lambda: state(os.getpid()) == 'Z')
    child = os.fork()
    if child == 0:
        os.setsid()
        time.sleep(1000)
    print('headless', os.getpid(), child, flush=True)
    time.sleep(1000)
threading.Thread(target=go_on).start()
call({exit}, 0)
",
        exit = libc::SYS_exit
    )
}

#[tokio::test]
async fn a_process_that_looks_dead_does_not_escape_a_cancel() {
    let container = TestContainer::new().await;
    let mut running = container.begin(&attack(&headless())).await;
    let pids = running.says("headless ").await;
    running.cancel(GRACE).await;
    assert_eq!(running.ended().await.exit.cause, ExitCause::Cancelled);
    for pid in pids.split(' ') {
        assert!(!container.lives(pid).await, "{pid}");
    }
    container.answers().await;
    container.remove().await;
}

#[tokio::test]
async fn a_process_that_looks_dead_does_not_outlive_its_keeper() {
    let container = TestContainer::new().await;
    let mut running = container.begin(&attack(&headless())).await;
    let pids = running.says("headless ").await;
    let kill = container
        .sh("for p in /proc/[0-9]*; do [ \"$(cat $p/comm)\" = hotcell-keeper ] && kill -9 ${p#/proc/}; done")
        .await;
    assert_eq!(kill.exit.cause, ExitCause::KeeperKilled);
    assert_eq!(running.ended().await.exit.cause, ExitCause::KeeperKilled);
    for pid in pids.split(' ') {
        assert!(!container.lives(pid).await, "{pid}");
    }
    container.answers().await;
    container.remove().await;
}

#[tokio::test]
async fn a_tracer_in_another_exec_cannot_keep_a_cancelled_one() {
    let container = TestContainer::new().await;
    let mut held = container
        .begin(&attack(
            "libc.prctl(0x59616d61, ctypes.c_long(-1), 0, 0, 0)\n\
             print('pid', os.getpid(), flush=True)\ntime.sleep(1000)",
        ))
        .await;
    let pid = held.says("pid ").await;
    let script = format!("print('seized', ptrace(0x4206, {pid}), flush=True)\ntime.sleep(1000)");
    let mut tracer = container.begin(&attack(&script)).await;
    assert_eq!(tracer.says("seized ").await, "0");
    held.cancel(GRACE).await;
    assert_eq!(held.ended().await.exit.cause, ExitCause::Cancelled);
    // It did not let go, so it had to.
    assert_eq!(tracer.ended().await.exit.signal, Some(9));
    container.answers().await;
    container.remove().await;
}

#[tokio::test]
async fn processes_that_trace_each_other_are_ended() {
    // With a stop at exit they would be beyond KILL, and the container with them.
    let script = r"
libc.prctl(0x59616d61, ctypes.c_long(-1), 0, 0, 0)
child = os.fork()
if child == 0:
    time.sleep(1000)
for request in (0x4206, 0x4200, 21):
    print('refused', ptrace(request, child, 0, 0x40), flush=True)
first = os.getpid()
second = os.fork()
if second == 0:
    libc.prctl(0x59616d61, ctypes.c_long(-1), 0, 0, 0)
    print('back', ptrace(0x4206, first, 0, 0x3f), flush=True)
    while True:
        time.sleep(1)
print('forth', ptrace(0x4206, second, 0, 0x3f), flush=True)
while True:
    time.sleep(1)
";
    let container = TestContainer::new().await;
    let mut running = container.begin(&attack(script)).await;
    assert_eq!(running.says("refused ").await, "EPERM");
    assert_eq!(running.says("back ").await, "0");
    assert_eq!(running.says("forth ").await, "0");
    running.cancel(Duration::ZERO).await;
    let ran = running.ended().await;
    assert_eq!(ran.stdout.matches("refused EPERM").count(), 3, "{ran:?}");
    assert_eq!(ran.exit.cause, ExitCause::Cancelled);
    container.answers().await;
    container.remove().await;
}

#[tokio::test]
async fn a_leader_that_makes_its_keeper_its_tracer_is_not_taken_for_dead() {
    let script = r"
print('traced', ptrace(0, 0), flush=True)
os.kill(os.getpid(), signal.SIGUSR1)
";
    let container = TestContainer::new().await;
    let mut running = container.begin(&attack(script)).await;
    assert_eq!(running.says("traced ").await, "0");
    let id = running.id.clone();
    eventually("it is stopped", || async {
        let ran = container.sh("cat /proc/[0-9]*/stat").await;
        ran.stdout.contains(") t ")
    })
    .await;
    let execs = container.agent.list_execs().await.unwrap();
    let exec = execs.iter().find(|exec| exec.exec_id == id).unwrap();
    assert!(exec.running);
    running.cancel(GRACE).await;
    let ran = running.ended().await;
    assert_eq!(ran.exit.cause, ExitCause::Cancelled, "{ran:?}");
    assert_eq!(ran.exit.signal, Some(9));
    container.remove().await;
}

#[tokio::test]
async fn killing_everybody_ends_the_killers_exec_and_not_the_agent() {
    let container = TestContainer::new().await;
    let mut bystander = container
        .begin(&attack("print('here', flush=True)\ntime.sleep(1000)"))
        .await;
    bystander.says("here").await;
    let ran = container
        .run(&attack("os.kill(-1, signal.SIGKILL)\ntime.sleep(1000)"))
        .await;
    assert_eq!(ran.exit.cause, ExitCause::KeeperKilled);
    assert_eq!(bystander.ended().await.exit.cause, ExitCause::KeeperKilled);
    assert_only_us(&container).await;
    container.answers().await;
    container.remove().await;
}

#[tokio::test]
async fn root_that_kills_everybody_reaches_only_itself() {
    let Some(container) = TestContainer::with_root().await else {
        return;
    };
    let mut user = container
        .begin(&attack("print('here', flush=True)\ntime.sleep(1000)"))
        .await;
    user.says("here").await;
    let script =
        "print(attempt(os.kill, -1, 9), attempt(os.kill, os.getppid(), 9), attempt(os.kill, 1, 9))";
    let ran = container.run(&as_root(attack(script))).await;
    // To signal everybody one may works, even if that is nobody.
    assert_eq!(ran.stdout, "None EPERM EPERM\n", "{ran:?}");
    user.cancel(Duration::ZERO).await;
    assert_eq!(user.ended().await.exit.cause, ExitCause::Cancelled);
    container.answers().await;
    container.remove().await;
}

#[tokio::test]
async fn no_signal_ends_or_stops_the_agent() {
    let script = format!(
        r"
boot = open('/proc/1/stat').read().rsplit(') ', 1)[1].split()[19]
handled = [line for line in open('/proc/1/status') if line.startswith('SigCgt')][0]
answers = {{attempt(os.kill, 1, number) for number in range(1, 65)}}
answers |= {{call({tgkill}, 1, 1, number) for number in range(1, 65)}}
pidfd = os.pidfd_open(1)
answers |= {{attempt(signal.pidfd_send_signal, pidfd, number) for number in range(1, 65)}}
answers |= {{attempt(os.kill, -1, signal.SIGCONT)}} if os.getuid() == 0 else set()
for _ in range(20000):
    attempt(os.kill, 1, signal.SIGCHLD)
same = boot == open('/proc/1/stat').read().rsplit(') ', 1)[1].split()[19]
# SIGCHLD, and what the C library keeps for its threads.
print(answers - {{None, 0}}, state(1) in 'SR', same, int(handled.split()[1], 16) & ~(3 << 31) == 1 << 16)
",
        tgkill = libc::SYS_tgkill
    );
    for _ in 0..5 {
        let container = TestContainer::new().await;
        let ran = container
            .sh("kill -BUS 1; kill -SEGV 1; kill -CHLD 1")
            .await;
        assert_eq!(ran.code(), 0, "{ran:?}");
        let all_at_once = "for number in (7, 11, 17): os.kill(1, number)";
        assert_eq!(container.run(&attack(all_at_once)).await.code(), 0);
        container.answers().await;
        container.remove().await;
    }
    by_everyone(&script, |who, ran| {
        let expected = match who {
            Who::Root => "{'EPERM'} True True True\n",
            Who::User | Who::UserBesideRoot => "set() True True True\n",
        };
        assert_eq!(ran.stdout, expected, "{who:?}: {ran:?}");
    })
    .await;
}

#[tokio::test]
async fn an_exec_that_kills_its_keeper_is_ended_with_all_it_started() {
    let container = TestContainer::new().await;
    let script =
        format!("{ESCAPE}\nos.wait()\nos.kill(os.getppid(), signal.SIGKILL)\ntime.sleep(1000)");
    let mut running = container.begin(&attack(&script)).await;
    let daemon = running.says("daemon ").await;
    assert_eq!(running.ended().await.exit.cause, ExitCause::KeeperKilled);
    assert!(!container.lives(&daemon).await);
    container.answers().await;
    container.remove().await;
}

#[tokio::test]
async fn an_exec_of_root_whose_keeper_is_killed_by_the_user_is_ended() {
    let Some(container) = TestContainer::with_root().await else {
        return;
    };
    let script = "print('keeper', os.getppid(), flush=True)\ntime.sleep(1000)";
    let mut running = container.begin(&as_root(attack(script))).await;
    let keeper = running.says("keeper ").await;
    assert_eq!(container.sh(&format!("kill -9 {keeper}")).await.code(), 0);
    assert_eq!(running.ended().await.exit.cause, ExitCause::KeeperKilled);
    assert_only_us(&container).await;
    container.answers().await;
    container.remove().await;
}

#[tokio::test]
async fn an_exec_that_stops_its_keeper_is_cancelled_and_timed_out() {
    let container = TestContainer::new().await;
    let script =
        "os.kill(os.getppid(), signal.SIGSTOP)\nprint('stopped', flush=True)\ntime.sleep(1000)";
    let mut running = container.begin(&attack(script)).await;
    running.says("stopped").await;
    running.cancel(GRACE).await;
    assert_eq!(running.ended().await.exit.cause, ExitCause::Cancelled);
    let mut command = attack("os.kill(os.getppid(), signal.SIGSTOP)");
    command.timeout = Some(Duration::from_millis(500));
    command.grace = GRACE;
    assert_eq!(
        container.run(&command).await.exit.cause,
        ExitCause::TimedOut
    );
    container.answers().await;
    container.remove().await;
}

#[tokio::test]
async fn stopped_and_deaf_processes_are_cancelled() {
    let container = TestContainer::new().await;
    let script = r"
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN)
stopped = os.fork()
if stopped == 0:
    os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(1000)
wait_for(lambda: state(stopped) == 'T')
print('pids', os.getpid(), stopped, flush=True)
while True:
    time.sleep(1)
";
    let mut running = container.begin(&attack(script)).await;
    let pids = running.says("pids ").await;
    running.cancel(GRACE).await;
    let ran = running.ended().await;
    assert_eq!(
        (ran.exit.cause, ran.exit.signal),
        (ExitCause::Cancelled, Some(9))
    );
    for pid in pids.split(' ') {
        assert!(!container.lives(pid).await, "{pid}");
    }
    container.remove().await;
}

#[tokio::test]
async fn thousands_of_orphans_are_reaped() {
    let script = r"
for _ in range(3000):
    while True:
        try:
            pid = os.fork()
            break
        except BlockingIOError:
            time.sleep(0.001)
    if pid == 0:
        attempt(os.fork)
        os._exit(0)
    os.waitpid(pid, 0)
def zombies():
    pids = [name for name in os.listdir('/proc') if name.isdigit()]
    return [pid for pid in pids if attempt(lambda: state(pid)) == 'Z']
wait_for(lambda: not zombies())
print('none')
";
    everyone_gets(script, "none\n").await;
}

#[tokio::test]
async fn the_agent_and_keepers_can_be_neither_read_nor_traced() {
    let script = format!(
        r"
def look(pid):
    answers = {{}}
    for name in ('mem', 'environ', 'maps', 'auxv', 'syscall', 'stack', 'personality', 'pagemap'):
        answers[name] = attempt(lambda: open(f'/proc/{{pid}}/{{name}}', 'rb').read(1))
    for name in ('fdinfo', 'map_files', 'root/', 'cwd/'):
        answers[name] = attempt(os.listdir, f'/proc/{{pid}}/{{name}}')
    for number in range(64):
        answers[f'open {{number}}'] = attempt(os.open, f'/proc/{{pid}}/fd/{{number}}', os.O_RDONLY)
    # Root sees which numbers are in use, and nothing behind them.
    numbers = attempt(os.listdir, f'/proc/{{pid}}/fd')
    if os.getuid() or not all(number.isdigit() for number in numbers):
        answers['fd'] = numbers
    for name in ('exe', 'root', 'cwd', 'fd/3', 'ns/mnt'):
        answers['link ' + name] = attempt(os.readlink, f'/proc/{{pid}}/{{name}}')
    answers['write exe'] = attempt(os.open, f'/proc/{{pid}}/exe', os.O_WRONLY)
    answers['write mem'] = attempt(os.open, f'/proc/{{pid}}/mem', os.O_RDWR)
    buffer = ctypes.create_string_buffer(8)
    vector = (ctypes.c_void_p * 2)(ctypes.addressof(buffer), 8)
    answers['readv'] = call({readv}, pid, vector, 1, vector, 1, 0)
    answers['writev'] = call({writev}, pid, vector, 1, vector, 1, 0)
    answers['attach'] = ptrace(16, pid)
    answers['seize'] = ptrace(0x4206, pid)
    answers['getfd'] = call({getfd}, os.pidfd_open(pid), 3, 0)
    answers['kcmp'] = call({kcmp}, os.getpid(), pid, 0, 0, 3)
    return {{name: answer for name, answer in answers.items()
            if answer not in ('EACCES', 'EPERM', 'ENOENT')}}
print(look(1), look(os.getppid()))
",
        readv = libc::SYS_process_vm_readv,
        writev = libc::SYS_process_vm_writev,
        getfd = libc::SYS_pidfd_getfd,
        kcmp = libc::SYS_kcmp,
    );
    everyone_gets(&script, "{} {}\n").await;
}

#[tokio::test]
async fn nobody_changes_how_the_agent_runs() {
    let script = format!(
        r"
import resource
def write(path, data):
    fd = os.open(path, os.O_WRONLY)
    return os.write(fd, data)
limits = (ctypes.c_ulong * 2)(0, 0)
mask = ctypes.c_ulong(1)
param = ctypes.c_int(0)
attr = (ctypes.c_uint * 14)(56, 5)
answers = [
    call({prlimit}, 1, 7, limits, 0),
    call({affinity}, 1, 8, ctypes.byref(mask)),
    call({scheduler}, 1, 5, ctypes.byref(param)),
    call({setattr}, 1, attr, 0),
    call({priority}, 0, 1, 19),
    call({priority}, 1, 1, 19),
    call({priority}, 2, os.getuid(), 19),
    call({ioprio}, 1, 1, 3 << 13),
    call({ioprio}, 3, os.getuid(), 3 << 13),
    attempt(write, '/proc/1/comm', b'x'),
    attempt(write, '/proc/1/timerslack_ns', b'1'),
]
print(set(answers) - {{'EPERM', 'EACCES', 'EINVAL'}})
",
        prlimit = libc::SYS_prlimit64,
        affinity = libc::SYS_sched_setaffinity,
        scheduler = libc::SYS_sched_setscheduler,
        setattr = libc::SYS_sched_setattr,
        priority = libc::SYS_setpriority,
        ioprio = libc::SYS_ioprio_set,
    );
    everyone_gets(&script, "set()\n").await;
}

#[tokio::test]
async fn only_root_can_offer_its_own_agent_to_the_oom_killer() {
    // The kernel gives the entries in /proc of a process that cannot be read to root; what
    // the container's own root gains by that is the end of its own container.
    let script = r"
before = open('/proc/1/oom_score_adj').read()
raised = attempt(lambda: open('/proc/1/oom_score_adj', 'w').write('1000'))
lowered = attempt(lambda: open('/proc/self/oom_score_adj', 'w', buffering=1).write('-1000\n'))
print(raised, lowered)
";
    by_everyone(script, |who, ran| {
        let expected = match who {
            Who::User | Who::UserBesideRoot => "EACCES EACCES\n",
            Who::Root => "4 EACCES\n",
        };
        assert_eq!(ran.stdout, expected, "{who:?}: {ran:?}");
    })
    .await;
}
