//! What the first process of a container does between its clone and its exec.
//!
//! A plan is compiled before the clone; afterwards the child only interprets it, and
//! everything that a step needs is already here: nothing allocates or locks between clone
//! and exec. Each step has a name, so that a failure says what could not be done.
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
    /// Nothing can be written through this mount.
    pub(crate) const RDONLY: u64 = 0x1;
    /// Set-user-id bits have no effect.
    pub(crate) const NOSUID: u64 = 0x2;
    /// Device files cannot be opened.
    pub(crate) const NODEV: u64 = 0x4;
    /// Programs cannot be run.
    pub(crate) const NOEXEC: u64 = 0x8;
}

/// A place for a descriptor that one step makes and a later one uses.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FdSlot(pub usize);

/// The steps in their order.
pub(crate) struct Plan {
    /// What to do.
    pub steps: Vec<Step>,
    /// How many slots they use.
    pub slots: usize,
    /// Mounts that the parent gives to the child with their ids mapped: only host root may
    /// map them.
    pub mapped: Vec<MappedMount>,
}

/// Mounts with ids of their own that one container can have.
pub(crate) const MAPPED_MAX: usize = 8;

/// A copy of the mount at a host path, with a map and attributes of its own.
pub(crate) struct MappedMount {
    /// Where the child finds it.
    pub slot: FdSlot,
    pub path: CString,
    pub attributes: u64,
    pub disk_ids: DiskIds,
    /// Without it the container does not start. Else the child opens the path itself, and its
    /// files belong to nobody.
    pub is_required: bool,
}

/// What layers of an image are mounted with.
pub(crate) const LAYER_ATTRIBUTES: u64 = attr::RDONLY | attr::NOSUID | attr::NODEV;

/// One step.
pub(crate) struct Step {
    /// Completes "could not …".
    pub name: &'static str,
    /// What to do.
    pub op: Op,
}

/// What a step does. Paths of targets are relative to the new root.
pub(crate) enum Op {
    /// Join a v1 cgroup by its `tasks` file.
    JoinCgroup(OwnedFd),
    /// Make the present cgroups the visible root of their hierarchies.
    HideCgroups,
    /// Leave the caller's session keyring for an empty one.
    NewKeyring,
    /// Let no mount from here on be seen outside, or the other way round.
    PrivateMounts,
    /// Take a copy of the mounts at a host path.
    Open {
        slot: FdSlot,
        path: CString,
        attributes: u64,
    },
    /// Wait until the parent has mapped the ids.
    AwaitGo,
    /// The same; the parent may give each of the plan's mapped mounts with it.
    AwaitMapped { slots: Vec<FdSlot> },
    /// Take a copy of the mounts at a host path, unless the parent gave one.
    OpenUnlessGiven {
        slot: FdSlot,
        path: CString,
        attributes: u64,
    },
    /// Become the container's own root.
    BecomeRoot,
    /// Make a filesystem, not yet attached.
    NewFs {
        slot: FdSlot,
        kind: &'static CStr,
        options: Vec<(&'static CStr, CString)>,
        attributes: u32,
    },
    /// Attach what is in the slot at an absolute host path, and go there.
    Enter { slot: FdSlot, at: &'static CStr },
    /// Attach what is in the slot; no link is followed.
    Attach { slot: FdSlot, at: CString },
    /// Change attributes of the mount at a path.
    Seal { path: CString, attributes: u64 },
    /// Put a copy of the mount at a path over itself, with more attributes.
    Cover { path: CString, attributes: u64 },
    /// Mount an overlay at a path.
    Overlay {
        at: CString,
        options: CString,
        read_only: bool,
    },
    /// Make a directory.
    Mkdir { path: CString, mode: u32 },
    /// Make a file.
    File {
        path: CString,
        contents: Vec<u8>,
        mode: u32,
    },
    /// Write to a file of the kernel's.
    Set { path: CString, value: &'static CStr },
    /// Make a symbolic link.
    Symlink { path: CString, target: CString },
    /// Go to a directory.
    Chdir(CString),
    /// Make the current directory the root, and let go of the host's.
    Pivot,
    /// Set a limit, or the hard limit where that is lower.
    Limit { resource: Resource, value: u64 },
    /// Set a limit that init passes on to what it starts, and may lift from itself.
    LimitForExecs { resource: Resource, value: u64 },
    /// Name the host.
    Hostname(CString),
    /// Bring the loopback interface up.
    Loopback,
    /// Lead a session of its own, with default signal mask and umask.
    NewSession,
    /// Put descriptors where init expects them.
    InitFds(InitFds),
    /// Become the container's user and give up all capabilities but those kept for init.
    DropPrivileges { change_user: bool, keep: bool },
    /// Gain nothing by exec, ever.
    NoNewPrivileges,
    /// Install the seccomp filter, its listener at [`crate::NOTIFY_FD`].
    Seccomp(Rc<SeccompFilters>),
    /// Install the filter that asks, or fail: to see whether it can ask.
    SeccompListener(Rc<SeccompFilters>),
    /// Become the init program.
    Exec { file: OwnedFd, args: ExecArgs },
}
