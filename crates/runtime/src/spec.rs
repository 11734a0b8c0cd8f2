//! The spec of one container, as the launcher receives it.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::ids::RANGE_LEN;

/// One container in terms of the kernel.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LaunchSpec {
    /// A plain file name; used as cgroup name and as host name inside.
    pub name: String,
    /// The root filesystem.
    pub root: Root,
    /// A host directory, mounted read-write at `/workspace`. It belongs to the host id to which
    /// [`IdMap`] maps [`USER_ID`].
    pub workspace: PathBuf,
    /// Id map of the workspace, if its files on disk are not owned by the container's host ids.
    /// Needs [`IdMap::Range`], Linux 5.12 and a filesystem that supports id-mapped mounts; if one
    /// is missing, the container does not start.
    #[serde(default)]
    pub workspace_ids: Option<DiskIds>,
    /// Maps the container's ids to host ids.
    pub ids: IdMap,
    /// Enforced by cgroups where possible, else by rlimits.
    pub limits: Limits,
    /// Whether init keeps the capabilities to change its user. Only then can anything in the
    /// container run as root.
    pub allow_root: bool,
    /// Whether to use the host's cgroups. Without them, limits are rlimits at best.
    pub cgroup: bool,
    /// Arguments of init, including `argv[0]`.
    pub argv: Vec<String>,
    /// Environment of init, as `NAME=value`.
    pub env: Vec<String>,
}

/// The user and group id, inside, of init and everything that it starts.
pub const USER_ID: u32 = 1000;

/// The number of the first passed descriptor in init; the others follow.
pub const FIRST_FD: i32 = 3;

/// The descriptor at which init finds the listener of the seccomp filter, if the kernel supports
/// one. Init must answer its notifications: a process that creates a netlink socket waits for the
/// answer.
pub const NOTIFY_FD: i32 = 32;

/// What the root filesystem is made of.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Root {
    /// The host's programs and libraries, read-only, with a synthetic `/etc`.
    Host,
    /// Directories stacked by overlayfs, topmost first. Read-only without `scratch`.
    Overlay {
        /// At least one.
        lowers: Vec<PathBuf>,
        /// Takes the changes; `upper` and `work` must be on one filesystem.
        scratch: Option<Scratch>,
    },
    /// Image layers in one directory, stacked by overlayfs, read-only. Where the kernel supports
    /// it, files of the image's root belong to the container's root.
    Layers {
        /// The directory that contains the layers.
        dir: PathBuf,
        /// Their plain file names in `dir`, topmost first; at least one.
        names: Vec<String>,
        /// Content of `/etc/passwd`; hides the image's.
        passwd: String,
        /// Content of `/etc/group`; hides the image's.
        group: String,
    },
}

/// The directories in which overlayfs keeps changes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Scratch {
    /// Receives the changed files.
    pub upper: PathBuf,
    /// Used by overlayfs internally.
    pub work: PathBuf,
}

/// Maps a range of ids on disk to ids of the container. Files of any other owner appear as
/// nobody's, and no other id can create files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskIds {
    /// The first id on disk.
    pub on_disk: u32,
    /// The id inside to which it maps.
    pub inner: u32,
    /// The length of the range.
    pub count: u32,
}

impl DiskIds {
    /// Files have the same ids on disk as inside.
    pub const PLAIN: Self = Self {
        on_disk: 0,
        inner: 0,
        count: RANGE_LEN,
    };
}

/// Maps the container's ids to host ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum IdMap {
    /// For host root: 0 to 65535 inside are the host ids from `base` on.
    Range {
        /// The host id of the container's root.
        base: u32,
        /// The host id of [`USER_ID`], if it is not in the range: several containers can then own
        /// the same files.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        user: Option<u32>,
    },
    /// For an ordinary user: [`USER_ID`] maps to that user, and no other id is mapped. The
    /// container keeps the user's supplementary groups, because the kernel does not allow to drop
    /// them; inside they have no names.
    Single,
    /// For an ordinary user with subordinate ids: [`USER_ID`] maps to that user, the other ids map
    /// to the subordinate ones, by means of `newuidmap`.
    Subordinate {
        /// First subordinate user id.
        uid_base: u32,
        /// First subordinate group id.
        gid_base: u32,
        /// How many of each are mapped.
        count: u32,
    },
}

/// The limits of one container.
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

/// What enforces each limit of one container on this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enforced {
    /// What enforces `memory_bytes`.
    pub memory: Enforcement,
    /// What enforces `cpu_millis`.
    pub cpus: Enforcement,
    /// What enforces `pids`.
    pub pids: Enforcement,
    /// What enforces disk space and files; set by whoever creates the workspace.
    #[serde(default)]
    pub disk: Enforcement,
}

/// How a limit is enforced.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Enforcement {
    /// By a cgroup, for the container as a whole.
    Cgroup,
    /// By an rlimit: per process (memory) or per user (number of processes), not for the container
    /// as a whole.
    Rlimit,
    /// By a project quota of the filesystem, for the container as a whole.
    ProjectQuota,
    /// By measuring: excess is noticed within seconds, and execs are ended.
    Watched,
    /// Not at all.
    #[default]
    None,
}

impl Enforced {
    /// For a container that is not running yet.
    pub const NOTHING: Self = Self {
        memory: Enforcement::None,
        cpus: Enforcement::None,
        pids: Enforcement::None,
        disk: Enforcement::None,
    };

    /// The first limit that nothing enforces for the whole container. Watched disk space counts as
    /// enforced: execs that exceed it are ended.
    pub fn missing(&self) -> Option<&'static str> {
        let limits = [
            ("memory", self.memory),
            ("cpus", self.cpus),
            ("pids", self.pids),
            ("disk", self.disk),
        ];
        let is_missing = |kind| matches!(kind, Enforcement::Rlimit | Enforcement::None);
        let mut limits = limits.into_iter();
        limits.find_map(|(limit, kind)| is_missing(kind).then_some(limit))
    }
}
