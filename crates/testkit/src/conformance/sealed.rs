//! What a process in a container may do: the profile, seen from inside.

use anyhow::{Context as _, ensure};
use hotcell_domain::Bytes;

use super::container::TestContainer;
use super::{Outcome, Subject, claimed};

/// The path of the workspace.
const WORKSPACE: &str = "/workspace";

/// The size of `/tmp` in these cases, in bytes.
const TMP_BYTES: u64 = 16 << 20;

/// What may be in `/dev`.
const DEVICES: [&str; 17] = [
    "console", "core", "fd", "full", "log", "mqueue", "null", "ptmx", "pts", "random", "shm",
    "stderr", "stdin", "stdout", "tty", "urandom", "zero",
];

/// Attackers use the administrator's programs too.
const ALL_PROGRAMS: &str = "PATH=$PATH:/usr/sbin:/sbin";

/// Netlink sockets per container, and how many the case tries to create.
const NETLINK_SOCKETS_MAX: usize = 32;
const NETLINK_TRIES: usize = 40;

/// How often to check whether all have tried, ten times a second.
const NETLINK_LOOKS_MAX: usize = 600;

/// Further devices of gVisor.
const FOREIGN_DEVICES: [&str; 2] = ["fuse", "net"];

pub(super) async fn it_runs_as_user_1000(subject: &Subject) -> Outcome {
    let Some(container) = sealed(subject).await? else {
        return Ok(());
    };
    assert_eq!(container.said("id -u; id -g").await?, "1000\n1000\n");
    let status = Status::read(&container).await?;
    for ids in ["Uid:", "Gid:"] {
        assert_eq!(status.fields(ids)?, ["1000"; 4], "{ids}");
    }
    let groups = status.fields("Groups:")?;
    assert!(groups.iter().all(|group| group == "1000"), "{groups:?}");
    assert_eq!(container.agent.hello().uid, 1000);
    assert_eq!(container.agent.hello().gid, 1000);
    container.end().await
}

pub(super) async fn it_has_no_capabilities(subject: &Subject) -> Outcome {
    let Some(container) = sealed(subject).await? else {
        return Ok(());
    };
    expect_no_capabilities(&Status::read(&container).await?)?;
    container.end().await
}

pub(super) async fn it_can_gain_no_privileges_and_is_filtered(subject: &Subject) -> Outcome {
    let Some(container) = sealed(subject).await? else {
        return Ok(());
    };
    let status = Status::read(&container).await?;
    if subject.traits.linux {
        assert_eq!(status.fields("NoNewPrivs:")?, ["1"]);
    }
    assert_eq!(status.fields("Seccomp:")?, ["2"]);
    container.end().await
}

pub(super) async fn the_root_is_read_only(subject: &Subject) -> Outcome {
    let Some(container) = sealed(subject).await? else {
        return Ok(());
    };
    for directory in [
        "/", "/usr", "/bin", "/etc", "/lib", "/home", "/root", "/sys", "/run", "/var", "/var/tmp",
    ] {
        // Another name of `/tmp` has the same size limit.
        let script = format!("readlink -f {directory} || echo none");
        if container.said(&script).await?.trim() != "/tmp" {
            expect_unwritable(&container, &format!("{directory}/hotcell-probe")).await?;
        }
    }
    container.end().await
}

pub(super) async fn the_workspace_is_writable_and_a_home(subject: &Subject) -> Outcome {
    let Some(container) = sealed(subject).await? else {
        return Ok(());
    };
    assert_eq!(container.root(), WORKSPACE);
    let mut command = container.sh("cd ~ && pwd && mkdir -p a/b && echo x > a/b/c && cat ~/a/b/c");
    command.cwd = b"/".to_vec();
    command.env.push((b"HOME".to_vec(), WORKSPACE.into()));
    let ran = container.run(&command).await?;
    assert_eq!(
        ran.stdout_text(),
        "/workspace\nx\n",
        "{}",
        ran.stderr_text()
    );
    container.end().await
}

pub(super) async fn tmp_is_writable_and_bounded(subject: &Subject) -> Outcome {
    if !claimed(subject.traits.sealed, "to seal") {
        return Ok(());
    }
    let tmp = Bytes::new(TMP_BYTES)?;
    let container = TestContainer::make_with(subject, |spec| spec.limits.tmp = tmp).await?;
    let script = format!(
        "echo x > /tmp/x && cat /tmp/x; head -c {} /dev/zero > /tmp/fill 2> /dev/null \
         && echo unbounded; wc -c < /tmp/fill; rm /tmp/fill",
        4 * TMP_BYTES
    );
    let said = container.said(&script).await?;
    let words: Vec<_> = said.split_whitespace().collect();
    let [mark, filled] = words[..] else {
        panic!("{said}");
    };
    assert_eq!(mark, "x");
    let filled: u64 = filled.parse()?;
    assert!((TMP_BYTES / 2..=TMP_BYTES).contains(&filled), "{filled}");
    container.end().await
}

