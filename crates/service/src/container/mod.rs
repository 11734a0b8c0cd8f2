//! Containers, as callers see them.

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
use hotcell_engine::Progress;
use hotcell_store::AttachmentRow;

pub(crate) use self::live::{EndMode, LiveContainer};
pub(crate) use self::supervisor::{
    CreateError, Creation, EndCause, Origin, Supervisor, create, fetch_image,
};
use crate::{Abandonment, LimitView};

/// A container that somebody asks for. What is `None` is as configured.
#[derive(Debug, Clone, Default)]
pub struct Spawn {
    /// What its root is made of.
    pub image: Option<ImageRef>,
    /// Whether only `kill` ends it.
    pub is_persistent: bool,
    /// Its second name.
    pub alias: Option<Alias>,
    /// How long it lives.
    pub ttl_s: Option<u64>,
    /// The same key means the same request.
    pub key: Option<Name>,
    /// What it may reach.
    pub network: Option<Network>,
    /// How much it may use.
    pub limits: Option<Limits>,
    /// Variables of every exec in it.
    pub env: Env,
    /// Notes on it.
    pub labels: Labels,
    /// Who hears how far the pull of its image is.
    pub progress: Progress,
    /// Whether somebody waits for it. Without a key, a container that was abandoned is not
    /// created, or removed again: nobody would learn of it.
    pub abandonment: Abandonment,
}

/// What a container is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerName {
    /// Its handle.
    pub id: ContainerId,
    /// Its second name.
    pub alias: Option<Alias>,
}

/// A container as its owner sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerView {
    /// Its handle.
    pub id: ContainerId,
    /// Who owns it.
    pub principal: Principal,
    /// Its second name.
    pub alias: Option<Alias>,
    /// Where it is in its life.
    pub phase: Phase,
    /// What its root is made of.
    pub image: ImageRef,
    /// What the image's name meant when it was made, where it has a digest.
    pub image_digest: Option<String>,
    /// The name of the engine that holds it.
    pub engine: String,
    /// Whether only `kill` ends it.
    pub is_persistent: bool,
    /// Whether it came from the warm pool.
    pub is_warm: bool,
    /// Notes on it.
    pub labels: Labels,
    /// What it may reach.
    pub network: Network,
    /// How much it may use.
    pub limits: Limits,
    /// What stands behind each limit: `memory`, `cpu`, `pids`.
    pub enforced: Vec<LimitView>,
    /// When it was asked for.
    pub created_unix_ms: u64,
    /// When it was last used.
    pub last_used_unix_ms: u64,
    /// When it shall end.
    pub expires_unix_ms: Option<u64>,
    /// Memory in use, where it is known.
    pub memory_bytes: Option<u64>,
    /// Processor time used so far, where it is known.
    pub cpu_time: Option<Duration>,
    /// Processes the kernel killed because memory ran out.
    pub oom_kills: u64,
    /// Who works there.
    pub attachments: Vec<Attached>,
}

/// Somebody who works in a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attached {
    /// With what program.
    pub client_name: Name,
    /// In which of its sessions.
    pub session_id: Name,
    /// Since when.
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
