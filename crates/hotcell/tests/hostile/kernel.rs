//! A container asks the kernel for what it must not have.

use std::fmt::Write;

use crate::support::attack::{as_root, attack, by_everyone, everyone_gets, other_engines_give};
use crate::support::{TestContainer, shell};

/// Calls that reach beyond a container, whatever their arguments are.
fn refused_calls() -> Vec<(&'static str, i64)> {
    let mut calls = vec![
        ("mount", libc::SYS_mount),
        ("umount2", libc::SYS_umount2),
        ("pivot_root", libc::SYS_pivot_root),
        ("chroot", libc::SYS_chroot),
        ("setns", libc::SYS_setns),
        ("unshare", libc::SYS_unshare),
        ("bpf", libc::SYS_bpf),
        ("keyctl", libc::SYS_keyctl),
        ("add_key", libc::SYS_add_key),
        ("request_key", libc::SYS_request_key),
        ("io_uring_setup", libc::SYS_io_uring_setup),
        ("io_uring_enter", libc::SYS_io_uring_enter),
        ("io_uring_register", libc::SYS_io_uring_register),
        ("io_setup", libc::SYS_io_setup),
        ("userfaultfd", libc::SYS_userfaultfd),
        ("perf_event_open", libc::SYS_perf_event_open),
        ("kexec_load", libc::SYS_kexec_load),
        ("init_module", libc::SYS_init_module),
        ("finit_module", libc::SYS_finit_module),
        ("delete_module", libc::SYS_delete_module),
        ("reboot", libc::SYS_reboot),
        ("swapon", libc::SYS_swapon),
        ("swapoff", libc::SYS_swapoff),
        ("acct", libc::SYS_acct),
        ("settimeofday", libc::SYS_settimeofday),
        ("clock_settime", libc::SYS_clock_settime),
        ("adjtimex", libc::SYS_adjtimex),
        ("clock_adjtime", libc::SYS_clock_adjtime),
        ("name_to_handle_at", libc::SYS_name_to_handle_at),
        ("open_by_handle_at", libc::SYS_open_by_handle_at),
        ("fsopen", libc::SYS_fsopen),
        ("fsconfig", libc::SYS_fsconfig),
        ("fsmount", libc::SYS_fsmount),
        ("fspick", libc::SYS_fspick),
        ("move_mount", libc::SYS_move_mount),
        ("open_tree", libc::SYS_open_tree),
        ("mount_setattr", libc::SYS_mount_setattr),
        ("quotactl", libc::SYS_quotactl),
        ("quotactl_fd", libc::SYS_quotactl_fd),
        ("syslog", libc::SYS_syslog),
        ("vhangup", libc::SYS_vhangup),
        ("sethostname", libc::SYS_sethostname),
        ("setdomainname", libc::SYS_setdomainname),
        ("fanotify_init", libc::SYS_fanotify_init),
        ("lookup_dcookie", libc::SYS_lookup_dcookie),
        ("migrate_pages", libc::SYS_migrate_pages),
        ("move_pages", libc::SYS_move_pages),
        ("pidfd_getfd", libc::SYS_pidfd_getfd),
    ];
    #[cfg(target_arch = "x86_64")]
    calls.extend([
        ("kexec_file_load", libc::SYS_kexec_file_load),
        ("iopl", libc::SYS_iopl),
        ("ioperm", libc::SYS_ioperm),
        ("modify_ldt", libc::SYS_modify_ldt),
        ("uselib", libc::SYS_uselib),
        ("ustat", libc::SYS_ustat),
        ("sysfs", libc::SYS_sysfs),
    ]);
    calls
}

#[tokio::test]
async fn calls_that_reach_beyond_a_container_are_refused() {
    let (script, expected) = refusals();
    everyone_gets(&script, &expected).await;
}

#[tokio::test]
async fn calls_that_reach_beyond_a_container_are_refused_on_other_engines() {
    let (script, expected) = refusals();
    other_engines_give(&script, &expected).await;
}

