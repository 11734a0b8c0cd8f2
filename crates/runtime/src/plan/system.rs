//! What every root gets: devices, `/proc`, `/sys`, `/tmp` and the workspace.
//!
//! Kernel files that describe or change the host are read-only, masked or absent.

use std::ffi::CStr;
use std::path::Path;

use super::builder::{Builder, InvalidSpec, Kind, MountMap, c_path, kind_of, small_tmpfs, tmpfs};
use super::{Op, attr};
use crate::spec::{DiskIds, IdMap, LaunchSpec};

const PLAIN: u64 = attr::NOSUID | attr::NODEV;
const INERT: u64 = PLAIN | attr::NOEXEC;
const EMPTY: u64 = INERT | attr::RDONLY;

/// Harmless devices that programs need.
const DEVICES: [(&CStr, &CStr); 6] = [
    (c"/dev/full", c"dev/full"),
    (c"/dev/null", c"dev/null"),
    (c"/dev/random", c"dev/random"),
    (c"/dev/tty", c"dev/tty"),
    (c"/dev/urandom", c"dev/urandom"),
    (c"/dev/zero", c"dev/zero"),
];

const DEVICE_LINKS: [(&CStr, &CStr); 5] = [
    (c"dev/fd", c"/proc/self/fd"),
    (c"dev/ptmx", c"pts/ptmx"),
    (c"dev/stderr", c"/proc/self/fd/2"),
    (c"dev/stdin", c"/proc/self/fd/0"),
    (c"dev/stdout", c"/proc/self/fd/1"),
];

/// Pseudo-terminals of one container; all containers of a host share 3072.
const TERMINALS_MAX: &CStr = c"256";

/// Limits of the container's user namespace, in `/proc/sys/user`. The kernel also counts these
/// objects for the creator of the namespace, a host user, whose own limit for the first is 128.
/// This is defence in depth, because the filter forbids to create namespaces; mount namespaces stay
/// allowed because the following steps need them.
const USER_LIMITS: [(&str, &CStr); 9] = [
    ("max_inotify_instances", c"16"),
    ("max_inotify_watches", c"8192"),
    ("max_cgroup_namespaces", c"0"),
    ("max_ipc_namespaces", c"0"),
    ("max_net_namespaces", c"0"),
    ("max_pid_namespaces", c"0"),
    ("max_time_namespaces", c"0"),
    ("max_user_namespaces", c"0"),
    ("max_uts_namespaces", c"0"),
];

/// Read-only parts of `/proc`.
const PROC_READ_ONLY: [&str; 5] = ["bus", "fs", "irq", "sys", "sysrq-trigger"];

/// Masked parts of `/proc`: they reveal the host's kernel, hardware, disks, load and keys.
pub const PROC_MASKED: [&str; 20] = [
    "acpi",
    "asound",
    "cmdline",
    "diskstats",
    "interrupts",
    "kallsyms",
    "kcore",
    "key-users",
    "keys",
    "kmsg",
    "kpagecgroup",
    "kpagecount",
    "kpageflags",
    "latency_stats",
    "partitions",
    "pressure",
    "sched_debug",
    "scsi",
    "timer_list",
    "timer_stats",
];

/// The only part of the host's `/sys` that is shown: how many CPUs there are.
const PROCESSORS: &str = "/sys/devices/system/cpu";

impl Builder {
    /// Builds `/dev` on its own filesystem, which is made read-only at the end.
    pub(super) fn devices(&mut self, spec: &LaunchSpec) {
        let name = "make the devices";
        self.mount(
            name,
            c"tmpfs",
            small_tmpfs(c"0755"),
            attr::NOSUID | attr::NOEXEC,
            c"dev",
        );
        for (source, at) in DEVICES {
            self.file(at, Vec::new());
            // This makes the host's device node read-only, not the device behind it.
            let attributes = attr::RDONLY | attr::NOSUID | attr::NOEXEC;
            self.bind(name, source.to_owned(), at.to_owned(), attributes);
        }
        self.mkdir(c"dev/pts", 0o755);
        let mut options = vec![
            (c"ptmxmode", c"0666".to_owned()),
            (c"mode", c"0620".to_owned()),
            (c"max", TERMINALS_MAX.to_owned()),
        ];
        if !matches!(spec.ids, IdMap::Single) {
            options.push((c"gid", c"5".to_owned()));
        }
        self.mount(
            "make the terminals",
            c"devpts",
            options,
            attr::NOSUID | attr::NOEXEC,
            c"dev/pts",
        );
        self.mkdir(c"dev/shm", 0o755);
        let shm = tmpfs(spec.limits.shm_bytes, c"1777");
        self.mount("make the shared memory", c"tmpfs", shm, PLAIN, c"dev/shm");
        for (path, target) in DEVICE_LINKS {
            self.symlink(path, target);
        }
        self.seal("seal the devices", c"dev", attr::RDONLY);
    }

