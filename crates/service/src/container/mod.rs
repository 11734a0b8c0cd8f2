//! Containers as callers see them.

mod attach;
mod kill;
mod list;
mod live;
mod spawn;
mod supervisor;

use std::time::Duration;

use hotcell_domain::{
    Alias, ContainerId, Env, ImageRef, Labels, Limits, Name, Network, Phase, Principal,
};
use hotcell_engine::{DiskUse, Progress};
use hotcell_store::AttachmentRow;

pub(crate) use self::live::{EndMode, LiveContainer};
pub(crate) use self::spawn::Spawned;
pub(crate) use self::supervisor::{CreateError, Creation, EndCause, Origin, Supervisor, create};
use crate::{Abandonment, EgressChoice, LimitView};

/// A request for a container. `None` means the configured default.
#[derive(Debug, Clone, Default)]
pub struct Spawn {
    /// Its root filesystem.
    pub image: Option<ImageRef>,
    /// Whether it lives until `kill`, without a TTL or idle timeout.
    pub is_persistent: bool,
    /// A name that the caller chooses and may use instead of the id.
    pub alias: Option<Alias>,
    /// Time to live.
    pub ttl_s: Option<u64>,
    /// Idempotency key: a repeated request returns the same container.
    pub key: Option<Name>,
    /// Network access.
    pub network: Option<Network>,
    /// What it may reach.
    pub egress: EgressChoice,
    /// Resource limits.
    pub limits: Option<Limits>,
    /// Environment variables of every exec.
    pub env: Env,
    /// Free-form key-value pairs.
    pub labels: Labels,
    /// Makes it the session of this name; each principal has at most one per name.
    pub session: Option<Name>,
    /// Receives the progress of the image pull.
    pub progress: Progress,
    /// Whether the caller still waits. Without a key, an abandoned container is not created, or is
    /// removed again: nobody would learn its id.
    pub abandonment: Abandonment,
}

/// The names of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerName {
    /// The container id.
    pub id: ContainerId,
    /// The name that its owner chose.
    pub alias: Option<Alias>,
}

/// A container as its owner sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerView {
    /// The container id.
    pub id: ContainerId,
    /// Who owns it.
    pub principal: Principal,
    /// The name that its owner chose.
    pub alias: Option<Alias>,
    /// Its current phase.
    pub phase: Phase,
    /// Its root filesystem.
    pub image: ImageRef,
    /// The digest that the image's name had at creation, if it has one.
    pub image_digest: Option<String>,
    /// The engine that runs it.
    pub engine: String,
    /// Whether it lives until `kill`, without a TTL or idle timeout.
    pub is_persistent: bool,
    /// Whether it came from the warm pool.
    pub is_warm: bool,
    /// Key-value pairs that its owner set.
    pub labels: Labels,
    /// The name of the session, if the container is one.
    pub session: Option<Name>,
    /// Network access.
    pub network: Network,
    /// The egress profile; `None`: it reaches nothing.
    pub egress: Option<Name>,
    /// Resource limits.
    pub limits: Limits,
    /// The disk usage when it was last measured.
    pub disk_use: Option<DiskUse>,
    /// What enforces each limit: `memory`, `cpu`, `pids`, `disk`.
    pub enforced: Vec<LimitView>,
    /// When it was requested.
    pub created_unix_ms: u64,
    /// When it was last used.
    pub last_used_unix_ms: u64,
    /// When its TTL ends.
    pub expires_unix_ms: Option<u64>,
    /// Current memory usage, if known.
    pub memory_bytes: Option<u64>,
    /// CPU time used so far, if known.
    pub cpu_time: Option<Duration>,
    /// Number of processes that the OOM killer has killed.
    pub oom_kills: u64,
    /// Which user ids the files of its workspace have on disk, if the engine reports it: `plain`,
    /// `shifted` or `owner`.
    pub workspace_ids: Option<&'static str>,
    /// The clients that work in it.
    pub attachments: Vec<Attached>,
}

/// A client session that works in a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attached {
    /// The client's name, as it reports it.
    pub client_name: Name,
    /// The session, as the client names it.
    pub session_id: Name,
    /// When it attached.
    pub attached_unix_ms: u64,
}

impl From<AttachmentRow> for Attached {
    fn from(row: AttachmentRow) -> Self {
        Self {
            client_name: row.client_name,
            session_id: row.session_id,
            attached_unix_ms: row.attached_unix_ms,
        }
    }
}