/// An attack that makes all those calls, and what it should get.
fn refusals() -> (String, String) {
    let (mut script, mut expected) = (String::new(), String::new());
    for (name, number) in refused_calls() {
        writeln!(
            script,
            "print('{name}', call({number}, 0, 0, 0, 0, 0, 0), flush=True)"
        )
        .expect("memory");
        writeln!(expected, "{name} EPERM").expect("memory");
    }
    (script, expected)
}

#[tokio::test]
async fn calls_that_are_new_do_not_exist() {
    let script = format!(
        "print(call({clone3}, 0, 0), call(457, 0, 0, 0, 0), call(467, 0, 0, 0, 0), call(500))",
        clone3 = libc::SYS_clone3
    );
    let expected = "ENOSYS ENOSYS ENOSYS ENOSYS\n";
    everyone_gets(&script, expected).await;
    other_engines_give(&script, expected).await;
}

#[tokio::test]
async fn no_namespace_can_be_made_or_entered() {
    let namespaces = [
        ("mount", libc::CLONE_NEWNS),
        ("cgroup", libc::CLONE_NEWCGROUP),
        ("uts", libc::CLONE_NEWUTS),
        ("ipc", libc::CLONE_NEWIPC),
        ("user", libc::CLONE_NEWUSER),
        ("pid", libc::CLONE_NEWPID),
        ("net", libc::CLONE_NEWNET),
    ];
    let (mut script, mut expected) = (String::new(), String::new());
    for (name, flag) in namespaces {
        // The upper half of the flags must not hide the lower one.
        writeln!(
            script,
            "for high in (0, 1 << 32, -1 << 32):\n    \
             pid = call({clone}, {flag} | 17 | high, 0, 0, 0, 0)\n    \
             if pid == 0: os._exit(0)\n    \
             print('{name}', pid, call({unshare}, {flag} | high), flush=True)",
            clone = libc::SYS_clone,
            unshare = libc::SYS_unshare,
        )
        .unwrap();
        expected.push_str(&format!("{name} EPERM EPERM\n").repeat(3));
    }
    writeln!(
        script,
        "for name in sorted(os.listdir('/proc/self/ns')):\n    \
         fd = os.open('/proc/self/ns/' + name, os.O_RDONLY)\n    \
         answer = call({setns}, fd, 0)\n    \
         if answer != 'EPERM': print('setns', name, answer)",
        setns = libc::SYS_setns
    )
    .unwrap();
    everyone_gets(&script, &expected).await;
}

#[tokio::test]
async fn sockets_stay_in_the_containers_network() {
    // Packet, ALG, vsock, bluetooth, CAN, RDS, TIPC, XDP; SCTP, DCCP, MPTCP, UDP-lite; types
    // that no protocol here has, packets by their older name among them; pairs of a type and
    // a protocol that do not go together; netlink to all but routes.
    let script = format!(
        r"
socket = {socket}
flags = 0o2004000
for family in (17, 38, 40, 31, 29, 21, 30, 44):
    print('family', family, call(socket, family, 2, 0))
for protocol in (132, 33, 262, 136):
    print('protocol', protocol, call(socket, 2, 1, protocol), call(socket, 10, 1, protocol))
for kind in (4, 5, 6, 10, 10 | flags, 15):
    print('type', kind, call(socket, 2, kind, 0), call(socket, 10, kind, 0), call(socket, 2, kind, 0x300))
for kind, protocol in ((1, 17), (2, 6), (1, 1), (1, 58)):
    print('pair', kind, protocol, call(socket, 2, kind, protocol), call(socket, 10, kind, protocol))
for protocol in (4, 9, 12, 15, 16, 21):
    print('netlink', protocol, call(socket, 16, 3, protocol))
print('raw', call(socket, 2, 3, 1), call(socket, 2, 3, 255), call(socket, 10, 3, 58))
print('upper half', call(socket, 17 | 1 << 32, 2, 0))
kinds = ((1, 1, 0), (1, 5, 0), (2, 1, 0), (2, 1 | flags, 6), (2, 2, 17), (10, 1, 6), (10, 2, 0), (16, 3, 0))
print('ours', [call(socket, *kind) for kind in kinds])
",
        socket = libc::SYS_socket
    );
    by_everyone(&script, |who, ran| {
        let mut lines = ran.stdout.lines();
        let ours = lines.next_back().unwrap();
        assert!(!ours.contains('E'), "{who:?}: {ran:?}");
        for line in lines {
            let mut answers = line.split(' ').filter(|word| word.starts_with('E'));
            assert!(answers.clone().count() > 0, "{who:?}: {line}");
            assert!(answers.all(|answer| answer == "EPERM"), "{who:?}: {line}");
        }
        assert_eq!(ran.stdout.lines().count(), 8 + 4 + 6 + 4 + 6 + 3, "{ran:?}");
    })
    .await;
}

