//! A container looks for the host, and finds none of it.

use std::io::Write;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::process::Command;

use crate::support::attack::{attack, by_everyone, everyone_gets};
use crate::support::{self, TestContainer};

#[tokio::test]
async fn nothing_of_the_hosts_own_files_is_there() {
    let marker = support::scratch();
    std::fs::write(marker.path().join("secret"), "of the host").unwrap();
    let script = format!(
        r"
for path in ('/root/.ssh', '/root/.bashrc', '/etc/shadow', '/etc/gshadow', '/etc/sudoers', '/etc/ssh', '/etc/machine-id', '/etc/fstab',
             '/var/lib', '/var/log', '/var/run/docker.sock', '/run/systemd', '/run/docker.sock', '/run/user', '/boot', '/lost+found', {marker:?}):
    if os.path.lexists(path): print(path)
for path in ('/home', '/root', '/mnt', '/opt', '/srv', '/run', '/media'):
    names = attempt(os.listdir, path)
    if names not in ([], 'ENOENT', 'EACCES'): print(path, names)
print([line.split(':')[0] for line in open('/etc/passwd')])
print(sorted(os.environ))
",
        marker = marker.path()
    );
    everyone_gets(
        &script,
        "['root', 'user', 'nobody']\n['LC_CTYPE', 'PATH']\n",
    )
    .await;
}

#[tokio::test]
async fn no_path_leads_out_of_the_root() {
    let script = r"
for start in ('/workspace', '/tmp', '/dev/shm', '/proc/self/root', '/proc/self/cwd'):
    os.chdir(start)
    for _ in range(30): os.chdir('..')
    here, root = os.stat('.'), os.stat('/')
    if (here.st_dev, here.st_ino) != (root.st_dev, root.st_ino): print(start, os.getcwd())
for pid in os.listdir('/proc'):
    if pid.isdigit():
        root = attempt(os.stat, f'/proc/{pid}/root/')
        if not isinstance(root, str) and root.st_ino != os.stat('/').st_ino: print(pid)
print('done')
";
    everyone_gets(script, "done\n").await;
}

#[tokio::test]
async fn the_kernels_settings_cannot_be_changed() {
    let script = r"
def write(path, data):
    fd = os.open(path, os.O_WRONLY)
    try: return os.write(fd, data)
    finally: os.close(fd)
for path in ('/proc/sys/kernel/core_pattern', '/proc/sys/kernel/modprobe', '/proc/sys/kernel/hostname', '/proc/sys/kernel/domainname',
             '/proc/sys/vm/drop_caches', '/proc/sys/vm/overcommit_memory', '/proc/sys/fs/binfmt_misc/register', '/proc/sys/net/ipv4/ip_forward',
             '/proc/sys/user/max_user_namespaces', '/proc/sysrq-trigger', '/proc/irq/default_smp_affinity', '/proc/mtrr',
             '/proc/self/uid_map', '/proc/self/setgroups', '/proc/1/uid_map', '/proc/acpi/wakeup', '/proc/bus/pci/00/00.0'):
    answer = attempt(write, path, b'0')
    if answer not in ('EROFS', 'EACCES', 'EPERM', 'ENOENT'): print(path, answer)
";
    everyone_gets(script, "").await;
}

#[tokio::test]
async fn what_tells_of_the_kernels_insides_is_masked() {
    // There is something to mask.
    for name in ["cmdline", "interrupts", "partitions"] {
        let path = format!("/proc/{name}");
        assert!(!std::fs::read(&path).unwrap().is_empty(), "{path}");
    }
    let script = r"
for path in ('/proc/kcore', '/proc/keys', '/proc/kmsg', '/proc/kallsyms', '/proc/timer_list', '/proc/sched_debug', '/proc/interrupts', '/proc/latency_stats',
             '/proc/key-users', '/proc/diskstats', '/proc/partitions', '/proc/cmdline'):
    content = attempt(lambda: open(path, 'rb').read(100))
    if content not in (b'', 'ENOENT', 'EACCES', 'EPERM'): print(path, content)
for path in ('/proc/acpi', '/proc/scsi', '/proc/asound', '/proc/pressure'):
    names = attempt(os.listdir, path)
    if names not in ([], 'ENOENT'): print(path, names)
for path in ('/proc/slabinfo', '/proc/vmallocinfo', '/proc/pagetypeinfo', '/proc/kpageflags', '/proc/kpagecount', '/proc/iomem'):
    content = attempt(lambda: open(path, 'rb').read(4096))
    if path == '/proc/iomem' and isinstance(content, bytes):
        if any(line.split(b' : ')[0].strip() not in (b'00000000-00000000',) for line in content.splitlines()[:5]): print(path)
    elif content not in (b'', 'ENOENT', 'EACCES', 'EPERM'): print(path, content)
";
    everyone_gets(script, "").await;
}