    /// Mounts a `/proc` of the container's own processes and a nearly empty `/sys`.
    pub(super) fn kernel_filesystems(&mut self) {
        self.mount("mount /proc", c"proc", Vec::new(), INERT, c"proc");
        for (name, value) in USER_LIMITS {
            self.limit_user(name, value);
        }
        self.allow_low_ports();
        for name in PROC_READ_ONLY {
            self.protect(name);
        }
        for name in PROC_MASKED {
            self.mask(name);
        }
        self.mount("make /sys", c"tmpfs", small_tmpfs(c"0755"), INERT, c"sys");
        if kind_of(Path::new(PROCESSORS)) == Some(Kind::Directory) {
            for path in [
                c"sys/devices",
                c"sys/devices/system",
                c"sys/devices/system/cpu",
            ] {
                self.mkdir(path, 0o755);
            }
            let at = c"sys/devices/system/cpu".to_owned();
            let source = c"/sys/devices/system/cpu".to_owned();
            self.bind("show the processors", source, at, EMPTY);
        }
        self.seal("seal /sys", c"sys", attr::RDONLY);
    }

    /// Mounts `/tmp`, `/dev/shm` and the workspace.
    pub(super) fn writable_directories(&mut self, spec: &LaunchSpec) -> Result<(), InvalidSpec> {
        let tmp = tmpfs(spec.limits.tmp_bytes, c"1777");
        self.mount("make /tmp", c"tmpfs", tmp, PLAIN, c"tmp");
        self.workspace(&spec.workspace, spec.workspace_ids)
    }

    /// Attaches a host directory at `workspace`.
    pub(super) fn workspace(
        &mut self,
        directory: &Path,
        disk_ids: Option<DiskIds>,
    ) -> Result<(), InvalidSpec> {
        let (step, source) = ("open the workspace", c_path(directory)?);
        let at = c"workspace".to_owned();
        let Some(disk_ids) = disk_ids else {
            self.bind(step, source, at, PLAIN);
            return Ok(());
        };
        let map = MountMap {
            disk_ids,
            attributes: PLAIN,
            is_required: true,
        };
        self.bind_mapped(step, source, at, map);
        Ok(())
    }

    fn limit_user(&mut self, name: &str, value: &'static CStr) {
        if kind_of(&Path::new("/proc/sys/user").join(name)).is_some() {
            let path = c_path(format!("proc/sys/user/{name}")).expect("our own names hold no NUL");
            self.step("limit the user namespace", Op::Set { path, value });
        }
    }

    /// The agent listens for names on their own ports, which nobody outside can reach.
    fn allow_low_ports(&mut self) {
        let name = "net/ipv4/ip_unprivileged_port_start";
        if kind_of(&Path::new("/proc/sys").join(name)).is_some() {
            let path = c_path(format!("proc/sys/{name}")).expect("our own names hold no NUL");
            let value = c"0";
            self.step("allow low ports", Op::Set { path, value });
        }
    }

    fn protect(&mut self, name: &str) {
        if kind_of(&Path::new("/proc").join(name)).is_some() {
            let path = c_path(format!("proc/{name}")).expect("our own names hold no NUL");
            let op = Op::Cover {
                path,
                attributes: EMPTY,
            };
            self.step("protect a part of /proc", op);
        }
    }

    fn mask(&mut self, name: &str) {
        let path = c_path(format!("proc/{name}")).expect("our own names hold no NUL");
        let step = "mask a part of /proc";
        match kind_of(&Path::new("/proc").join(name)) {
            Some(Kind::Directory) => self.mount(step, c"tmpfs", small_tmpfs(c"0555"), EMPTY, &path),
            Some(Kind::File) => {
                let attributes = attr::RDONLY | attr::NOSUID | attr::NOEXEC;
                self.bind(step, c"/dev/null".to_owned(), path, attributes);
            }
            None => {}
        }
    }
}