pub(super) async fn mounts_and_namespaces_are_denied(subject: &Subject) -> Outcome {
    let Some(container) = sealed(subject).await? else {
        return Ok(());
    };
    let state = "cat /proc/self/mounts; ls -A /tmp /workspace";
    let before = container.said(state).await?;
    ensure!(before.contains(" /workspace "), "no mounts: {before}");
    for script in [
        "mount -t tmpfs none /tmp",
        "mount --bind /usr /tmp",
        "mount -o remount,rw /",
        "umount /workspace",
        "umount -l /proc",
        "unshare -U true",
        "unshare -U -r -m true",
        "unshare -n true",
        "chroot / true",
        "mknod /tmp/disk b 8 0",
        "mknod /workspace/null c 1 3",
    ] {
        let ran = container
            .shell(&format!("{ALL_PROGRAMS}; {script}"))
            .await?;
        // If the program is missing, the shell exits with 126 or 127, and nothing was denied.
        let was_denied = !matches!(ran.exit.code, Some(0 | 126 | 127));
        ensure!(was_denied, "`{script}` was not denied: {:?}", ran.exit);
    }
    assert_eq!(
        container.said(state).await?,
        before,
        "something has changed"
    );
    container.end().await
}

pub(super) async fn kernel_settings_are_not_writable(subject: &Subject) -> Outcome {
    let Some(container) = sealed(subject).await? else {
        return Ok(());
    };
    for file in [
        "/proc/sys/kernel/hostname",
        "/proc/sys/kernel/core_pattern",
        "/proc/sys/vm/drop_caches",
        "/proc/sysrq-trigger",
        "/proc/irq/default_smp_affinity",
        "/sys/fs/cgroup/cgroup.procs",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "/sys/fs/cgroup/memory.max",
    ] {
        expect_unwritable(&container, file).await?;
    }
    let made = container.shell("mkdir /sys/fs/cgroup/probe").await?;
    assert_ne!(made.exit.code, Some(0), "a cgroup could be made");
    let version = container.shell("head -c 1 /proc/version").await?;
    assert_ne!(version.stdout, b"", "nothing can be read at all");
    for file in ["/proc/kcore", "/proc/kmsg", "/dev/kmsg", "/dev/mem"] {
        let ran = container.shell(&format!("head -c 1 {file}")).await?;
        assert_eq!(ran.stdout, b"", "{file} can be read");
    }
    container.end().await
}

pub(super) async fn what_tells_of_the_host_is_masked(subject: &Subject) -> Outcome {
    if !claimed(subject.traits.linux, "to run Linux") {
        return Ok(());
    }
    let Some(container) = sealed(subject).await? else {
        return Ok(());
    };
    for file in [
        "cmdline",
        "diskstats",
        "interrupts",
        "key-users",
        "keys",
        "partitions",
    ] {
        let ran = container.shell(&format!("head -c 1 /proc/{file}")).await?;
        assert_eq!(ran.stdout, b"", "/proc/{file} can be read");
    }
    let said = container
        .said("ls -A /proc/pressure 2> /dev/null; :")
        .await?;
    assert_eq!(said, "", "/proc/pressure can be read");
    let said = container.said("head -c 6 /proc/uptime | wc -c").await?;
    assert_eq!(said.trim(), "6", "the rest of /proc is there");
    container.end().await
}

pub(super) async fn what_the_kernel_counts_for_a_user_is_bounded(subject: &Subject) -> Outcome {
    if !claimed(subject.traits.linux, "to run Linux") {
        return Ok(());
    }
    let Some(container) = sealed(subject).await? else {
        return Ok(());
    };
    // With a lower core file limit the kernel would run the host's crash handler, so it must not
    // change.
    let limits = Status::new(container.said("ulimit -c 0; cat /proc/self/limits").await?);
    assert_eq!(limits.fields("Max core file size")?[..2], ["1", "1"]);
    for (name, max) in [
        ("Max open files", 4096),
        ("Max locked memory", 8 << 20),
        ("Max pending signals", 1024),
        ("Max msgqueue size", 128 << 10),
        ("Max nice priority", 0),
        ("Max realtime priority", 0),
    ] {
        let fields = limits.fields(name)?;
        for value in &fields[..2] {
            let is_bounded = value.parse::<u64>().is_ok_and(|value| value <= max);
            ensure!(is_bounded, "{name}: {fields:?}");
        }
    }
    container.end().await
}

pub(super) async fn devices_are_the_usual_ones(subject: &Subject) -> Outcome {
    let Some(container) = sealed(subject).await? else {
        return Ok(());
    };
    let listed = container.said("ls -A /dev").await?;
    let strange: Vec<_> = listed
        .lines()
        .filter(|name| !DEVICES.contains(name))
        .filter(|name| subject.traits.linux || !FOREIGN_DEVICES.contains(name))
        .collect();
    assert!(strange.is_empty(), "{strange:?}");
    let script = "for f in /dev/* /dev/*/*; do [ -b \"$f\" ] && echo \"$f\"; done; :";
    assert_eq!(container.said(script).await?, "", "block devices");
    let script = "echo x > /dev/null; head -c 3 /dev/zero | wc -c; head -c 3 /dev/urandom | wc -c";
    let counts = container.said(script).await?;
    assert_eq!(counts.split_whitespace().collect::<Vec<_>>(), ["3", "3"]);
    let full = container.shell("echo x > /dev/full").await?;
    assert_ne!(full.exit.code, Some(0));
    container.end().await
}