#[tokio::test]
async fn sys_shows_processors_and_no_control_groups() {
    let script = r"
print(os.listdir('/sys'), os.listdir('/sys/devices'), os.listdir('/sys/devices/system'))
print(attempt(os.listdir, '/sys/fs/cgroup'), attempt(os.listdir, '/sys/kernel'), attempt(os.listdir, '/sys/class'))
print({line.strip().split(':')[2] for line in open('/proc/self/cgroup')})
for root, folders, files in os.walk('/sys'):
    for name in files:
        if isinstance(attempt(os.open, os.path.join(root, name), os.O_WRONLY), int): print(root, name)
";
    everyone_gets(
        script,
        "['devices'] ['system'] ['cpu']\nENOENT ENOENT ENOENT\n{'/'}\n",
    )
    .await;
}

#[tokio::test]
async fn only_harmless_devices_exist() {
    let script = r"
print(sorted(os.listdir('/dev')))
for name in ('mem', 'kmem', 'kmsg', 'port', 'sda', 'vda', 'nvme0n1', 'loop-control', 'fuse', 'kvm', 'vsock', 'vhost-net', 'net/tun', 'console', 'tty0', 'mapper/control'):
    answer = attempt(os.open, '/dev/' + name, os.O_RDONLY)
    if answer not in ('ENOENT', 'ENOTDIR'): print(name, answer)
print(attempt(os.unlink, '/dev/null'), attempt(os.open, '/dev/x', os.O_CREAT), attempt(os.open, '/dev/tty', os.O_RDWR))
print(os.listdir('/dev/pts'))
";
    everyone_gets(
        script,
        "['fd', 'full', 'null', 'ptmx', 'pts', 'random', 'shm', 'stderr', 'stdin', 'stdout', 'tty', 'urandom', 'zero']\n\
         EROFS EROFS ENXIO\n\
         ['ptmx']\n",
    )
    .await;
}

#[tokio::test]
async fn mounts_tell_no_more_than_the_sources_of_what_is_shown() {
    // The kernel names the directory of the host behind each bind mount. That the state
    // directory has a name is no secret worth its price; that nothing else is named is
    // what counts.
    let container = TestContainer::new().await;
    let ran = container.sh("cut -d' ' -f5 /proc/self/mountinfo").await;
    let shown = |point: &str| {
        [
            "/proc", "/dev", "/sys", "/usr", "/etc", "/bin", "/sbin", "/lib",
        ]
        .iter()
        .any(|top| point == *top || point.starts_with(&format!("{top}/")))
            || ["/", "/tmp", "/workspace", "/lib32", "/lib64", "/libx32"].contains(&point)
    };
    for point in ran.stdout.lines() {
        assert!(shown(point), "{point}");
    }
    let ran = container.sh("grep -c ' /workspace ' /proc/self/mountinfo; grep -v ' /workspace ' /proc/self/mountinfo").await;
    let home = container.home.path().to_str().unwrap();
    let mut lines = ran.stdout.lines();
    assert_eq!(lines.next(), Some("1"));
    assert!(lines.all(|line| !line.contains(home)), "{ran:?}");
    container.remove().await;
}

#[tokio::test]
async fn every_mount_forbids_set_user_id_and_what_is_the_hosts_is_read_only() {
    let script = r"
for line in open('/proc/self/mountinfo'):
    fields = line.split()
    point, options = fields[4], fields[5].split(',')
    writable = point in ('/workspace', '/tmp', '/dev/shm', '/dev/pts', '/proc')
    if 'nosuid' not in options: print('suid', point)
    if 'nodev' not in options and not point.startswith(('/dev', '/proc/')): print('dev', point)
    if 'ro' not in options and not writable: print('rw', point)
";
    everyone_gets(script, "").await;
}