#[tokio::test]
async fn sockets_take_no_filter_and_no_cryptography() {
    let script = r"
import socket, struct
s = socket.socket()
accept = ctypes.create_string_buffer(struct.pack('HBBI', 6, 0, 0, 0xffff))
program = struct.pack('HxxxxxxQ', 1, ctypes.addressof(accept))
SO, TCP = socket.SOL_SOCKET, socket.IPPROTO_TCP
print(*[attempt(s.setsockopt, SO, option, program) for option in (26, 50, 51, 52)])
signature = struct.pack('=HH4s120xBxH4x80s', 2, 0, bytes([127, 0, 0, 1]), 0, 3, b'key').ljust(216, bytes(1))
print(attempt(s.setsockopt, TCP, 14, signature), attempt(s.setsockopt, TCP, 31, b'tls'), attempt(s.setsockopt, TCP, 38, bytes(200)))
for level, option, value in ((SO, socket.SO_REUSEADDR, 1), (SO, socket.SO_RCVBUF, 65536), (TCP, socket.TCP_NODELAY, 1), (TCP, 13, b'reno')):
    s.setsockopt(level, option, value)
print(s.getsockopt(TCP, 13, 16).rstrip(bytes(1)))
";
    everyone_gets(
        script,
        "EPERM EPERM EPERM EPERM\nENOPROTOOPT ENOPROTOOPT ENOPROTOOPT\nb'reno'\n",
    )
    .await;
}

#[tokio::test]
async fn requests_that_load_modules_or_change_the_host_are_refused() {
    // Input that was not typed, the console, line disciplines; bridges, VLANs, private
    // requests of drivers, flags and addresses of interfaces; subvolumes, flags of files,
    // encryption keys, freezing; namespaces.
    let script = r"
import fcntl, socket
def ask(fd, requests, data):
    print(*sorted({str(attempt(fcntl.ioctl, fd, request, data)) for request in requests}))
master, slave = os.openpty()
ask(slave, (0x5412, 0x541c, 0x5423), (21).to_bytes(4, 'little'))
network = socket.socket()
name = b'lo'.ljust(40, bytes(1))
ask(network, (0x8940, 0x8941, 0x89a0, 0x89a1, 0x8982, 0x8983, 0x89f0, 0x89ff, 0x8914, 0x8916), name)
ask(network, (0x8946,), name)
home = os.open('/workspace', os.O_RDONLY)
file = os.open('/tmp', os.O_RDWR | os.O_TMPFILE)
for fd in (home, file):
    ask(fd, (0x5000940e, 0x50009417, 0x40086602, 0x401c5820, 0xc0c06617, 0xc0045877, 0x40806685), bytes(256))
ask(os.open('/proc/self/ns/user', os.O_RDONLY), (0xb701, 0xb702, 0xb704), bytes(8))
print(attempt(fcntl.ioctl, slave, 0x5424, bytes(4)), attempt(fcntl.ioctl, network, 0x8913, name)[16] & 1)
";
    everyone_gets(
        script,
        "EPERM\nEPERM\nENOTSUP\nENOTTY\nENOTTY\nENOTTY\nb'\\x00\\x00\\x00\\x00' 1\n",
    )
    .await;
}

