//! A container takes all the memory, space and descriptors it can get.
//!
//! Where a limit is an rlimit and not a cgroup, it holds for each process only: there the
//! attacks that go around it are left out, as `SECURITY.md` says.

use hotcell_domain::{Bytes, ContainerSpec};
use hotcell_engine::Enforcement;

use crate::support::TestContainer;
use crate::support::attack::{OTHERS, as_root, attack, everyone_gets};

const MIB: u64 = 1 << 20;

/// A container with little memory, so that an attack takes little time.
async fn small() -> TestContainer {
    let memory = Bytes::new(64 * MIB).expect("a size");
    TestContainer::with(|spec| spec.limits.memory = memory).await
}

async fn has_memory_cgroup(container: &TestContainer) -> bool {
    container.inspect().await.enforced.memory == Enforcement::Cgroup
}

/// A small container whose memory a cgroup limits; elsewhere the test is skipped.
async fn small_by_cgroup() -> Option<TestContainer> {
    let container = small().await;
    if has_memory_cgroup(&container).await {
        return Some(container);
    }
    container.remove().await;
    let reason = "no cgroup limits memory on this host";
    hotcell_testkit::skip(hotcell_testkit::Need::Cgroups, reason);
    None
}

const BOMB: &str = "held = []\nwhile True:\n    held.append(bytearray(1 << 20))";

#[tokio::test]
async fn a_memory_bomb_is_killed_alone() {
    let container = small().await;
    let bystander = container
        .begin_until("print('here', flush=True)\ntime.sleep(1000)", "here")
        .await;
    let ran = container.run(&attack(BOMB)).await;
    if has_memory_cgroup(&container).await {
        assert_eq!(ran.exit.signal, Some(9), "{ran:?}");
        assert_eq!(container.inspect().await.oom_kills, 1);
    } else {
        assert!(ran.stderr.contains("MemoryError"), "{ran:?}");
    }
    container.answers().await;
    let execs = container.agent.list_execs().await.unwrap();
    assert!(
        execs
            .iter()
            .any(|exec| exec.exec_id == bystander.id && exec.running)
    );
    drop(bystander);
    container.remove().await;
}

#[tokio::test]
async fn a_memory_bomb_on_another_engine_is_killed_alone() {
    for flavor in OTHERS {
        let memory = Bytes::new(64 * MIB).expect("a size");
        let small = |spec: &mut ContainerSpec| {
            spec.limits.memory = memory;
            spec.allow_root = true;
        };
        let Some(container) = TestContainer::on(flavor, small).await else {
            return;
        };
        let bystander = container
            .begin_until("print('here', flush=True)\ntime.sleep(1000)", "here")
            .await;
        for command in [attack(BOMB), as_root(attack(BOMB))] {
            let ran = container.run(&command).await;
            assert_eq!(ran.exit.signal, Some(9), "{}: {ran:?}", flavor.name());
            container.answers().await;
        }
        assert!(
            container.inspect().await.oom_kills >= 2,
            "{}",
            flavor.name()
        );
        let execs = container
            .agent
            .list_execs()
            .await
            .expect("the agent answers");
        let lives =
            |exec: &hotcell_agent_client::ExecInfo| exec.exec_id == bystander.id && exec.running;
        assert!(execs.iter().any(lives), "{}", flavor.name());
        drop(bystander);
        container.remove().await;
    }
}

#[tokio::test]
async fn a_memory_bomb_of_root_is_killed_alone() {
    let Some(container) = TestContainer::with_root().await else {
        return;
    };
    let limited = has_memory_cgroup(&container).await;
    let ran = container.run(&as_root(attack(BOMB))).await;
    if limited {
        assert_eq!(ran.exit.signal, Some(9), "{ran:?}");
        assert!(container.inspect().await.oom_kills >= 1);
    } else {
        assert!(ran.stderr.contains("MemoryError"), "{ran:?}");
    }
    container.answers().await;
    container.remove().await;
}

