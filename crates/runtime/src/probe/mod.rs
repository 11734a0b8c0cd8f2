//! Finds out what this host can isolate and limit, by trying it.
//!
//! Each probe runs in a child process that has exited when the probe returns, and changes nothing
//! in the caller. Probes may be called from a multi-threaded process.

mod cause;
pub(crate) mod files;

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::process::geteuid;

pub use cause::{Cause, ProbeError};

use crate::cgroup::HostCgroups;
use crate::ids::{self, NoSubordinateIds, RANGE_COUNT};
use crate::plan::{Builder, Op, Plan, Step};
use crate::seccomp::SeccompFilters;
use crate::spec::{Enforced, IdMap, Limits, Scratch, USER_ID};
use crate::start::{self, NAMESPACES, StartError};

/// The name prefix of probes' directories; the PID follows.
pub const SCRATCH: &str = "probe-";

/// Whether all namespaces of a container can be created, with mounts in them.
pub fn user_namespace() -> Result<(), ProbeError> {
    isolated(Builder::staging_alone())
}

/// Whether a container can mount its own `/proc`. It cannot if we run in a container that masks
/// parts of its `/proc`.
pub fn proc_mount() -> Result<(), ProbeError> {
    isolated(Builder::proc_alone())
}

/// Whether overlayfs works on layers in `dir`, an existing directory. Leaves `dir` unchanged.
pub fn overlay(dir: &Path) -> Result<(), ProbeError> {
    let ids = probe_ids();
    let owner = |host: &dyn Fn(u32) -> Option<u32>| host(0).or_else(|| host(USER_ID));
    let owner = (owner(&|id| ids.host_uid(id)), owner(&|id| ids.host_gid(id)));
    let scratch = ScratchDir::make(dir, &["", "lower", "upper", "work"], owner)?;
    let lower = scratch.path.join("lower");
    let layers = Scratch {
        upper: scratch.path.join("upper"),
        work: scratch.path.join("work"),
    };
    let builder = Builder::overlay_alone(&lower, &layers)
        .map_err(|invalid| ProbeError::plain("stack the layers")(io::Error::other(invalid)))?;
    isolated(builder)
}

/// Whether files in `dir`, an existing directory, can have plain ids on disk: with mapped ids, a
/// container's user creates, removes and renames files there, and they belong to [`USER_ID`] on
/// disk. Only for host root. Leaves `dir` unchanged.
pub fn mapped_ids(dir: &Path) -> Result<(), ProbeError> {
    let owner = (Some(USER_ID), Some(USER_ID));
    let scratch = ScratchDir::make(dir, &["fs"], owner)?;
    let fs = scratch.path.join("fs");
    let invalid = |invalid| ProbeError::plain("map the ids of a mount")(io::Error::other(invalid));
    let builder = Builder::mapped_alone(&fs).map_err(invalid)?;
    let step = |name, op| Step { name, op };
    let leave_root = Op::DropPrivileges {
        change_user: true,
        keep: false,
    };
    let last = vec![
        step("become the container's user", leave_root),
        step(
            "use files of a mapped mount",
            Op::UseFiles(c"workspace".to_owned()),
        ),
    ];
    let ids = probe_ids();
    run(
        &builder.into_plan(Vec::new(), &ids, last),
        NAMESPACES,
        Some(&ids),
    )?;
    let look = ProbeError::plain("look at files of a mapped mount");
    files::has_owner(&fs, USER_ID).map_err(look)
}

/// Whether the seccomp filter can be installed.
pub fn seccomp() -> Result<(), ProbeError> {
    filter(Op::Seccomp(Rc::new(SeccompFilters::compile())))
}

/// Whether the filter can have a listener, through which the agent creates netlink sockets. It
/// cannot if the kernel is too old or an outer filter already has the only possible listener. Then
/// netlink sockets are refused.
pub fn netlink_sockets() -> Result<(), ProbeError> {
    filter(Op::SeccompListener(Rc::new(SeccompFilters::compile())))
}

fn filter(op: Op) -> Result<(), ProbeError> {
    let steps = vec![
        Step {
            name: "refuse new privileges",
            op: Op::NoNewPrivileges,
        },
        Step {
            name: "install the system call filter",
            op,
        },
    ];
    let plan = Plan {
        steps,
        slots: 0,
        mapped: Vec::new(),
    };
    run(&plan, 0, None)
}

/// Whether this user has subordinate ids; without them a container has only one user.
pub fn subordinate_ids() -> Result<IdMap, NoSubordinateIds> {
    ids::subordinate()
}