pub(super) async fn interfaces_can_be_listed(subject: &Subject) -> Outcome {
    let Some(container) = sealed(subject).await? else {
        return Ok(());
    };
    if has_ip(&container).await? {
        let said = container.said(&format!("{ALL_PROGRAMS}; ip addr")).await?;
        assert!(said.contains("127.0.0.1"), "{said}");
    }
    container.end().await
}

pub(super) async fn netlink_sockets_are_few(subject: &Subject) -> Outcome {
    if !claimed(subject.traits.linux, "to run Linux") {
        return Ok(());
    }
    let Some(container) = sealed(subject).await? else {
        return Ok(());
    };
    if has_ip(&container).await? {
        // A script whose output fails keeps the socket through which it listed the interfaces.
        let script = format!(
            "{ALL_PROGRAMS}; cd /tmp; : > refused; mkfifo full; sleep 1000 < full & exec 3> full
            dd if=/dev/zero bs=65536 count=1 >&3 2> /dev/null
            n=0; while [ $n -lt {NETLINK_TRIES} ]; do
                n=$((n + 1)); (ip addr >&3 2>> errors || echo x >> refused) &
            done
            sockets() {{ while read -r name size count rest; do
                [ $name = NETLINK ] && echo $count; done < /proc/net/protocols; }}
            refused() {{ wc -l < refused; }}
            n=0; while [ $(($(sockets) + $(refused))) -lt {NETLINK_TRIES} ] && [ $n -lt {NETLINK_LOOKS_MAX} ]; do
                n=$((n + 1)); sleep 0.1
            done
            sockets; refused; sort errors | uniq -c"
        );
        let said = container.said(&script).await?;
        let mut counts = said.split_whitespace().map(str::parse::<usize>);
        let (Some(Ok(sockets)), Some(Ok(refused))) = (counts.next(), counts.next()) else {
            panic!("{said}");
        };
        assert!((1..=NETLINK_SOCKETS_MAX).contains(&sockets), "{said}");
        // Docker's own socket in the container's network counts too.
        assert!(refused >= NETLINK_TRIES - NETLINK_SOCKETS_MAX, "{said}");
    }
    container.end().await
}

/// Whether a program inside can list interfaces.
async fn has_ip(container: &TestContainer<'_>) -> anyhow::Result<bool> {
    let has_ip = container
        .said(&format!("{ALL_PROGRAMS}; command -v ip || :"))
        .await?;
    Ok(claimed(!has_ip.is_empty(), "an image with `ip`"))
}

/// A container, if the engine claims to create real ones.
pub(super) async fn sealed(subject: &Subject) -> anyhow::Result<Option<TestContainer<'_>>> {
    if !claimed(subject.traits.sealed, "to seal") {
        return Ok(None);
    }
    TestContainer::make(subject).await.map(Some)
}

/// Fails if a process can open the file for writing, or create it.
pub(super) async fn expect_unwritable(container: &TestContainer<'_>, file: &str) -> Outcome {
    // In a subshell, because a failed redirection may exit the shell. A writable file shows that
    // the attempt works.
    let script = format!(
        "for f in /tmp/can {file}; do ( : >> $f ) 2> /dev/null && echo $f is writable; done; :"
    );
    assert_eq!(
        container.said(&script).await?,
        "/tmp/can is writable\n",
        "{file}"
    );
    Ok(())
}

/// Fails if any set of capabilities is not empty.
pub(super) fn expect_no_capabilities(status: &Status) -> Outcome {
    for set in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
        // Not every kernel has an ambient set; all have the others.
        let value = match status.fields(set) {
            Err(_) if set == "CapAmb:" => continue,
            value => value?,
        };
        ensure!(value == ["0000000000000000"], "{set} {value:?}");
    }
    Ok(())
}

/// `/proc/PID/status` or a similar file.
pub(super) struct Status(String);

impl Status {
    async fn read(container: &TestContainer<'_>) -> anyhow::Result<Self> {
        Ok(Self(container.said("cat /proc/self/status").await?))
    }

    pub(super) fn new(text: String) -> Self {
        Self(text)
    }

    /// The words after a name.
    pub(super) fn fields(&self, name: &str) -> anyhow::Result<Vec<String>> {
        let line = self.0.lines().find_map(|line| line.strip_prefix(name));
        let line = line.with_context(|| format!("the status has no {name}"))?;
        Ok(line.split_whitespace().map(str::to_owned).collect())
    }
}
