//! What a container sees and what it can do.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests panic when the setup fails"
)]

use std::fs;

use crate::support::{TestContainer, is_root, launcher, run};

/// Mounts that may be writable, because their files belong to the container.
const WRITABLE: [&str; 5] = ["/workspace", "/tmp", "/dev/shm", "/dev/pts", "/proc"];

/// Device nodes are writable even on a read-only mount.
const DEVICES: [&str; 6] = [
    "/dev/full",
    "/dev/null",
    "/dev/random",
    "/dev/tty",
    "/dev/urandom",
    "/dev/zero",
];

fn field(status: &str, name: &str) -> String {
    let line = status
        .lines()
        .find(|line| line.starts_with(&format!("{name}:")))
        .unwrap();
    line.split_whitespace()
        .skip(1)
        .collect::<Vec<_>>()
        .join(" ")
}

#[test]
fn init_has_no_privilege_and_cannot_get_one() {
    let status = run("cat /proc/1/status >&3");
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(field(&status, set), "0000000000000000", "{set}");
    }
    assert_eq!(field(&status, "NoNewPrivs"), "1");
    assert_eq!(field(&status, "Seccomp"), "2");
    assert_eq!(field(&status, "Uid"), "1000 1000 1000 1000");
    assert_eq!(field(&status, "Gid"), "1000 1000 1000 1000");
    assert_eq!(field(&status, "Umask"), "0022");
    if is_root() {
        assert_eq!(field(&status, "Groups"), "");
    }
}

#[test]
fn signals_are_as_a_program_expects_them() {
    let status = run("cat /proc/self/status >&3");
    assert_eq!(field(&status, "SigBlk"), "0000000000000000");
    assert_eq!(field(&status, "SigIgn"), "0000000000000000");
}

#[test]
fn init_may_become_another_user_only_if_that_was_allowed() {
    if !is_root() {
        let reason = "an ordinary user maps one id only";
        hotcell_testkit::skip(hotcell_testkit::Need::Root, reason);
        return;
    }
    let mut container = TestContainer::new("cat /proc/1/status >&3");
    container.spec.allow_root = true;
    let status = container.output(&launcher());
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert_eq!(field(&status, set), "00000000000000e0", "{set}");
    }
    assert_eq!(field(&status, "CapBnd"), "0000000000000000");
    assert_eq!(field(&status, "Uid"), "1000 1000 1000 1000");
    assert_eq!(field(&status, "NoNewPrivs"), "1");
}

#[test]
fn every_namespace_is_its_own() {
    let names = ["cgroup", "ipc", "mnt", "net", "pid", "user", "uts"];
    let script = format!(
        "cd /proc/self/ns; for n in {}; do readlink $n >&3; done",
        names.join(" ")
    );
    let inside = run(&script);
    assert_eq!(inside.lines().count(), names.len());
    for (name, inside) in names.iter().zip(inside.lines()) {
        let outside = fs::read_link(format!("/proc/self/ns/{name}")).unwrap();
        assert_ne!(outside.to_str().unwrap(), inside, "{name}");
    }
}

#[test]
fn only_its_own_processes_are_there() {
    assert_eq!(run("echo $$ /proc/[0-9]* >&3"), "1 /proc/1\n");
}

#[test]
fn descriptors_are_exactly_those_that_were_given() {
    let script = "[ /proc/1/fd/0 -ef /dev/null ] && [ /proc/1/fd/1 -ef /dev/null ] && nulls=2; \
                  exec 1>&3; echo $nulls; ls /proc/1/fd";
    // The last one is the seccomp listener.
    assert_eq!(run(script), "2\n0\n1\n2\n3\n32\n");
}

#[test]
fn the_environment_is_exactly_what_was_given() {
    let environment = run("tr '\\0' '\\n' </proc/1/environ >&3");
    assert_eq!(environment, "PATH=/usr/bin:/bin\nHOME=/workspace\n");
}

#[test]
fn the_root_holds_nothing_of_the_host_but_its_programs() {
    let expected = [
        "bin",
        "dev",
        "etc",
        "home",
        "lib",
        "lib32",
        "lib64",
        "libx32",
        "mnt",
        "opt",
        "proc",
        "root",
        "run",
        "sbin",
        "srv",
        "sys",
        "tmp",
        "usr",
        "var",
        "workspace",
    ];
    let expected: Vec<_> = expected
        .into_iter()
        .filter(|name| !name.starts_with("lib") || fs::metadata(format!("/{name}")).is_ok())
        .collect();
    let seen = run("ls -A / >&3");
    assert_eq!(seen.lines().collect::<Vec<_>>(), expected);
    assert_eq!(
        run("ls -A /home /mnt /opt /run /srv >&3 | grep -v :"),
        "/home:\n\n/mnt:\n\n/opt:\n\n/run:\n\n/srv:\n"
    );
}

