//! What the launcher is asked to make.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::ids::RANGE_LEN;

/// One container, as the kernel needs to know it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LaunchSpec {
    /// Names the cgroup and the host inside; a plain file name.
    pub name: String,
    /// What `/` is made of.
    pub root: Root,
    /// A host directory, mounted writable at `/workspace`; owned by the host id that
    /// [`IdMap`] gives to [`USER_ID`].
    pub workspace: PathBuf,
    /// What the ids of the workspace's files on disk mean, if they are not the host ids that
    /// stand behind the container's. Needs [`IdMap::Range`], Linux 5.12 and a filesystem that
    /// can; where one is missing the container does not start.
    #[serde(default)]
    pub workspace_ids: Option<DiskIds>,
    /// Whose ids the container's ids are outside.
    pub ids: IdMap,
    /// What it may use.
    pub limits: Limits,
    /// Whether to keep what lets init change to another user: only then can
    /// anything in the container run as its root.
    pub allow_root: bool,
    /// Whether to put it into cgroups, where the host has them; without, limits are
    /// rlimits at best.
    pub cgroup: bool,
    /// Arguments of the init program, its own name first.
    pub argv: Vec<String>,
    /// `NAME=value` for the init program.
    pub env: Vec<String>,
}

/// The user and the group that init and everything it starts run as, inside.
pub const USER_ID: u32 = 1000;

/// The first of the caller's descriptors in the init program; the others follow.
pub const FIRST_FD: i32 = 3;

/// Where the init program finds the listener of the system call filter, if the kernel gives
/// one; it has to answer for those who make netlink sockets, who wait for that.
pub const NOTIFY_FD: i32 = 32;

/// What `/` is made of.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Root {
    /// The host's programs and libraries, read-only, with a synthetic `/etc`.
    Host,
    /// Directories stacked by overlayfs, the topmost first; read-only unless there
    /// is a scratch to take the changes.
    Overlay {
        /// At least one.
        lowers: Vec<PathBuf>,
        /// Host directories `upper` and `work` on one filesystem.
        scratch: Option<Scratch>,
    },
    /// Layers of an image in one directory, stacked by overlayfs, read-only. Where the
    /// kernel can, files of their root are files of the container's root.
    Layers {
        /// The directory that holds them.
        dir: PathBuf,
        /// Their names in it, the topmost first; at least one, plain.
        names: Vec<String>,
        /// `/etc/passwd`, in place of the image's.
        passwd: String,
        /// `/etc/group`, in place of the image's.
        group: String,
    },
}

/// Where overlayfs keeps changes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Scratch {
    /// The changed files.
    pub upper: PathBuf,
    /// Overlayfs' own.
    pub work: PathBuf,
}

/// Ids on disk that a mount shows as ids of the container: `count` of them, from `on_disk`
/// and from `inner` on. A file of any other owner is nobody's there, and nobody else can make
/// one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskIds {
    /// The first id on disk.
    pub on_disk: u32,
    /// The container's id that it is.
    pub inner: u32,
    /// How many follow each other, the first included.
    pub count: u32,
}

impl DiskIds {
    /// Files belong on disk to the ids that they have inside.
    pub const PLAIN: Self = Self {
        on_disk: 0,
        inner: 0,
        count: RANGE_LEN,
    };
}

/// Which host ids stand behind the container's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum IdMap {
    /// As host root: 0 to 65535 inside are `base` and up outside.
    Range {
        /// The host's id of the container's root.
        base: u32,
    },
    /// As an ordinary user: [`USER_ID`] inside is that user, and there is no other. The
    /// kernel lets such a container keep the user's supplementary groups, nameless.
    Single,
    /// As an ordinary user with subordinate ids: [`USER_ID`] inside is that user,
    /// the others are subordinate ids, set by `newuidmap`.
    Subordinate {
        /// First subordinate user id.
        uid_base: u32,
        /// First subordinate group id.
        gid_base: u32,
        /// How many of each are used.
        count: u32,
    },
}

/// What a container may use.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Limits {
    /// Memory of all processes together.
    pub memory_bytes: u64,
    /// Thousandths of a core.
    pub cpu_millis: u32,
    /// Processes and threads at once, init included.
    pub pids: u32,
    /// Size of the tmpfs at `/tmp`.
    pub tmp_bytes: u64,
    /// Size of the tmpfs at `/dev/shm`.
    pub shm_bytes: u64,
    /// Open files of one process.
    pub open_files: u64,
}

/// How well each limit of one container is kept on this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enforced {
    /// Memory.
    pub memory: Enforcement,
    /// Processor time.
    pub cpus: Enforcement,
    /// Number of processes.
    pub pids: Enforcement,
}

/// What stands behind a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Enforcement {
    /// A cgroup: the limit holds for the container as a whole.
    Cgroup,
    /// An rlimit: it holds for each process (memory) or for the container's user
    /// (processes), not for the container as a whole.
    Rlimit,
    /// Nothing.
    None,
}

impl Enforced {
    /// Of a container that does not run yet.
    pub const NOTHING: Self = Self {
        memory: Enforcement::None,
        cpus: Enforcement::None,
        pids: Enforcement::None,
    };

    /// Whether every limit holds for the container as a whole.
    pub fn is_complete(&self) -> bool {
        [self.memory, self.cpus, self.pids]
            .iter()
            .all(|kind| *kind == Enforcement::Cgroup)
    }
}
