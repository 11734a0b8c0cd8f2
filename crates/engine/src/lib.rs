//! What starts containers: the [`Engine`] trait, and one directory per engine. The suite
//! that every engine must pass is in `testkit`.
//!
//! An engine makes a container whose PID 1 is our agent and opens a byte stream to
//! it. Everything else (execs, files) is agent protocol and the same everywhere.

#![forbid(unsafe_code)]

mod abandonment;
pub mod docker;
mod embedded;
mod error;
mod kind;
mod list;
mod new_id;
mod progress;
mod pulls;
mod ready_image;
mod stored_spec;
mod stream;
mod uncommitted;

use std::time::Duration;

use async_trait::async_trait;
use hotcell_domain::{Admitted, ContainerId, ContainerSpec, EngineId, Lifetime, Phase};

pub use abandonment::{Abandonment, Waiting};
pub use docker::{Docker, DockerConfig};
pub use embedded::{Embedded, EmbeddedConfig, FileIds};
pub use error::{EngineError, ImageFault, error_chain};
pub use hotcell_runtime::{Enforced, Enforcement, HostSize};
pub use kind::{Diagnosis, EngineKind, EngineMissing, EngineSetup, EngineView};
pub use list::ENGINES;
pub use progress::{Progress, ProgressReceiver, PullProgress};
pub use ready_image::{Pull, ReadyImage};
pub use stored_spec::StoredSpec;
pub use stream::AgentStream;

/// Starts containers, opens streams to their agents and ends them.
#[async_trait]
pub trait Engine: Send + Sync + 'static {
    /// Which engine this is among all that a server may run on. Two values with the same
    /// identity hold the same containers.
    fn identity(&self) -> EngineId;

    /// What its containers can have, and what enforces their limits, as far as that can be
    /// told without making one.
    async fn capabilities(&self) -> Result<Capabilities, EngineError>;

    /// The image of a container to be, pulled if it is missing and `pull` allows it.
    ///
    /// Those who want the same image at once share one pull, which stops when the last of
    /// them is gone: its future dropped, or its request abandoned.
    async fn fetch_image(
        &self,
        spec: &Admitted<ContainerSpec>,
        pull: Pull<'_>,
        abandonment: &Abandonment,
    ) -> Result<ReadyImage, EngineError>;

    /// Makes the container and starts its agent; when it returns, `open` works. The image is
    /// what [`Engine::fetch_image`] returned for the same spec.
    ///
    /// Idempotent: creating an id that already runs is `Ok` and tells its state. Once nobody
    /// waits any more, the engine stops at its next step with [`EngineError::Abandoned`]. On
    /// `Err`, and when the future is dropped, nothing is left behind: no mount, no
    /// cgroup, no process, no file.
    async fn create(
        &self,
        id: &ContainerId,
        spec: &Admitted<ContainerSpec>,
        image: ReadyImage,
        abandonment: &Abandonment,
    ) -> Result<Container, EngineError>;

    /// Ends whatever runs in the container and starts its agent again, as it was made: its
    /// workspace stays, everything else is new. When it returns, `open` works.
    ///
    /// On `Err`, abandoned or dropped, the workspace is as it was, and whether an agent runs
    /// is not known. One that was half made, or of which only the workspace is
    /// left, cannot be started again.
    async fn restart(
        &self,
        id: &ContainerId,
        abandonment: &Abandonment,
    ) -> Result<Container, EngineError>;

    /// Opens a byte stream to the container's agent. Streams are independent; closing
    /// one changes nothing in the container.
    async fn open(&self, id: &ContainerId) -> Result<AgentStream, EngineError>;

    /// Tells how a container is.
    async fn inspect(&self, id: &ContainerId) -> Result<Container, EngineError>;

    /// Every container this engine holds, also those another process made.
    async fn list(&self) -> Result<Vec<Container>, EngineError>;

    /// Ends the container at once and removes all of it: processes, mounts, cgroup,
    /// files. A container that does not exist is `NotFound`; one that was half made or
    /// half removed is removed. A graceful end is the agent's `Shutdown`, before this.
    async fn destroy(&self, id: &ContainerId) -> Result<(), EngineError>;

    /// Waits until the container's agent has ended.
    async fn exited(&self, id: &ContainerId) -> Result<(), EngineError>;

    /// Brings to the disk what this engine needs to find these containers and to start them
    /// again after a power cut. One that is gone needs nothing, and what a daemon keeps is the
    /// daemon's affair.
    async fn sync(&self, _ids: &[ContainerId]) -> Result<(), EngineError> {
        Ok(())
    }

    /// What a container takes of the disk, as its host sees it; `None` if only its agent can tell.
    async fn disk_use(&self, _id: &ContainerId) -> Result<Option<DiskUse>, EngineError> {
        Ok(None)
    }

    /// Removes garbage, or counts it. One thing that cannot be removed is logged and does not
    /// keep the others from being removed.
    async fn sweep(&self, garbage: Garbage, mode: SweepMode) -> Result<Swept, EngineError>;
}