#[tokio::test]
async fn many_processes_have_no_more_memory_than_one() {
    let Some(container) = small_by_cgroup().await else {
        return;
    };
    let script = r"
children = []
for _ in range(8):
    children.append(os.fork())
    if children[-1] == 0:
        held = bytearray(32 << 20)
        time.sleep(1000)
print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
# Those that are left fill the memory that whoever asks next needs.
for child in children:
    try:
        os.kill(child, signal.SIGKILL)
    except ProcessLookupError:
        pass
";
    let ran = container.run(&attack(script)).await;
    // The parent may be the one that is killed.
    assert!(
        ran.stdout == "-9\n" || ran.exit.signal == Some(9),
        "{ran:?}"
    );
    assert!(container.inspect().await.oom_kills >= 1);
    container.answers().await;
    container.remove().await;
}

#[tokio::test]
async fn memory_that_belongs_to_no_process_is_counted_too() {
    let Some(container) = small_by_cgroup().await else {
        return;
    };
    let script = r"
held = []
while True:
    held.append(os.memfd_create('x'))
    os.write(held[-1], bytes(1 << 20))
";
    let ran = container.run(&attack(script)).await;
    assert_eq!(ran.exit.signal, Some(9), "{ran:?}");
    assert!(container.inspect().await.oom_kills >= 1);
    container.answers().await;
    container.remove().await;
}

#[tokio::test]
async fn a_container_that_pins_all_its_memory_harms_only_itself() {
    // A segment of shared memory outlives its process: nobody can be killed for it but the
    // agent, and then the container has ended itself.
    let Some(container) = small_by_cgroup().await else {
        return;
    };
    let script = format!(
        r"
for _ in range(200):
    segment = call({shmget}, 0, 1 << 20, 0o1600)
    if isinstance(segment, str): break
    libc.shmat.restype = ctypes.c_void_p
    address = libc.shmat(ctypes.c_int(segment), None, 0)
    ctypes.memset(address, 1, 1 << 20)
    libc.shmdt(ctypes.c_void_p(address))
",
        shmget = libc::SYS_shmget
    );
    let work = container.agent.start("pins", &attack(&script)).await;
    if let Ok(mut follow) = work {
        while let Ok(Some(event)) = follow.next().await {
            follow.ack(event.seq);
        }
    }
    assert!(container.inspect().await.memory_bytes.unwrap() <= 64 * MIB);
    let other = TestContainer::new().await;
    other.answers().await;
    other.remove().await;
    container.remove().await;
}

#[tokio::test]
async fn temporary_filesystems_end_at_their_size() {
    let script = r"
for place in ('/tmp', '/dev/shm'):
    fd = os.open(f'{place}/{os.getuid()}', os.O_WRONLY | os.O_CREAT)
    written, answer = 0, 0
    while not isinstance(answer, str):
        written += answer
        answer = attempt(os.write, fd, bytes(1 << 20))
    print(place, answer, written >> 20)
    os.unlink(f'{place}/{os.getuid()}')
    os.close(fd)
";
    everyone_gets(script, "/tmp ENOSPC 64\n/dev/shm ENOSPC 64\n").await;
}

#[tokio::test]
async fn temporary_filesystems_end_at_their_number_of_files() {
    let script = r"
for place in ('/tmp', '/dev/shm'):
    os.mkdir(f'{place}/{os.getuid()}')
    os.chdir(f'{place}/{os.getuid()}')
    made = 0
    while made < 100000 and not isinstance(attempt(os.mkdir, str(made)), str):
        made += 1
    print(place, 10000 < made < 40000, attempt(os.mkdir, 'more'))
    for number in range(made): os.rmdir(str(number))
    os.chdir('/')
    os.rmdir(f'{place}/{os.getuid()}')
";
    everyone_gets(script, "/tmp True ENOSPC\n/dev/shm True ENOSPC\n").await;
}

#[tokio::test]
async fn everything_else_is_read_only() {
    let script = r"
for place in ('/', '/usr', '/usr/bin', '/etc', '/dev', '/dev/pts', '/sys', '/proc', '/proc/sys', '/home', '/root', '/run', '/var', '/mnt', '/opt', '/srv'):
    answer = attempt(os.open, place + '/written', os.O_WRONLY | os.O_CREAT)
    if answer not in ('EROFS', 'EACCES', 'ENOENT', 'EPERM'): print(place, answer)
for place in ('/usr/bin/python3', '/etc/passwd', '/dev/null', '/dev/tty', '/bin/sh'):
    answer = attempt(os.chmod, place, 0o777)
    if answer not in ('EROFS', 'EPERM'): print('chmod', place, answer)
    answer = attempt(os.utime, place)
    if answer not in ('EROFS', 'EPERM', 'EACCES'): print('utime', place, answer)
    answer = attempt(os.truncate, place, 0)
    if answer not in ('EROFS', 'EPERM', 'EACCES', 'EINVAL', 'ETXTBSY'): print('truncate', place, answer)
os.write(os.open('/dev/null', os.O_RDWR), b'works')
";
    everyone_gets(script, "").await;
}

