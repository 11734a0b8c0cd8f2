//! An exec in a warmed interpreter is an exec: timeout, cancel, usage, background processes; and
//! what its script does to the interpreter stays with it.
#![allow(clippy::unwrap_used, reason = "a test fails where it cannot go on")]

use hotcell_agent_api::v1::{ExitCause, SignalRequest};

use super::harness::{children, is_alive, signal, until};
use super::warm::Warmed;

#[tokio::test]
async fn it_is_told_how_it_ended_and_what_it_used() {
    let warmed = Warmed::start().await;
    let finished = warmed
        .run("data = b'x' * (64 << 20); print(len(data)); raise SystemExit(3)")
        .await;
    assert_eq!(finished.exit.code, Some(3));
    assert_eq!(finished.exit.cause(), ExitCause::Exited);
    let usage = finished.exit.usage.unwrap();
    assert!(usage.max_rss_bytes > 64 << 20, "{usage:?}");
    assert!(usage.wall_us > 0 && usage.stdout_bytes == 9, "{usage:?}");
    assert!(warmed.is_warm().await);
}

#[tokio::test]
async fn a_timeout_ends_the_whole_tree() {
    let warmed = Warmed::start().await;
    warmed.write(
        "sleeps.py",
        "import os, signal, time\n\
         signal.signal(signal.SIGTERM, signal.SIG_IGN)\n\
         if os.fork() == 0: os.setsid()\n\
         print(os.getpid(), flush=True)\n\
         time.sleep(600)",
    );
    let mut start = warmed.warm_python(&["sleeps.py"]);
    (start.timeout_ms, start.grace_ms) = (500, 50);
    let finished = warmed.agent.run(start).await;
    assert_eq!(finished.exit.cause(), ExitCause::TimedOut);
    let pids = String::from_utf8(finished.stdout).unwrap();
    let pids: Vec<i32> = pids.lines().map(|pid| pid.parse().unwrap()).collect();
    assert_eq!(pids.len(), 2);
    // The leader's end is the exec's; the others have been sent the same signal.
    until("none is left", || !pids.iter().copied().any(is_alive)).await;
    assert!(warmed.is_warm().await);
}

#[tokio::test]
async fn a_background_process_is_found_and_ended_by_cancel() {
    let warmed = Warmed::start().await;
    warmed.write(
        "leaves.py",
        "import subprocess\n\
         subprocess.Popen(['sh', '-c', '(setsid sleep 86399 &) ; exec sleep 86399'],\n\
         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)",
    );
    let start = warmed.warm_python(&["leaves.py"]);
    let id = start.exec_id.clone();
    let finished = warmed.agent.run(start).await;
    assert_eq!(finished.exit.code, Some(0));
    until("both are left", || processes("sleep 86399") == 2).await;
    warmed.agent.cancel(&id, 0).await.unwrap();
    assert_eq!(processes("sleep 86399"), 0);
    assert!(warmed.is_warm().await);
}

#[tokio::test]
async fn a_signal_reaches_the_script() {
    let warmed = Warmed::start().await;
    warmed.write(
        "waits.py",
        "import time\nprint('ready', flush=True)\ntime.sleep(600)",
    );
    let start = warmed.warm_python(&["waits.py"]);
    let exec_id = start.exec_id.clone();
    let mut following = warmed.agent.start_exec(start).await.unwrap();
    following.until_stdout_has("ready").await;
    let request = SignalRequest {
        exec_id,
        signal: 2,
        whole_tree: false,
    };
    warmed.agent.client.clone().signal(request).await.unwrap();
    let finished = following.finish().await;
    assert_eq!(finished.exit.signal, Some(2));
    assert!(
        String::from_utf8(finished.stderr)
            .unwrap()
            .contains("KeyboardInterrupt")
    );
}

#[tokio::test]
async fn what_one_script_changes_the_next_does_not_see() {
    let warmed = Warmed::start().await;
    let changed = "import builtins, json, os, random, sys\n\
        builtins.print = None\n\
        json.dumps = os.getcwd = None\n\
        sys.modules['math'] = None\n\
        sys.path.insert(0, '/nowhere')\n\
        random.seed(1)\n\
        os.environ['LEFT'] = 'behind'\n\
        os.chdir('/')\n\
        os.umask(0)";
    assert_eq!(warmed.run(changed).await.exit.code, Some(0));
    let seen = "import json, math, os, sys\n\
        print(json.dumps([1]), math.pi > 3, '/nowhere' in sys.path, os.getenv('LEFT'), os.getcwd() != '/', os.umask(0))";
    assert_eq!(warmed.said(seen).await, "[1] True False None True 18");
    assert!(warmed.is_warm().await);
}

/// Tries to reach every process of AGENT, and as a control one of its own. Prints who could be.
const ATTACK: &str = r"
import ctypes, os, time
libc = ctypes.CDLL(None, use_errno=True)

def below(parents):
    table = {}
    for pid in filter(str.isdigit, os.listdir('/proc')):
        try:
            table[int(pid)] = int(open(f'/proc/{pid}/stat').read().rpartition(')')[2].split()[1])
        except OSError:
            pass
    return [pid for pid, parent in table.items() if parent in parents and pid != os.getpid()]

def reached(pid):
    if libc.ptrace(16, pid, 0, 0) == 0:
        return 'ptrace'
    try:
        if libc.syscall(438, os.pidfd_open(pid), 0, 0) >= 0:
            return 'pidfd_getfd'
    except ProcessLookupError:
        return None
    for name in ('mem', 'maps', 'environ', 'fd/0', 'cwd'):
        try:
            os.close(os.open(f'/proc/{pid}/{name}', os.O_RDONLY))
            return name
        except OSError:
            pass