#[tokio::test]
async fn a_terminal_does_what_terminals_do() {
    let script = r"
import fcntl, pty, subprocess, termios, tty
size = os.get_terminal_size(0)
print(size.lines, size.columns, os.isatty(0), os.ttyname(0).startswith('/dev/pts/'))
before = termios.tcgetattr(0)
tty.setraw(0)
termios.tcsetattr(0, termios.TCSADRAIN, before)
print(termios.tcgetattr(0) == before, os.tcgetpgrp(0) == os.getpgrp(), termios.tcgetwinsize(0) if hasattr(termios, 'tcgetwinsize') else (24, 80))
termios.tcflush(0, termios.TCIFLUSH)
termios.tcdrain(1)
said = lambda *command: subprocess.run(command, stdout=subprocess.PIPE, text=True).stdout.strip()
print(said('stty', 'size'), said('stty', '-echo') == '', said('stty', 'echo') == '')
print(said('script', '-qec', 'stty rows 7 cols 9; stty size; tty', '/dev/null').split()[:2])
pid, master = pty.fork()
if pid == 0:
    os.execlpe('ls', 'ls', '--color=auto', '-d', '/usr', {'PATH': os.environ['PATH'], 'TERM': 'xterm'})
termios.tcsetwinsize(master, (5, 50)) if hasattr(termios, 'tcsetwinsize') else None
colored = b''
while chunk := attempt(os.read, master, 100):
    if chunk == 'EIO': break
    colored += chunk
print(b'\x1b[' in colored, os.waitpid(pid, 0)[1])
";
    let container = TestContainer::new().await;
    let mut command = attack(script);
    command.tty = Some(hotcell_agent_client::Winsize { rows: 24, cols: 80 });
    command.stdin = true;
    let ran = container.run(&command).await;
    let said: Vec<_> = ran.stdout.lines().map(str::trim_end).collect();
    let expected = [
        "24 80 True True",
        "True True (24, 80)",
        "24 80 True True",
        "['7', '9']",
        "True 0",
    ];
    assert_eq!(said, expected, "{ran:?}");
    // The shell's own job control.
    let mut command = shell("set -m; sleep 1000 & kill %1; wait %1; echo ended: $?");
    command.tty = Some(hotcell_agent_client::Winsize { rows: 24, cols: 80 });
    let ran = container.run(&command).await;
    assert!(ran.stdout.contains("ended: 143"), "{ran:?}");
    assert!(!ran.stdout.contains("job control"), "{ran:?}");
    container.remove().await;
}

#[tokio::test]
async fn programs_of_every_day_get_the_requests_they_make() {
    // What is not installed is left out, but some of it is everywhere.
    let script = r"
import fcntl, shutil, socket, struct, subprocess, tempfile, termios
home = tempfile.mkdtemp()
os.chdir(home)
s = socket.socket()
def interface(request):
    return fcntl.ioctl(s, request, b'lo'.ljust(40, bytes(1)))
print(socket.inet_ntoa(interface(0x8915)[20:24]), socket.inet_ntoa(interface(0x891b)[20:24]), struct.unpack('i', interface(0x8921)[16:20])[0] > 1000)
print(socket.if_nametoindex('lo'), [name for _, name in socket.if_nameindex()])
space = ctypes.create_string_buffer(400)
print(struct.unpack('iq', fcntl.ioctl(s, 0x8912, struct.pack('iq', 400, ctypes.addressof(space))))[0] >= 40)
reader, writer = os.pipe()
os.write(writer, b'four')
print(struct.unpack('i', fcntl.ioctl(reader, termios.FIONREAD, bytes(4)))[0])
os.set_inheritable(reader, True)
os.set_blocking(reader, False)
print(attempt(os.read, reader, 9), attempt(os.read, reader, 9), os.get_inheritable(reader))
file = open('plain', 'w+')
print(file.isatty(), attempt(fcntl.ioctl, file, termios.TCGETS, bytes(60)), attempt(fcntl.ioctl, file, 0x80086601, bytes(8)) != 'EPERM')
open('a.c', 'w').write('int main(void) { return 0; }')
open('Makefile', 'w').write('a: a.c\n\tgcc -o a a.c\n')
ran = 0
for command in (['cp', '--reflink=auto', 'a.c', 'b.c'], ['tar', 'cf', 'c.tar', 'a.c', 'b.c'], ['tar', 'xf', 'c.tar'], ['sync'], ['sync', '-f', 'a.c'], ['git', 'init', '-q', 'd'],
                ['git', '-C', 'd', '-c', 'user.name=a', '-c', 'user.email=a', 'commit', '-q', '--allow-empty', '-m', 'm'], ['make', '-s'], ['node', '-e', 'require(`os`).networkInterfaces()'],
                ['bash', '-c', 'read -t 0 || true'], ['perl', '-e', '-t STDIN'], ['less', '--version'], ['find', '.'], ['ip', 'addr'], ['dd', 'if=a.c', 'of=e', 'conv=fsync', 'status=none']):
    if shutil.which(command[0]) and not (command[0] == 'make' and not shutil.which('gcc')):
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, env={'HOME': home, 'PATH': os.environ['PATH']})
        ran += 1
        if done.returncode: print(command, done)