#[tokio::test]
async fn descriptors_end_at_their_number() {
    let script = r"
import resource
held = []
answer = 0
while not isinstance(answer, str):
    answer = attempt(os.dup, 0)
    held.append(answer)
try:
    resource.setrlimit(resource.RLIMIT_NOFILE, (1 << 20, 1 << 20))
    print('raised')
except (ValueError, OSError):
    pass
os.close(held[0])
print(answer, len(held) <= 4096)
";
    everyone_gets(script, "EMFILE True\n").await;
}

#[tokio::test]
async fn full_pipes_and_terminals_do_not_keep_others_from_theirs() {
    let container = TestContainer::new().await;
    let script = r"
terminals = 0
while not isinstance(attempt(os.openpty), str) and terminals < 1000:
    terminals += 1
def fill():
    read, write = os.pipe()
    os.set_blocking(write, False)
    while not isinstance(attempt(os.write, write, bytes(65536)), str): pass
while not isinstance(attempt(fill), str): pass
print('full', terminals, flush=True)
time.sleep(1000)
";
    let mut running = container.begin(&attack(script)).await;
    let terminals: u32 = running.says("full ").await.parse().unwrap();
    assert!(terminals <= 256, "{terminals}");
    container.answers().await;
    running.cancel(std::time::Duration::ZERO).await;
    container.answers().await;
    container.remove().await;
}

#[tokio::test]
async fn addresses_are_free_and_memory_is_not() {
    // A page can be locked, and sixteen mebibytes can be had: it is locking them that cannot.
    let script = r"
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
libc.mlock.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
def mapped(size, flags):
    address = libc.mmap(None, size, 3, flags, -1, 0)
    return None if address == ctypes.c_void_p(-1).value else address
print('addresses', mapped(1 << 40, 0x4022) is not None)
print('page', libc.mlock(mapped(4096, 0x22), 4096))
large = mapped(16 << 20, 0x22)
print('large', large is not None, libc.mlock(large, 16 << 20))
";
    let container = TestContainer::new().await;
    // Where memory is limited by addresses, those are not free.
    let are_free = has_memory_cgroup(&container).await;
    container.remove().await;
    let are_free = if are_free { "True" } else { "False" };
    let expected = format!("addresses {are_free}\npage 0\nlarge True -1\n");
    everyone_gets(script, &expected).await;
}

#[tokio::test]
async fn what_the_kernel_counts_for_the_hosts_user_is_little() {
    // Inotify instances and message queues of a container count for whoever made it, too.
    let script = format!(
        r"
made = 0
while made < 1000 and not isinstance(call({inotify}, 0), str): made += 1
print(made)
class Attributes(ctypes.Structure):
    _fields_ = [(name, ctypes.c_long) for name in ('flags', 'most', 'size', 'now', 'a', 'b', 'c', 'd')]
queues = 0
def queue(number):
    return f'{{os.getuid()}}-{{number}}'.encode()
def open_queue(number):
    return call({mq_open}, queue(number), 0o102, 0o600, ctypes.byref(Attributes(0, 10, 8192, 0)))
while queues < 100 and not isinstance(open_queue(queues), str): queues += 1
for number in range(queues): call({mq_unlink}, queue(number))
print(queues)
timers = 0
timer = ctypes.c_int()
while timers < 100000 and not isinstance(call({timer_create}, 0, 0, ctypes.byref(timer)), str): timers += 1
print(timers <= 1024)
print([open('/proc/sys/user/' + name).read().strip() for name in ('max_user_namespaces', 'max_net_namespaces')])
",
        inotify = libc::SYS_inotify_init1,
        mq_open = libc::SYS_mq_open,
        mq_unlink = libc::SYS_mq_unlink,
        timer_create = libc::SYS_timer_create,
    );
    everyone_gets(&script, "16\n1\nTrue\n['0', '0']\n").await;
}