/// The controllers of this host, and which of them accepted limits.
#[derive(Debug)]
pub struct Cgroups {
    /// Where containers' cgroups are created, or why they cannot be.
    pub host: HostCgroups,
    /// What would enforce a container's limits.
    pub enforced: Enforced,
}

/// Creates a cgroup with limits and removes it. As an ordinary user with a delegated cgroup, this
/// moves the process into a child cgroup, as a server does.
pub fn cgroups() -> io::Result<Cgroups> {
    let host = HostCgroups::detect().prepare(&[std::process::id()]);
    let limits = Limits {
        memory_bytes: 64 << 20,
        cpu_millis: 100,
        pids: 16,
        tmp_bytes: 0,
        shm_bytes: 0,
        open_files: 0,
    };
    let name = format!("probe-{}", std::process::id());
    let (place, enforced) = host.create(&name, &limits)?;
    place.remove()?;
    Ok(Cgroups { host, enforced })
}

fn isolated(builder: Builder) -> Result<(), ProbeError> {
    let ids = probe_ids();
    let plan = builder.into_plan(Vec::new(), &ids, Vec::new());
    run(&plan, NAMESPACES, Some(&ids))
}

fn run(plan: &Plan, namespaces: i32, ids: Option<&IdMap>) -> Result<(), ProbeError> {
    match start::start(plan, namespaces, ids, None) {
        Ok(started) => {
            start::end(&started.pidfd);
            Ok(())
        }
        Err(StartError::Step { step, source }) => Err(ProbeError::new(step, source)),
        Err(error @ (StartError::Died | StartError::TimedOut)) => {
            Err(ProbeError::plain("finish the probe")(io::Error::other(
                error,
            )))
        }
    }
}

/// No container uses the last range yet: ranges are assigned from the first on.
fn probe_ids() -> IdMap {
    match ids::range_base(RANGE_COUNT - 1) {
        Some(base) if geteuid().is_root() => IdMap::range(base),
        _ => IdMap::Single,
    }
}

/// Directories of a probe, removed when dropped.
struct ScratchDir {
    path: PathBuf,
}

impl ScratchDir {
    /// Creates a directory in `parent`, and `names` in it, each owned by `owner`; "" is the
    /// directory itself.
    fn make(
        parent: &Path,
        names: &[&str],
        owner: (Option<u32>, Option<u32>),
    ) -> Result<Self, ProbeError> {
        let make = || -> io::Result<Self> {
            let path = fs::canonicalize(parent)?.join(format!("{SCRATCH}{}", std::process::id()));
            // An earlier process with the same PID may have died here.
            let _ = fs::remove_dir_all(&path);
            fs::create_dir(&path)?;
            let made = Self { path };
            let private = fs::Permissions::from_mode(0o700);
            fs::set_permissions(&made.path, private.clone())?;
            for name in names {
                let path = made.path.join(name);
                if !name.is_empty() {
                    fs::create_dir(&path)?;
                }
                fs::set_permissions(&path, private.clone())?;
                chown(&path, owner.0, owner.1)?;
            }
            Ok(made)
        };
        make().map_err(ProbeError::plain("make a directory for a probe"))
    }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        // Overlayfs creates this one with mode 000.
        let _ = fs::remove_dir(self.path.join("work/work"));
        // If this fails, only empty directories named after this process are left.
        let _ = fs::remove_dir_all(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        overlay(dir.path()).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        let found = cgroups().unwrap();
        let name = format!("probe-{}", std::process::id());
        assert!(!found.host.names().contains(&name));
    }

    #[test]
    fn what_containers_need_is_there() {
        user_namespace().unwrap();
        proc_mount().unwrap();
        seccomp().unwrap();
        netlink_sockets().unwrap();
    }

    #[test]
    fn ids_are_mapped_where_the_filesystem_can_and_else_that_is_told() {
        if !geteuid().is_root() {
            return hotcell_testkit::not_claimed("only root can map the ids of a mount");
        }
        let dir = tempfile::tempdir().unwrap();
        mapped_ids(dir.path()).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_refusal_names_the_step_and_the_errno() {
        let error = overlay(Path::new("/absent")).unwrap_err();
        assert_eq!(error.step, "make a directory for a probe");
        assert_eq!(error.source.kind(), io::ErrorKind::NotFound);
        let error = overlay(Path::new("/proc")).unwrap_err();
        assert_eq!(error.step, "make a directory for a probe");
    }
}