#[tokio::test]
async fn the_hosts_sockets_cannot_be_reached() {
    let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = tcp.local_addr().unwrap().port();
    let name = format!("hotcell-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let _abstract = UnixListener::bind_addr(&address).unwrap();
    let script = format!(
        r"
import socket
def connect(family, address):
    with socket.socket(family, socket.SOCK_STREAM) as s:
        s.settimeout(20)
        s.connect(address)
        return 'connected'
print(attempt(connect, socket.AF_INET, ('127.0.0.1', {port})))
print(attempt(connect, socket.AF_UNIX, b'\0{name}'))
print(attempt(connect, socket.AF_INET, ('1.1.1.1', 53)), attempt(connect, socket.AF_INET, ('169.254.169.254', 80)))
print('{name}' in open('/proc/net/unix').read())
print([i[1] for i in socket.if_nameindex()], [line.split(':')[0].strip() for line in open('/proc/net/dev') if ':' in line])
print(len(open('/proc/net/route').readlines()))
"
    );
    everyone_gets(
        &script,
        "ECONNREFUSED\nECONNREFUSED\nENETUNREACH ENETUNREACH\nFalse\n['lo'] ['lo']\n1\n",
    )
    .await;
    tcp.set_nonblocking(true).unwrap();
    assert!(tcp.accept().is_err(), "somebody connected");
}

#[tokio::test]
async fn the_hosts_processes_cannot_be_seen_or_signalled() {
    let mut victim = Victim(Command::new("sleep").arg("1000").spawn().unwrap());
    let script = format!(
        r"
host = ({victim}, {ours})
seen = [int(name) for name in os.listdir('/proc') if name.isdigit()]
print(len(seen) < 10, [attempt(os.kill, pid, 0) for pid in host if pid not in seen] or ['ESRCH'] * 2)
",
        victim = victim.0.id(),
        ours = std::process::id(),
    );
    by_everyone(&script, |who, ran| {
        assert!(ran.stdout.starts_with("True ['ESRCH'"), "{who:?}: {ran:?}");
        assert!(!ran.stdout.contains("None"), "{who:?}: {ran:?}");
    })
    .await;
    assert!(victim.0.try_wait().unwrap().is_none());
}

/// A process of the host that does not outlive its test.
struct Victim(std::process::Child);

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn the_hosts_shared_memory_and_queues_are_not_there() {
    // Made by a process of the host that takes them away again when its stdin ends.
    let key = 0x4854_0000 | (std::process::id() & 0xffff);
    let host = format!(
        "import ctypes, sys\n\
         libc = ctypes.CDLL(None)\n\
         segment = libc.shmget({key}, 4096, 0o1666)\n\
         print(segment >= 0, flush=True)\n\
         sys.stdin.read()\n\
         libc.shmctl(segment, 0, None)\n"
    );
    let mut child = Command::new("python3")
        .args(["-c", &host])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    let mut reader = std::io::BufReader::new(child.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut reader, &mut said).unwrap();
    assert_eq!(said, "True\n");
    let script = format!(
        r"
print(call({shmget}, {key}, 0, 0), call({semget}, {key}, 0, 0), call({msgget}, {key}, 0))
print([len(open('/proc/sysvipc/' + name).readlines()) for name in ('shm', 'sem', 'msg')])
",
        shmget = libc::SYS_shmget,
        semget = libc::SYS_semget,
        msgget = libc::SYS_msgget,
    );
    everyone_gets(&script, "ENOENT ENOENT ENOENT\n[1, 1, 1]\n").await;
    child.stdin.take().unwrap().flush().unwrap();
    assert!(child.wait().unwrap().success());
}

#[tokio::test]
async fn descriptors_that_are_passed_around_are_the_containers_own() {
    let script = r"
import array, socket
ours, theirs = socket.socketpair()
pid = os.fork()
if pid == 0:
    fd = os.open('/etc/hostname', os.O_RDONLY)
    theirs.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [fd, 0, 1]))])
    os._exit(0)