#[test]
fn accounts_and_secrets_of_the_host_are_absent() {
    let script = "for f in shadow gshadow sudoers ssh fstab machine-id; do \
                  [ -e /etc/$f ] && echo $f >&3; done; cut -d: -f1 /etc/passwd >&3";
    assert_eq!(run(script), "root\nuser\nnobody\n");
}

#[test]
fn nothing_can_be_written_but_what_is_its_own() {
    let script = "for d in / /usr /usr/bin /etc /dev /sys /home /var /run /proc/sys/kernel; do \
                  (: >$d/probe) 2>/dev/null && echo $d >&3; done; \
                  for f in /proc/sys/kernel/hostname /proc/sysrq-trigger /etc/passwd; do \
                  [ -e $f ] && (echo x >$f) 2>/dev/null && echo $f >&3; done; \
                  for d in /workspace /tmp /dev/shm /var/tmp; do : >$d/probe && echo ok $d >&3; done";
    assert_eq!(
        run(script),
        "ok /workspace\nok /tmp\nok /dev/shm\nok /var/tmp\n"
    );
}

#[test]
fn every_mount_is_read_only_or_its_own() {
    let mounts = run("cat /proc/self/mounts >&3");
    assert!(mounts.lines().count() > 20);
    for line in mounts.lines() {
        let fields: Vec<_> = line.split(' ').collect();
        let (point, options) = (fields[1], fields[3]);
        let has = |name: &str| options.split(',').any(|option| option == name);
        assert!(has("nosuid"), "{line}");
        let device = DEVICES.contains(&point);
        let masked = point.starts_with("/proc/") && fields[2] != "proc" && fields[2] != "tmpfs";
        assert!(has("ro") || device || WRITABLE.contains(&point), "{line}");
        let holds_devices = device || masked || point == "/dev" || point == "/dev/pts";
        assert!(has("nodev") || holds_devices, "{line}");
    }
}

#[test]
fn dangerous_parts_of_proc_say_nothing() {
    let script = "for f in kcore keys timer_list kallsyms kmsg interrupts; do \
                  [ -e /proc/$f ] && cat /proc/$f >&3 2>&3; done; ls -A /proc/acpi /proc/scsi >&3 2>/dev/null";
    let seen = run(script);
    assert!(
        seen.lines()
            .all(|line| line.is_empty() || line.ends_with(':') || line.starts_with("/proc/")),
        "{seen}"
    );
}

#[test]
fn there_is_a_loopback_and_no_other_interface() {
    let seen = run("tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' ' >&3; hostname >&3 2>&1");
    assert!(seen.starts_with("lo\ntest-"), "{seen}");
    let python = "import socket; s=socket.create_server((\"127.0.0.1\",0)); \
                  c=socket.create_connection(s.getsockname()); print(\"connected\")";
    assert_eq!(
        run(&format!("/usr/bin/python3 -c '{python}' >&3 2>&1")),
        "connected\n"
    );
}

#[test]
fn the_tmpfs_is_full_at_its_size() {
    let script = "head -c 8388608 /dev/zero >/tmp/big 2>/dev/null || echo full >&3; \
                  stat -c %s /tmp/big >&3";
    assert_eq!(run(script), "full\n4194304\n");
}

#[test]
fn system_calls_that_reach_the_host_are_refused() {
    let script = "unshare -U true 2>/dev/null && echo unshare >&3; \
                  mount -t tmpfs x /tmp 2>/dev/null && echo mount >&3; \
                  chroot / true 2>/dev/null && echo chroot >&3; \
                  mknod /tmp/null c 1 3 2>/dev/null && echo device >&3; \
                  mkfifo /tmp/fifo && echo fifo >&3; \
                  renice -n 5 -p 1 >/dev/null 2>&1 && echo renice >&3; \
                  prlimit --pid 1 --nofile=10 2>/dev/null && echo prlimit >&3; \
                  dmesg >/dev/null 2>&1 && echo dmesg >&3; true";
    assert_eq!(run(script), "fifo\n");
}

#[test]
fn a_terminal_can_be_opened() {
    let python = "import os,pty; a,b=pty.openpty(); print(os.ttyname(b)); os.write(b,b\"x\"); print(os.read(a,1))";
    assert_eq!(
        run(&format!("/usr/bin/python3 -c '{python}' >&3 2>&1")),
        "/dev/pts/0\nb'x'\n"
    );
}

#[test]
fn files_of_the_workspace_belong_to_the_user() {
    let container = TestContainer::new(
        "echo data >/workspace/file; stat -c %u:%g /workspace /workspace/file >&3",
    );
    assert_eq!(container.output(&launcher()), "1000:1000\n1000:1000\n");
    assert_eq!(
        fs::read_to_string(container.workspace.path().join("file")).unwrap(),
        "data\n"
    );
}
