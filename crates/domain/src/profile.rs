//! The container profile: the properties of every container, whichever engine creates it.
//!
//! Engines translate a [`Profile`] into their own options and add nothing to it. The embedded
//! engine seals containers with `runtime`, which depends on none of our crates; `engine` checks at
//! compile time that both agree.

use crate::{ContainerSpec, Lifetime, Limits, Network};

const MIB: u64 = 1 << 20;

/// How a container is sealed and what it may use.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a seal of its own that an engine translates"
)]
pub struct Profile {
    /// The user that the agent and all execs run as.
    pub user_id: u32,
    /// The group of that user.
    pub group_id: u32,
    /// Whether execs may run as root of the container. If not, no process has a capability or can
    /// gain one.
    pub allow_root: bool,
    /// The writable directory that holds the container's files: `HOME` and the working
    /// directory of execs.
    pub workspace: &'static str,
    /// Whether no process can gain privileges by executing a file.
    pub no_new_privileges: bool,
    /// Whether system calls are filtered.
    pub seccomp: bool,
    /// Whether everything but the workspace, `/tmp` and `/dev/shm` is read-only.
    pub read_only_root: bool,
    /// Hidden entries of `/proc`: they reveal the host's kernel, hardware, disks, load and keys.
    pub proc_masked: &'static [&'static str],
    /// Network access.
    pub network: Network,
    /// Resource limits, including the size of `/tmp`.
    pub limits: Limits,
    /// Size of `/dev/shm`.
    pub shm_bytes_max: u64,
    /// Limits of each process.
    pub process: ProcessLimits,
    /// How long the agent waits for a new connection before it exits, if it ends with its owner.
    pub linger_ms: Option<u32>,
}

/// Limits of each process in a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessLimits {
    /// Open files; most hosts allow this by default.
    pub open_files_max: u64,
    /// One byte is too little for any core file, and unlike zero it also keeps the kernel
    /// from running the host's crash handler.
    pub core_bytes_max: u64,
    /// Memory that a process may lock.
    pub locked_bytes_max: u64,
    /// Enough for one message queue of the default size.
    pub message_queue_bytes_max: u64,
    /// Timers and pending signals.
    pub pending_signals_max: u64,
}

impl ProcessLimits {
    /// The limits of all containers.
    pub const DEFAULT: Self = Self {
        open_files_max: 4096,
        core_bytes_max: 1,
        locked_bytes_max: 8 * MIB,
        message_queue_bytes_max: 128 << 10,
        pending_signals_max: 1024,
    };
}

impl Profile {
    /// See [`Profile::user_id`]; the group has the same number.
    pub const USER_ID: u32 = 1000;
    /// See [`Profile::workspace`].
    pub const WORKSPACE: &'static str = "/workspace";
    /// See [`Profile::shm_bytes_max`].
    pub const SHM_BYTES_MAX: u64 = 64 * MIB;
    /// See [`Profile::linger_ms`].
    pub const LINGER_MS: u32 = 2000;
    /// See [`Profile::proc_masked`].
    pub const PROC_MASKED: &'static [&'static str] = &[
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

    /// The profile of a container. Whatever neither caller nor operator can choose is the same for
    /// all containers.
    pub fn of(spec: &ContainerSpec) -> Self {
        Self {
            user_id: Self::USER_ID,
            group_id: Self::USER_ID,
            allow_root: spec.allow_root,
            workspace: Self::WORKSPACE,
            no_new_privileges: true,
            seccomp: true,
            read_only_root: true,
            proc_masked: Self::PROC_MASKED,
            network: spec.network,
            limits: spec.limits,
            shm_bytes_max: Self::SHM_BYTES_MAX,
            process: ProcessLimits::DEFAULT,
            linger_ms: (spec.lifetime == Lifetime::WithOwner).then_some(Self::LINGER_MS),
        }
    }

    /// User and group, as `1000:1000`.
    pub fn user(&self) -> String {
        format!("{}:{}", self.user_id, self.group_id)
    }

    /// The variable that names the home directory.
    pub fn home_variable(&self) -> String {
        format!("HOME={}", self.workspace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ImageRef;

    #[test]
    fn every_container_is_sealed_and_only_the_operator_allows_root() {
        let mut spec = ContainerSpec::new(ImageRef::Host);
        let profile = Profile::of(&spec);
        assert!(profile.no_new_privileges && profile.seccomp && profile.read_only_root);
        assert_eq!(
            (profile.user().as_str(), profile.allow_root),
            ("1000:1000", false)
        );
        assert_eq!(profile.linger_ms, None);
        (spec.allow_root, spec.lifetime) = (true, Lifetime::WithOwner);
        let profile = Profile::of(&spec);
        assert!(profile.allow_root && profile.no_new_privileges);
        assert_eq!(profile.linger_ms, Some(Profile::LINGER_MS));
    }
}