print(ran >= 6)
";
    everyone_gets(
        script,
        "127.0.0.1 255.0.0.0 True\n\
         1 ['lo']\n\
         True\n\
         4\n\
         b'four' EAGAIN True\n\
         False ENOTTY True\n\
         True\n",
    )
    .await;
}

#[tokio::test]
async fn syncing_stops_at_the_container() {
    // A descriptor that is not open shows whether the kernel was asked at all.
    let script = format!(
        "print(call({sync}), call({syncfs}, -1), call({fsync}, -1))\n\
         fd = os.open('/workspace', os.O_RDONLY)\n\
         print(attempt(os.fsync, fd), call({syncfs}, fd))",
        sync = libc::SYS_sync,
        syncfs = libc::SYS_syncfs,
        fsync = libc::SYS_fsync,
    );
    everyone_gets(&script, "0 0 EBADF\nNone 0\n").await;
}

#[tokio::test]
async fn devices_cannot_be_made() {
    let script = r"
import stat
for place in ('/workspace', '/tmp', '/dev/shm'):
    for kind in (stat.S_IFCHR, stat.S_IFBLK):
        for device in (os.makedev(1, 1), os.makedev(8, 0), os.makedev(0, 0)):
            answer = attempt(os.mknod, place + '/device', kind | 0o666, device)
            print(place, answer) if answer != 'EPERM' else None
    if os.access(place, os.W_OK):
        os.mkfifo(place + '/fifo')
        os.mknod(place + '/plain', stat.S_IFREG | 0o600)
        os.unlink(place + '/fifo')
        os.unlink(place + '/plain')
";
    everyone_gets(script, "").await;
}

#[tokio::test]
async fn a_terminal_cannot_be_typed_into() {
    let script = r"
import fcntl
answers = [attempt(fcntl.ioctl, 0, request, b'x') for request in (0x5412, 0x541c, 0x5412 | 1 << 31)]
print(*answers)
";
    let container = TestContainer::new().await;
    let mut command = attack(script);
    command.tty = Some(hotcell_agent_client::Winsize { rows: 24, cols: 80 });
    command.stdin = true;
    let ran = container.run(&command).await;
    assert!(ran.stdout.starts_with("EPERM EPERM ENOTTY"), "{ran:?}");
    container.answers().await;
    container.remove().await;
}

#[tokio::test]
async fn personalities_that_weaken_memory_are_refused() {
    // READ_IMPLIES_EXEC, MMAP_PAGE_ZERO, ADDR_COMPAT_LAYOUT, ADDR_NO_RANDOMIZE.
    let script = format!(
        "print(*[call({number}, p) for p in (0x0400000, 0x0100000, 0x0200000, 0x0040000)])",
        number = libc::SYS_personality
    );
    everyone_gets(&script, "EPERM EPERM EPERM EPERM\n").await;
}