keepers = below([AGENT])
while not (spares := below(keepers)):
    keepers = below([AGENT])
child = os.fork()
if child == 0:
    time.sleep(600)
print(len(keepers) >= 3, len(spares), [reached(pid) for pid in keepers + spares if reached(pid)], reached(child))
os.kill(child, 9)
";

#[tokio::test]
async fn zygote_keepers_and_spare_can_be_neither_traced_nor_read_nor_robbed() {
    // Root may do anything to everybody.
    let user = ["setpriv", "--reuid=4242", "--regid=4242", "--clear-groups"];
    let warmed = Warmed::start_by(&user).await;
    let attack = ATTACK.replace("AGENT", &warmed.agent.pid().to_string());
    assert_eq!(warmed.said(&attack).await, "True 1 [] ptrace");
    assert!(warmed.is_warm().await);
}

#[tokio::test]
async fn a_killed_zygote_is_replaced_and_nobody_notices() {
    let warmed = Warmed::start().await;
    for _ in 0..2 {
        for pid in children(warmed.agent.pid()) {
            signal(pid, "KILL");
        }
        assert_eq!(warmed.said("print('answers')").await, "answers");
        warmed.until_warm().await;
    }
}

#[tokio::test]
async fn a_spare_that_was_stopped_or_signalled_is_not_used() {
    let warmed = Warmed::start().await;
    for name in ["STOP", "TERM", "USR1"] {
        until("a spare is ready", || spares(&warmed).len() == 1).await;
        signal(spares(&warmed)[0], name);
        assert_eq!(warmed.said("print('answers')").await, "answers", "{name}");
        warmed.until_warm().await;
    }
}

#[tokio::test]
async fn a_script_that_kills_its_keeper_is_ended_and_the_next_is_clean() {
    let warmed = Warmed::start().await;
    let finished = warmed
        .run("import os, time\nos.kill(os.getppid(), 9)\ntime.sleep(600)")
        .await;
    assert_eq!(finished.exit.cause(), ExitCause::KeeperKilled);
    assert_eq!(warmed.said("print('answers')").await, "answers");
}

#[tokio::test]
async fn nothing_that_a_script_writes_is_loaded_by_a_zygote() {
    let warmed = Warmed::start().await;
    let site = warmed
        .said("import site; print(site.getusersitepackages())")
        .await;
    std::fs::create_dir_all(&site).unwrap();
    let told = warmed.path().join("told");
    let tells = format!("import os; open({told:?}, 'a').write(open('/proc/self/cmdline').read())");
    for name in [
        "sitecustomize.py",
        "usercustomize.py",
        "socket.py",
        "json.py",
    ] {
        std::fs::write(std::path::Path::new(&site).join(name), &tells).unwrap();
        warmed.write(name, &tells);
    }
    for pid in children(warmed.agent.pid()) {
        signal(pid, "KILL");
    }
    // New interpreters load it: it would have been seen.
    assert_eq!(warmed.run("import json").await.exit.code, Some(0));
    assert!(std::fs::read_to_string(&told).unwrap().contains("python3"));
    std::fs::remove_dir_all(warmed.path().join(".local")).unwrap();
    for name in [
        "sitecustomize.py",
        "usercustomize.py",
        "socket.py",
        "json.py",
    ] {
        std::fs::remove_file(warmed.path().join(name)).unwrap();
    }
    warmed.until_warm().await;
    assert!(!std::fs::read_to_string(&told).unwrap().contains("hotcell"));
}

/// The processes that wait for a script: children of the agent's children.
fn spares(warmed: &Warmed) -> Vec<i32> {
    let keepers = children(warmed.agent.pid()).into_iter();
    keepers.flat_map(children).collect()
}

/// Processes with this command line.
fn processes(line: &str) -> usize {
    let entries = std::fs::read_dir("/proc").unwrap();
    let lines = entries.filter_map(|entry| std::fs::read(entry.ok()?.path().join("cmdline")).ok());
    lines
        .filter(|bytes| {
            let text = String::from_utf8_lossy(bytes).replace('\0', " ");
            text.trim() == line
        })
        .count()
}

#[tokio::test]
async fn a_starting_zygote_that_is_killed_leaves_nothing_that_it_has_stopped() {
    let warmed = Warmed::start_cold().await;
    warmed.warm_up().await;
    let mut stopped = None;
    until("a process has stopped itself", || {
        let zygotes = children(warmed.agent.pid());
        stopped = zygotes.into_iter().find_map(|zygote| {
            let trial = trials(zygote).into_iter().find(|pid| is_stopped(*pid))?;
            // At once: a program that does it would take longer than the zygote looks.
            let zygote = rustix::process::Pid::from_raw(zygote)?;
            rustix::process::kill_process(zygote, rustix::process::Signal::KILL).ok()?;
            Some(trial)
        });
        stopped.is_some()
    })
    .await;
    let trial = stopped.unwrap();
    until("it is gone", || !is_alive(trial)).await;
}

/// The children of all threads of a process, read without a look at all other processes: they are
/// stopped for milliseconds.
fn trials(zygote: i32) -> Vec<i32> {
    let tasks = std::fs::read_dir(format!("/proc/{zygote}/task"));
    let tasks = tasks.into_iter().flatten().flatten();
    let children =
        tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    let children: Vec<String> = children.collect();
    let pids = children.iter().flat_map(|pids| pids.split_whitespace());
    pids.filter_map(|pid| pid.parse().ok()).collect()
}

fn is_stopped(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ")
        .is_some_and(|(_, rest)| rest.starts_with('T'))
}
