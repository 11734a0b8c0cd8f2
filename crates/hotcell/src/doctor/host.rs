//! Probes the host's kernel and settings.

use std::path::{Path, PathBuf};

use hotcell_runtime::cgroup::ControllerLocation;
use hotcell_runtime::probe::{self, Cause, ProbeError};
use hotcell_runtime::{Enforcement, IdMap, disk_quota};

use super::Finding;

/// The oldest kernel that has everything we use.
const KERNEL_MIN: (u32, u32) = (5, 14);

/// The oldest kernel that supports overlay mounts of id-mapped layers.
const IDMAPPED_OVERLAY_KERNEL_MIN: (u32, u32) = (5, 19);

const USERNS_RESTRICTED: &str = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns";

/// How root gets cgroup controllers.
const MOUNT: &str = "mount the controller, or boot with \
                     `systemd.unified_cgroup_hierarchy=1 cgroup_enable=memory`";

/// How an ordinary user gets delegated cgroups.
const DELEGATE: &str = "start it as root, or in a cgroup of your own: \
                        `systemd-run --user --scope -p Delegate=yes hotcell …`";

/// How swap is limited, or cannot be used to exceed the memory limit.
const SWAP: &str = "boot with `swapaccount=1`, or switch swap off (`swapoff -a`)";

/// Runs all probes, the most basic ones first.
pub(super) fn probe(state: &Path) -> Vec<Finding> {
    let namespaces = probe::user_namespace();
    let mut findings = vec![kernel()];
    findings.push(apparmor(namespaces.as_ref().err()));
    findings.push(outcome(
        "user namespaces",
        namespaces,
        "containers can be isolated",
        "containers cannot be made",
    ));
    findings.push(outcome(
        "own /proc",
        probe::proc_mount(),
        "containers see their own processes only",
        "containers cannot be made; the surrounding container hides parts of its /proc",
    ));
    findings.push(outcome(
        "overlay",
        probe::overlay(&existing(state)),
        "layers can be stacked",
        "only the image `host` can be used",
    ));
    findings.extend(image_files());
    findings.push(outcome(
        "seccomp",
        probe::seccomp(),
        "system calls can be filtered",
        "containers cannot be made",
    ));
    findings.push(outcome(
        "netlink sockets",
        probe::netlink_sockets(),
        "containers can have a few each, which the agent counts",
        "containers can have none: programs that list network interfaces or routes fail there",
    ));
    findings.push(ids());
    findings.extend(workspace_files(state));
    findings.extend(limits());
    findings.push(disk_limit(state));
    findings
}

