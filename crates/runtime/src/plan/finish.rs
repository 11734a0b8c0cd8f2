//! The last steps: rlimits, descriptors, privileges, the seccomp filter, exec of init.

use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use rustix::process::Resource;

use super::{InvalidSpec, Op, Step};
use crate::seccomp::SeccompFilters;
use crate::spec::{Enforced, Enforcement, LaunchSpec, Limits};
use crate::sys::ExecArgs;

/// The capabilities that init keeps to run something as another user, if the caller allows it:
/// `CAP_KILL`, `CAP_SETGID`, `CAP_SETUID`.
pub(crate) const KEPT_CAPABILITIES: [u32; 3] = [5, 6, 7];

/// One byte is too small for any core file. Unlike a limit of 0, it also keeps the kernel from
/// running the host's crash handler.
pub const CORE_BYTES_MAX: u64 = 1;

/// `RLIMIT_MEMLOCK`.
pub const LOCKED_BYTES_MAX: u64 = 8 << 20;

/// Enough for one queue of the default size. The kernel sums this limit over all containers of the
/// same host user.
pub const MESSAGE_QUEUE_BYTES_MAX: u64 = 128 << 10;

/// Timers and pending signals, which the kernel sums in the same way.
pub const PENDING_SIGNALS_MAX: u64 = 1024;

/// Descriptors of init besides `/dev/null` at 0 and 1.
pub(crate) struct InitFds {
    /// Becomes descriptor 2.
    pub log: OwnedFd,
    /// Become [`crate::FIRST_FD`] and up.
    pub others: Vec<OwnedFd>,
}

/// The steps after the pivot.
pub(crate) fn finish(
    spec: &LaunchSpec,
    enforced: Enforced,
    fds: InitFds,
    init: OwnedFd,
    filters: Rc<SeccompFilters>,
) -> Result<Vec<Step>, InvalidSpec> {
    let nul = |_| InvalidSpec("an argument or a variable holds a NUL byte".to_owned());
    let args = ExecArgs::new(&spec.argv, &spec.env).map_err(nul)?;
    let name = CString::new(spec.name.as_str())
        .map_err(|_| InvalidSpec("the name holds a NUL byte".to_owned()))?;
    let has_root = spec.ids.has_root();
    let mut steps = vec![
        Step {
            name: "name the host",
            op: Op::Hostname(name),
        },
        Step {
            name: "bring the loopback up",
            op: Op::Loopback,
        },
        Step {
            name: "start a session",
            op: Op::NewSession,
        },
        Step {
            name: "pass the descriptors",
            op: Op::InitFds(fds),
        },
    ];
    steps.extend(limits(&spec.limits, enforced));
    let drop = Op::DropPrivileges {
        change_user: has_root,
        keep: has_root && spec.allow_root,
    };
    steps.push(Step {
        name: "drop the privileges",
        op: drop,
    });
    steps.push(Step {
        name: "refuse new privileges",
        op: Op::NoNewPrivileges,
    });
    steps.push(Step {
        name: "install the system call filter",
        op: Op::Seccomp(filters),
    });
    steps.push(Step {
        name: "run the init program",
        op: Op::Exec { file: init, args },
    });
    Ok(steps)
}

/// The rlimits, including those that stand in for missing cgroups.
fn limits(limits: &Limits, enforced: Enforced) -> impl Iterator<Item = Step> {
    let without_cgroup =
        |kind: Enforcement, value: u64| (kind == Enforcement::Rlimit).then_some(value);
    [
        (Resource::Nofile, Some(limits.open_files)),
        (Resource::Core, Some(CORE_BYTES_MAX)),
        (Resource::Memlock, Some(LOCKED_BYTES_MAX)),
        (Resource::Msgqueue, Some(MESSAGE_QUEUE_BYTES_MAX)),
        (Resource::Sigpending, Some(PENDING_SIGNALS_MAX)),
        (Resource::Rtprio, Some(0)),
        (Resource::Nice, Some(0)),
        (
            Resource::Data,
            without_cgroup(enforced.memory, limits.memory_bytes),
        ),
        (
            Resource::Nproc,
            without_cgroup(enforced.pids, u64::from(limits.pids)),
        ),
    ]
    .into_iter()
    .filter_map(|(resource, value)| {
        let value = value?;
        let op = if resource == Resource::Data {
            Op::LimitForExecs { resource, value }
        } else {
            Op::Limit { resource, value }
        };
        Some(Step {
            name: "set a limit",
            op,
        })
    })
}