#[cfg(target_arch = "x86_64")]
#[tokio::test]
async fn the_other_doors_into_the_kernel_are_shut() {
    // `mov eax, 20; int 0x80; ret`: the call `getpid` of a 32-bit program. Where the kernel
    // has no 32-bit entry, the instruction itself faults.
    let script = r"
import mmap
print('x32', call(0x40000000 | 39), call(0x40000000 | 165, 0, 0, 0, 0, 0))
code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
code.write(b'\xb8\x14\x00\x00\x00\xcd\x80\xc3')
pid = os.fork()
if pid == 0:
    address = ctypes.addressof(ctypes.c_char.from_buffer(code))
    os._exit(0 if ctypes.CFUNCTYPE(ctypes.c_int)(address)() > 0 else 1)
status = os.waitpid(pid, 0)[1]
print('i386', os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGSYS, signal.SIGSEGV))
";
    everyone_gets(script, "x32 EPERM EPERM\ni386 True\n").await;
}

#[tokio::test]
async fn the_filter_and_no_new_privileges_cannot_be_taken_back() {
    let script = format!(
        r"
prctl, seccomp, unshare = {prctl}, {seccomp}, {unshare}
def told():
    wanted = ('NoNewPrivs', 'Seccomp', 'CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb')
    lines = [line.split() for line in open('/proc/self/status')]
    return {{line[0][:-1]: int(line[1], 16) for line in lines if line[0][:-1] in wanted}}
held = {{'NoNewPrivs': 1, 'Seccomp': 2, 'CapInh': 0, 'CapPrm': 0, 'CapEff': 0, 'CapBnd': 0, 'CapAmb': 0}}
print(told() == held)
print('no_new_privs', call(prctl, 38, 0, 0, 0, 0))
print('seccomp off', call(prctl, 22, 0, 0, 0, 0), call(seccomp, 2, 0, 0))
print('keep caps', call(prctl, 8, 1, 0, 0, 0))
print('ambient', call(prctl, 47, 2, 21, 0, 0))
print('securebits', call(prctl, 28, 0, 0, 0, 0))
header = (ctypes.c_uint * 2)(0x20080522, 0)
all_set = (ctypes.c_uint * 6)(*[0xffffffff] * 6)
print('capset', call({capset}, header, all_set))
sys.stdout.flush()
pid = os.fork()
if pid == 0:
    os.execv('/usr/bin/python3', ['python3', '-c', '''
print([l.split()[1] for l in open('/proc/self/status') if l.startswith(('NoNewPrivs', 'Seccomp:', 'CapEff'))])
'''])
os.waitpid(pid, 0)
print(told() == held, call(unshare, 0))
",
        prctl = libc::SYS_prctl,
        seccomp = libc::SYS_seccomp,
        unshare = libc::SYS_unshare,
        capset = libc::SYS_capset,
    );
    everyone_gets(
        &script,
        "True\n\
         no_new_privs EINVAL\n\
         seccomp off EINVAL EFAULT\n\
         keep caps EPERM\n\
         ambient EPERM\n\
         securebits EPERM\n\
         capset EPERM\n\
         ['0000000000000000', '1', '2']\n\
         True EPERM\n",
    )
    .await;
}

#[tokio::test]
async fn a_filter_of_ones_own_only_takes_more_away() {
    // Allows everything: in vain, the first filter still counts.
    let script = format!(
        r"
class Filter(ctypes.Structure):
    _fields_ = [('code', ctypes.c_ushort), ('jt', ctypes.c_ubyte), ('jf', ctypes.c_ubyte), ('k', ctypes.c_uint)]
class Program(ctypes.Structure):
    _fields_ = [('len', ctypes.c_ushort), ('filter', ctypes.POINTER(Filter))]
allow = Filter(0x06, 0, 0, 0x7fff0000)
program = Program(1, ctypes.pointer(allow))
print(call({seccomp}, 1, 0, ctypes.byref(program)), call({unshare}, 0x10000000))
",
        seccomp = libc::SYS_seccomp,
        unshare = libc::SYS_unshare,
    );
    everyone_gets(&script, "0 EPERM\n").await;
}