_, passed, _, _ = ours.recvmsg(1, socket.CMSG_SPACE(12))
fds = array.array('i', passed[0][2])
print(os.readlink(f'/proc/self/fd/{fds[0]}'))
for fd in os.listdir('/proc/self/fd'):
    target = attempt(os.readlink, f'/proc/self/fd/{fd}')
    if not target.startswith(('pipe:', 'socket:', '/etc/hostname', '/proc', 'ENOENT')): print(target)
";
    everyone_gets(script, "/etc/hostname\n").await;
}

#[tokio::test]
async fn the_container_has_its_own_name_and_keeps_it() {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let script = format!(
        r"
print(os.uname().nodename == {host:?}, os.uname().nodename == open('/etc/hostname').read().strip())
import socket
print(attempt(socket.sethostname, 'other'), call({domain}, b'x', 1))
",
        host = host.trim(),
        domain = libc::SYS_setdomainname,
    );
    everyone_gets(&script, "False True\nEPERM EPERM\n").await;
}

/// The program of a container's agent, as the host sees what runs there.
async fn agent_program(container: &TestContainer) -> Vec<u8> {
    let ran = container.sh("readlink /proc/self/ns/pid").await;
    let is_init = |pid: &u32| {
        let namespace = std::fs::read_link(format!("/proc/{pid}/ns/pid"));
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let mut numbers = status.lines().filter(|line| line.starts_with("NSpid:"));
        namespace.is_ok_and(|name| name.to_str() == Some(ran.stdout.trim()))
            && numbers.any(|line| line.ends_with("\t1"))
    };
    let init = support::pids().into_iter().find(is_init);
    let init = init.expect("the container's first process is on this host");
    std::fs::read(format!("/proc/{init}/exe")).expect("its program can be read")
}

#[tokio::test]
async fn the_agents_program_cannot_be_changed() {
    // What an attempt looks like if it were allowed: the number of a descriptor.
    let script = r"
own = f'/tmp/own-{os.getuid()}'
open(own, 'w').close()
print(all(isinstance(attempt(os.open, own, flags), int) for flags in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR | os.O_TRUNC)))
for path in ('/proc/1/exe', f'/proc/{os.getppid()}/exe', '/proc/1/mem'):
    for flags in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR | os.O_TRUNC):
        answer = attempt(os.open, path, flags)
        if answer not in ('EACCES', 'EPERM', 'EISDIR'): print(path, flags, answer)
print(attempt(os.execv, '/proc/1/exe', ['x']))
";
    everyone_gets(script, "True\nEACCES\n").await;
    // The next container's agent is what it was, and so is the one that was attacked.
    let (attacked, next) = (TestContainer::new().await, TestContainer::new().await);
    attacked.run(&attack(script)).await;
    for container in [attacked, next] {
        let program = agent_program(&container).await;
        assert!(program == hotcell_agent_image::AGENT, "another program");
        container.answers().await;
        container.remove().await;
    }
}

#[tokio::test]
async fn one_container_sees_nothing_of_another() {
    let (one, two) = (TestContainer::new().await, TestContainer::new().await);
    let secret = "print('listening', flush=True)\n\
         import socket\n\
         s = socket.socket(); s.bind(('127.0.0.1', 7777)); s.listen()\n\
         u = socket.socket(socket.AF_UNIX); u.bind(b'\\0hidden'); u.listen()\n\
         open('/workspace/secret', 'w').write('x'); open('/tmp/secret', 'w').write('x')\n\
         print('ready', flush=True)\ntime.sleep(1000)";
    let running = one.begin_until(secret, "ready").await;
    let script = r"
import socket
print(os.listdir('/workspace'), os.listdir('/tmp'), os.listdir('/dev/shm'))
print(attempt(socket.create_connection, ('127.0.0.1', 7777)))
print(attempt(socket.socket(socket.AF_UNIX).connect, b'\0hidden'))
";
    let ran = two.run(&attack(script)).await;
    assert_eq!(
        ran.stdout, "[] [] []\nECONNREFUSED\nECONNREFUSED\n",
        "{ran:?}"
    );
    drop(running);
    one.remove().await;
    two.answers().await;
    two.remove().await;
}