/// Fetches the image of a container and makes the container of it.
pub async fn fetch_and_create(
    engine: &(impl Engine + ?Sized),
    id: &ContainerId,
    spec: &Admitted<ContainerSpec>,
) -> Result<Container, EngineError> {
    let (progress, abandonment) = (Progress::default(), Abandonment::default());
    let pull = Pull::IfMissing(&progress);
    let image = engine.fetch_image(spec, pull, &abandonment).await?;
    engine.create(id, spec, image, &abandonment).await
}

/// What containers of an engine can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// Whether they can be made of this host's own files: `host` and `rootfs:PATH`.
    pub host_images: bool,
    /// Whether they can reach a network.
    pub network: bool,
    /// What enforces their limits.
    pub enforced: Enforced,
    /// How large their host is. What an engine cannot tell is this host's.
    pub host_size: HostSize,
}

/// What a container takes of the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskUse {
    /// Of everything that it can write to but memory.
    pub bytes: u64,
    /// Files, directories and links.
    pub files: u64,
    /// There is more than can be measured: more files than it may have, or too many levels.
    pub is_beyond_measure: bool,
    /// Something runs in it besides its agent, and may write.
    pub is_busy: bool,
}

/// What dead processes and unused images leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Garbage {
    /// Containers that were to end with their owner, half-made ones, and what only they used.
    Containers,
    /// Parts of images that no image and no container needs, and images of which no
    /// container was made for `unused_for`, if that is set. In an engine that others use too,
    /// only what we pulled is removed.
    Images {
        /// `None` keeps every whole image.
        unused_for: Option<Duration>,
    },
}

/// Whether garbage is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SweepMode {
    /// It is only counted.
    Count,
    /// It is removed.
    Remove,
}

/// How much garbage there was.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Swept {
    /// Whole images.
    pub images: usize,
    /// Everything else.
    pub leftovers: usize,
}

impl Swept {
    /// So many things that are no images.
    pub fn leftovers(leftovers: usize) -> Self {
        Self {
            images: 0,
            leftovers,
        }
    }
}

/// A container as its engine sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    /// Its id.
    pub id: ContainerId,
    /// Where it is in its life: `Running`, or `Stopped` or `Failed` if its agent ended.
    pub phase: Phase,
    /// When it ends. One that is not made yet may end with whoever makes it.
    pub lifetime: Lifetime,
    /// What stands behind its limits.
    pub enforced: Enforced,
    /// Processes the kernel killed because memory ran out, so far.
    pub oom_kills: u64,
    /// Memory in use, where it is known.
    pub memory_bytes: Option<u64>,
    /// Processor time used so far, where it is known.
    pub cpu_time: Option<Duration>,
    /// The digest of the image it was made of, if that has one.
    pub image_digest: Option<String>,
    /// The engine's own name of that image, which stays the same while tags move. One that
    /// was built on this host has it too.
    pub image_id: Option<String>,
    /// The user ids that files of its workspace have on disk, if the engine keeps them itself.
    pub file_ids: Option<FileIds>,
    /// What it was asked to be, but for its variables, if the engine remembers that.
    pub spec: Option<ContainerSpec>,
}