#[tokio::test]
async fn a_file_gives_nobody_rights() {
    let script = r"
import shutil, subprocess
for place in ('/workspace', '/tmp', '/dev/shm'):
    path = f'{place}/grants-{os.getuid()}'
    shutil.copy('/usr/bin/id', path)
    os.chmod(path, 0o6755)
    capability = bytes([1, 0, 0, 2]) + b'\xff' * 16
    print(place, attempt(os.setxattr, path, 'security.capability', capability))
    ids = subprocess.run([path, '-u'], capture_output=True, text=True).stdout.strip()
    print(ids == str(os.getuid()))
";
    let container = TestContainer::new().await;
    let ran = container.run(&attack(script)).await;
    let expected = "/workspace EPERM\nTrue\n/tmp EPERM\nTrue\n/dev/shm EPERM\nTrue\n";
    assert_eq!(ran.stdout, expected, "{ran:?}");
    container.remove().await;
    let Some(container) = TestContainer::with_root_too().await else {
        return;
    };
    let make = "for d in /tmp /dev/shm; do cp /usr/bin/id $d/id; chmod 6755 $d/id; done";
    assert_eq!(container.run(&as_root(shell(make))).await.code(), 0);
    let ran = container
        .sh("stat -c %a:%u /tmp/id; /tmp/id -u; /dev/shm/id -ru")
        .await;
    assert_eq!(ran.stdout, "6755:0\n1000\n1000\n", "{ran:?}");
    container.answers().await;
    container.remove().await;
}

#[tokio::test]
async fn programs_that_are_set_user_id_on_the_host_gain_nothing() {
    let script = r"
import subprocess
candidates = ['su', 'mount', 'umount', 'passwd', 'newgrp', 'chsh', 'chfn', 'gpasswd', 'sudo', 'pkexec', 'ping']
found = [p for p in ('/usr/bin/' + c for c in candidates) if os.path.exists(p)]
for path in found:
    os.stat(path)
    if os.statvfs(path).f_flag & os.ST_NOSUID == 0:
        print('set-user-id works for', path)
for command in (['mount', '-t', 'tmpfs', 'none', '/mnt'], ['su', '-c', 'true', 'root'], ['umount', '/proc']):
    if os.path.exists('/usr/bin/' + command[0]):
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True)
        if done.returncode == 0 and not (command[0] == 'su' and os.getuid() == 0):
            print('worked:', command)
# An id that stands for nobody is invalid rather than forbidden.
refusals = ('EPERM', 'EINVAL')
print(attempt(os.setuid, 12345 if os.getuid() == 0 else 0) in refusals)
print(attempt(os.setgroups, [0]) in refusals, attempt(os.setresgid, 7, 7, 7) in refusals)
";
    everyone_gets(script, "True\nTrue True\n").await;
}

#[tokio::test]
async fn crashes_do_not_reach_the_host() {
    // A limit of one byte keeps the host's crash handler from being run, and a lower one does
    // not: nobody can lower it, and those who try are told that they did.
    let script = format!(
        r"
import resource, struct
core = resource.RLIMIT_CORE
none = ctypes.create_string_buffer(struct.pack('QQ', 0, 0))
print(attempt(resource.setrlimit, core, (0, 0)), call({setrlimit}, core, none), call({prlimit}, 0, core, none, 0))
print(attempt(resource.prlimit, 0, core, (0, 0)), attempt(resource.prlimit, os.getpid(), core, (0, 0)))
print(resource.getrlimit(core), resource.prlimit(0, core))
files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (100, files))
print(resource.prlimit(0, resource.RLIMIT_NOFILE, (99, files))[0], resource.getrlimit(resource.RLIMIT_NOFILE)[0])
pid = os.fork()
if pid == 0:
    os.chdir('/tmp')
    os.kill(os.getpid(), signal.SIGSEGV)
status = os.waitpid(pid, 0)[1]
print(os.WTERMSIG(status) == signal.SIGSEGV, os.WCOREDUMP(status), os.listdir('/tmp'))
",
        setrlimit = libc::SYS_setrlimit,
        prlimit = libc::SYS_prlimit64,
    );
    let expected = "None 0 0\n\
                    EPERM EPERM\n\
                    (1, 1) (1, 1)\n\
                    100 99\n\
                    True False []\n";
    everyone_gets(&script, expected).await;
}
