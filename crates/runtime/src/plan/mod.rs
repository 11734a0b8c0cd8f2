//! The plan: what the first process of a container does between clone and exec.
//!
//! A plan is compiled before the clone; afterwards the child only interprets it, and everything
//! that a step needs is already prepared: nothing allocates or locks between clone and exec. Each
//! step has a name, so that an error says what could not be done.
//!
//! ```text
//! join cgroups ▶ new keyring ▶ await go: ids are mapped ▶ open sources (still the caller's user)
//!   ▶ become inner root ▶ build the root ▶ pivot ▶ limits ▶ privileges ▶ seccomp ▶ exec
//! ```

mod builder;
mod finish;
mod host;
mod overlay;
mod system;

use std::ffi::{CStr, CString};
use std::os::fd::OwnedFd;
use std::rc::Rc;

use rustix::process::Resource;

pub(crate) use builder::is_plain_name;
pub(crate) use builder::{Builder, InvalidSpec};
pub use finish::{CORE_BYTES_MAX, LOCKED_BYTES_MAX, MESSAGE_QUEUE_BYTES_MAX, PENDING_SIGNALS_MAX};
pub(crate) use finish::{InitFds, KEPT_CAPABILITIES, finish};
pub use system::PROC_MASKED;

use crate::seccomp::SeccompFilters;
use crate::spec::DiskIds;
use crate::sys::ExecArgs;

/// `MOUNT_ATTR_*` of the kernel.
pub(crate) mod attr {
    pub(crate) const RDONLY: u64 = 0x1;
    pub(crate) const NOSUID: u64 = 0x2;
    pub(crate) const NODEV: u64 = 0x4;
    pub(crate) const NOEXEC: u64 = 0x8;
}

/// An index into the descriptors that one step opens and a later one uses.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FdSlot(pub usize);

/// The steps of a container's first process, in order.
pub(crate) struct Plan {
    pub steps: Vec<Step>,
    /// How many descriptor slots the steps use.
    pub slots: usize,
    /// Mounts that the parent id-maps and sends to the child: only host root may map them.
    pub mapped: Vec<MappedMount>,
}

/// The most id-mapped mounts that one container can have.
pub(crate) const MAPPED_MAX: usize = 8;

/// A clone of the mount at a host path, with its own id map and attributes.
pub(crate) struct MappedMount {
    /// Receives the mount's descriptor.
    pub slot: FdSlot,
    pub path: CString,
    pub attributes: u64,
    pub disk_ids: DiskIds,
    /// If mapping fails, the container does not start. Otherwise the child opens the path unmapped,
    /// and its files belong to nobody.
    pub is_required: bool,
}

/// Mount attributes of image layers.
pub(crate) const LAYER_ATTRIBUTES: u64 = attr::RDONLY | attr::NOSUID | attr::NODEV;

pub(crate) struct Step {
    /// Completes "could not …".
    pub name: &'static str,
    pub op: Op,
}

/// The operation of a step. Target paths are relative to the new root.
pub(crate) enum Op {
    /// Join a v1 cgroup by its `tasks` file.
    JoinCgroup(OwnedFd),
    /// Enter a new cgroup namespace, so that the container's cgroups look like the root.
    HideCgroups,
    /// Replace the caller's session keyring by an empty one.
    NewKeyring,
    /// Stop mount propagation to and from the host.
    PrivateMounts,
    /// Clone the mount tree at a host path.
    Open {
        slot: FdSlot,
        path: CString,
        attributes: u64,
    },
    /// Wait until the parent has mapped the ids.
    AwaitGo,
    /// Like `AwaitGo`; also receives the plan's id-mapped mounts.
    AwaitMapped {
        slots: Vec<FdSlot>,
    },
    /// Clone the mount tree at a host path, unless the parent sent a mapped one.
    OpenUnlessGiven {
        slot: FdSlot,
        path: CString,
        attributes: u64,
    },
    /// Become root of the container's user namespace.
    BecomeRoot,
    /// Create a filesystem, not yet attached.
    NewFs {
        slot: FdSlot,
        kind: &'static CStr,
        options: Vec<(&'static CStr, CString)>,
        attributes: u32,
    },
    /// Attach the slot's mount at an absolute host path and change into it.
    Enter {
        slot: FdSlot,
        at: &'static CStr,
    },
    /// Attach the slot's mount at a path, without following symbolic links.
    Attach {
        slot: FdSlot,
        at: CString,
    },
    /// Change the attributes of the mount at a path.
    Seal {
        path: CString,
        attributes: u64,
    },
    /// Bind-mount a path over itself with more attributes.
    Cover {
        path: CString,
        attributes: u64,
    },
    /// Mount an overlay at a path.
    Overlay {
        at: CString,
        options: CString,
        read_only: bool,
    },
    Mkdir {
        path: CString,
        mode: u32,
    },
    File {
        path: CString,
        contents: Vec<u8>,
        mode: u32,
    },
    /// Write to an existing file of a kernel filesystem.
    Set {
        path: CString,
        value: &'static CStr,
    },
    Symlink {
        path: CString,
        target: CString,
    },
    Chdir(CString),
    /// Make the current directory the root and detach the host's.
    Pivot,
    /// Set an rlimit to `value`, or to the hard limit if that is lower.
    Limit {
        resource: Resource,
        value: u64,
    },
    /// Set a soft rlimit, which init passes on to execs and may raise for itself.
    LimitForExecs {
        resource: Resource,
        value: u64,
    },
    Hostname(CString),
    Loopback,
    /// Start a session, with default signal mask and umask.
    NewSession,
    /// Move descriptors to the numbers where init expects them.
    InitFds(InitFds),
    /// Become the container's user and drop all capabilities except those kept for init.
    DropPrivileges {
        change_user: bool,
        keep: bool,
    },
    /// Set `PR_SET_NO_NEW_PRIVS`.
    NoNewPrivileges,
    /// Install the seccomp filter; its listener becomes [`crate::NOTIFY_FD`].
    Seccomp(Rc<SeccompFilters>),
    /// Install the filter with a listener, or fail. For the probe.
    SeccompListener(Rc<SeccompFilters>),
    /// Do to files in a directory what programs do. For the probe.
    UseFiles(CString),
    /// Execute init.
    Exec {
        file: OwnedFd,
        args: ExecArgs,
    },
}