/// The kernel's release, and its version number.
fn release() -> (String, (u32, u32)) {
    let release = rustix::system::uname()
        .release()
        .to_string_lossy()
        .into_owned();
    let mut numbers = release
        .split(['.', '-'])
        .map_while(|part| part.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    (release, version)
}

/// Which owner the files of an image have in a container. Only root can create id-mapped mounts of
/// its layers.
fn image_files() -> Option<Finding> {
    let name = "files of images";
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    if release().1 >= IDMAPPED_OVERLAY_KERNEL_MIN {
        let found = "belong to the container's root: layers can be mounted with other ids";
        return Some(Finding::good(name, found));
    }
    let (major, minor) = IDMAPPED_OVERLAY_KERNEL_MIN;
    let finding = Finding::bad(
        name,
        "layers cannot be mounted with other ids",
        "they belong to nobody in a container, and those that not everybody may read cannot be read",
    );
    Some(finding.fixed_by(format!("use Linux {major}.{minor} or later")))
}

/// Which owner the files of a workspace have on disk. Without root, it is the user.
fn workspace_files(state: &Path) -> Option<Finding> {
    let name = "files of workspaces";
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let Err(refusal) = probe::mapped_ids(&existing(state)) else {
        let found =
            "have plain user ids on disk: mounts with other ids work in the state directory";
        return Some(Finding::good(name, found));
    };
    let finding = Finding::bad(
        name,
        format!("could not {}: {}", refusal.step, refusal.source),
        "all workspaces belong to one host user, which all containers run as",
    );
    Some(finding.fixed_by(
        "put the state directory on ext4, xfs or btrfs, with Linux 5.15 or later (--state-dir)",
    ))
}

fn kernel() -> Finding {
    let (release, version) = release();
    if version >= KERNEL_MIN {
        return Finding::good("kernel", format!("Linux {release}"));
    }
    Finding::bad(
        "kernel",
        format!("Linux {release}"),
        "too old for the embedded engine",
    )
    .fixed_by(format!(
        "use Linux {}.{} or later",
        KERNEL_MIN.0, KERNEL_MIN.1
    ))
}

/// The restriction is only a setting; `refused` says whether it really blocks us.
fn apparmor(refused: Option<&ProbeError>) -> Finding {
    let name = "AppArmor";
    if let Some(refusal) = refused.filter(|refusal| refusal.cause == Cause::AppArmor) {
        let finding = Finding::bad(
            name,
            format!("keeps us from making user namespaces ({})", refusal.source),
            "containers cannot be made as an ordinary user",
        );
        return finding.fixed_by(apparmor_fix());
    }
    let restricted = std::fs::read_to_string(USERNS_RESTRICTED);
    match restricted.as_deref().map(str::trim) {
        Ok("1") => Finding::good(name, "restricts user namespaces, but not for us"),
        Ok(_) => Finding::good(name, "does not restrict user namespaces"),
        Err(_) => Finding::good(name, "has no restriction of user namespaces on this kernel"),
    }
}

/// A profile for this program, ready to be copied.
fn apparmor_fix() -> String {
    let program =
        std::env::current_exe().unwrap_or_else(|_| PathBuf::from("/usr/local/bin/hotcell"));
    let lines = [
        "put this into /etc/apparmor.d/hotcell and run `apparmor_parser -r /etc/apparmor.d/hotcell` as root:",
        "    abi <abi/4.0>,",
        &format!(
            "    profile hotcell {} flags=(unconfined) {{ userns, }}",
            program.display()
        ),
        "or lift the restriction for every program: `sysctl -w kernel.apparmor_restrict_unprivileged_userns=0`",
    ];
    lines.join("\n")
}

fn outcome(
    name: &'static str,
    result: Result<(), ProbeError>,
    good: &str,
    follows: &str,
) -> Finding {
    let refusal = match result {
        Ok(()) => return Finding::good(name, good),
        Err(refusal) => refusal,
    };
    let found = format!("could not {}: {}", refusal.step, refusal.source);
    let finding = Finding::bad(name, found, follows);
    match refusal.cause.fix() {
        Some(fix) => finding.fixed_by(fix),
        None => finding,
    }
}

fn ids() -> Finding {
    let name = "user ids";
    if rustix::process::geteuid().is_root() {
        return Finding::good(
            name,
            "each container gets a range of host ids that nobody owns",
        );
    }
    match probe::subordinate_ids() {
        Ok(IdMap::Subordinate { count, .. }) => {
            Finding::good(name, format!("{count} subordinate ids: containers can have a root"))
        }
        Ok(IdMap::Range { .. } | IdMap::Single) => Finding::good(name, "one id per container"),
        Err(error) => Finding::bad(
            name,
            error.to_string(),
            "containers have one user and no root of their own (enough for most work)",
        )
        .fixed_by("`apt install uidmap` and `usermod --add-subuids 100000-165535 --add-subgids 100000-165535 $USER`"),
    }
}

/// One finding per limit: a host may be able to enforce one and not another.
fn limits() -> Vec<Finding> {
    let found = match probe::cgroups() {
        Ok(found) => found,
        Err(error) => {
            let finding = Finding::bad("cgroups", error.to_string(), "limits are rlimits at best");
            return vec![finding.fixed_by(cgroups_fix())];
        }
    };
    let (host, enforced) = (&found.host, found.enforced);
    let memory = if host.lacks_swap_limit() {
        let reason = "this host has swap, and the kernel does not account for it";
        let follows = "what memory does not hold goes to swap without a limit";
        Finding::bad("memory limit", reason, follows).fixed_by(SWAP)
    } else {
        limit("memory limit", &host.memory, enforced.memory)
    };
    vec![
        memory,
        limit("cpu limit", &host.cpu, enforced.cpus),
        limit("pids limit", &host.pids, enforced.pids),
    ]
}

/// What enforces the disk limit of containers.
fn disk_limit(state: &Path) -> Finding {
    let name = "disk limit";
    let scratch = format!("hotcell-quota-{}", std::process::id());
    let reason = if rustix::process::geteuid().is_root() {
        match disk_quota::probe(&existing(state).join(scratch)) {
            Ok(()) => return Finding::good(name, "kept by project quotas"),
            Err(error) => format!("project quotas do not work in the state directory ({error})"),
        }
    } else {
        "only root can set project quotas".to_owned()
    };
    Finding::good(
        name,
        format!(
            "watched, and execs of containers that go over it are ended within seconds: {reason}"
        ),
    )
}

fn cgroups_fix() -> &'static str {
    if rustix::process::geteuid().is_root() {
        MOUNT
    } else {
        DELEGATE
    }
}

fn limit(name: &'static str, location: &ControllerLocation, kind: Enforcement) -> Finding {
    let (generation, reason) = match location {
        ControllerLocation::V1(_) => ("cgroup v1", "the controller does not take limits"),
        ControllerLocation::V2(_) => ("cgroup v2", "the controller does not take limits"),
        ControllerLocation::Missing { reason } => ("cgroups", reason.as_str()),
    };
    let follows = match kind {
        Enforcement::Cgroup | Enforcement::ProjectQuota | Enforcement::Watched => {
            return Finding::good(name, format!("kept by {generation}"));
        }
        Enforcement::Rlimit => "an rlimit stands in: per process or user, not per container",
        Enforcement::None => "containers are not limited in this",
    };
    Finding::bad(name, reason, follows).fixed_by(cgroups_fix())
}

/// The state directory, or its nearest existing parent.
fn existing(state: &Path) -> PathBuf {
    let found = state.ancestors().find(|path| path.is_dir());
    let writable = |path: &&Path| {
        let write = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
        rustix::fs::access(*path, write).is_ok()
    };
    found
        .filter(writable)
        .map_or_else(std::env::temp_dir, Path::to_owned)
}
