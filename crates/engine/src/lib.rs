//! Container engines: the [`Engine`] trait, and one directory per engine. The conformance suite
//! that every engine must pass is in `testkit`.
//!
//! An engine creates a container whose PID 1 is our agent, and opens byte streams to it. Everything
//! else (execs, files) uses the agent protocol and is the same for every engine.

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

/// Creates containers, opens streams to their agents and removes them.
#[async_trait]
pub trait Engine: Send + Sync + 'static {
    /// Identifies the engine among all that a server may run on. Two engines with the same identity
    /// have the same containers.
    fn identity(&self) -> EngineId;

    /// What its containers support, and what enforces their limits, as far as known without
    /// creating one.
    async fn capabilities(&self) -> Result<Capabilities, EngineError>;

    /// Returns the image for a container, pulled if it is missing and `pull` allows it.
    ///
    /// Concurrent requests for the same image share one pull, which stops when the last of them is
    /// gone: its future dropped, or its request abandoned.
    async fn fetch_image(
        &self,
        spec: &Admitted<ContainerSpec>,
        pull: Pull<'_>,
        abandonment: &Abandonment,
    ) -> Result<ReadyImage, EngineError>;

    /// Creates the container and starts its agent; when it returns, `open` works. The image is what
    /// [`Engine::fetch_image`] returned for the same spec.
    ///
    /// Idempotent: creating an id that already runs is `Ok` and returns its state. Once nobody
    /// waits any more, the engine stops at its next step with [`EngineError::Abandoned`]. On `Err`,
    /// and when the future is dropped, nothing is left behind: no mount, no cgroup, no process, no
    /// file.
    async fn create(
        &self,
        id: &ContainerId,
        spec: &Admitted<ContainerSpec>,
        image: ReadyImage,
        abandonment: &Abandonment,
    ) -> Result<Container, EngineError>;

    /// Ends all processes of the container and starts its agent again, as it was created: its
    /// workspace stays, everything else is new. When it returns, `open` works.
    ///
    /// On `Err`, if abandoned, or if dropped, the workspace is unchanged, and it is unknown whether
    /// an agent runs. A half-created container, or one of which only the workspace is left, cannot
    /// be restarted.
    async fn restart(
        &self,
        id: &ContainerId,
        abandonment: &Abandonment,
    ) -> Result<Container, EngineError>;

    /// Opens a byte stream to the container's agent. Streams are independent; closing one does not
    /// affect the container.
    async fn open(&self, id: &ContainerId) -> Result<AgentStream, EngineError>;

    /// Returns the state of a container.
    async fn inspect(&self, id: &ContainerId) -> Result<Container, EngineError>;

    /// All containers of this engine, including those that other processes created.
    async fn list(&self) -> Result<Vec<Container>, EngineError>;

    /// Ends the container at once and removes everything it has: processes, mounts, cgroup, files.
    /// A container that does not exist is `NotFound`; a half-created or half-removed one is
    /// removed. For a graceful end, call the agent's `Shutdown` first.
    async fn destroy(&self, id: &ContainerId) -> Result<(), EngineError>;

    /// Waits until the container's agent has exited.
    async fn exited(&self, id: &ContainerId) -> Result<(), EngineError>;

    /// Syncs to disk what this engine needs to find these containers and restart them after a power
    /// cut. A container that is gone needs nothing; a daemon syncs its own data.
    async fn sync(&self, _ids: &[ContainerId]) -> Result<(), EngineError> {
        Ok(())
    }

    /// The disk usage of a container, measured from the host; `None` if only its agent can tell.
    async fn disk_use(&self, _id: &ContainerId) -> Result<Option<DiskUse>, EngineError> {
        Ok(None)
    }

    /// Removes garbage, or counts it. A failure for one object is logged and does not affect the
    /// others.
    async fn sweep(&self, garbage: Garbage, mode: SweepMode) -> Result<Swept, EngineError>;
}

/// Fetches the image of a container, then creates the container.
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

/// What containers of an engine support.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// Whether they can use this host's files as images: `host` and `rootfs:PATH`.
    pub host_images: bool,
    /// Whether they can have a network.
    pub network: bool,
    /// What enforces their limits.
    pub enforced: Enforced,
    /// The size of their host. Values that an engine does not report are this host's.
    pub host_size: HostSize,
}

/// The disk usage of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskUse {
    /// Bytes of everything that it can write to, except memory.
    pub bytes: u64,
    /// Files, directories and links.
    pub files: u64,
    /// Whether there is more than was measured: too many files, or too many levels.
    pub is_beyond_measure: bool,
    /// Whether processes other than the agent run, which may write.
    pub is_busy: bool,
}

/// The kinds of garbage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Garbage {
    /// Containers that should have ended with their owner, half-created ones, and objects that only
    /// they used.
    Containers,
    /// Parts of images that no image and no container needs, and images from which no container was
    /// created for `unused_for`, if that is set. In a shared engine, only images that we pulled are
    /// removed.
    Images {
        /// `None` keeps every complete image.
        unused_for: Option<Duration>,
    },
}

/// Whether garbage is removed or only counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SweepMode {
    /// Only count.
    Count,
    /// Remove.
    Remove,
}

/// The amount of garbage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Swept {
    /// Complete images.
    pub images: usize,
    /// All other objects.
    pub leftovers: usize,
}

impl Swept {
    /// Garbage without images.
    pub fn leftovers(leftovers: usize) -> Self {
        Self {
            images: 0,
            leftovers,
        }
    }
}

/// A container, as its engine reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    /// The id that the service chose.
    pub id: ContainerId,
    /// The phase: `Running`, or `Stopped` or `Failed` if its agent exited.
    pub phase: Phase,
    /// When it ends. One that is still being created may end with its creator.
    pub lifetime: Lifetime,
    /// What enforces its limits.
    pub enforced: Enforced,
    /// Number of processes that the OOM killer has killed.
    pub oom_kills: u64,
    /// Memory in use, if known.
    pub memory_bytes: Option<u64>,
    /// CPU time used so far, if known.
    pub cpu_time: Option<Duration>,
    /// The digest of its image, if it has one.
    pub image_digest: Option<String>,
    /// The engine's own id of that image, which does not change when tags move. Images built on
    /// this host have one, too.
    pub image_id: Option<String>,
    /// Which user ids the files of its workspace have on disk, if the engine stores them itself.
    pub file_ids: Option<FileIds>,
    /// The requested spec without its variables, if the engine remembers it.
    pub spec: Option<ContainerSpec>,
}
