//! What starts containers: the [`Engine`] trait, and one directory per engine. The suite
//! that every engine must pass is in `testkit`.
//!
//! An engine makes a container whose PID 1 is our agent and opens a byte stream to
//! it. Everything else (execs, files) is agent protocol and the same everywhere.

#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

pub mod docker;
mod embedded;
mod error;
mod progress;
mod pulls;
mod stored_spec;
mod stream;

use std::time::Duration;

use async_trait::async_trait;
use hotcell_domain::{Admitted, ContainerId, ContainerSpec, EngineId, Lifetime, Phase};

pub use docker::{Docker, DockerConfig};
pub use embedded::{Embedded, EmbeddedConfig};
pub use error::{EngineError, ImageFault};
pub use hotcell_runtime::{Enforced, Enforcement, HostSize};
pub use progress::{Progress, ProgressReceiver, PullProgress};
pub use stored_spec::StoredSpec;
pub use stream::AgentStream;

/// Starts containers, opens streams to their agents and ends them.
#[async_trait]
pub trait Engine: Send + Sync + 'static {
    /// The engine's name as users write it: `embedded`, `docker`.
    fn name(&self) -> &'static str;

    /// Which engine it is among all of its name. Two values with the same identity hold the
    /// same containers.
    fn identity(&self) -> EngineId {
        EngineId::named(self.name())
    }

    /// Makes sure that the image of a container to be is here, and tells how far that is.
    ///
    /// Those who want the same image at once share one pull, which stops when the last of
    /// them is gone. `create` does it too, and tells nobody. An engine that pulls nothing
    /// has nothing to do.
    async fn fetch_image(
        &self,
        _spec: &Admitted<ContainerSpec>,
        _progress: &Progress,
    ) -> Result<(), EngineError> {
        Ok(())
    }

    /// What the image of a container to be stands for here now, in the words of
    /// [`Container::image_id`]; `None` if it is not here, or is no image that a name can
    /// stand for. Asks no registry, and changes nothing. An engine without images knows none.
    async fn image_id(
        &self,
        _spec: &Admitted<ContainerSpec>,
    ) -> Result<Option<String>, EngineError> {
        Ok(None)
    }

    /// Makes the container and starts its agent; when it returns, `open` works.
    ///
    /// Idempotent: creating an id that already runs is `Ok` and tells its state. On
    /// `Err`, and when the future is dropped, nothing is left behind: no mount, no
    /// cgroup, no process, no file.
    async fn create(
        &self,
        id: &ContainerId,
        spec: &Admitted<ContainerSpec>,
    ) -> Result<Container, EngineError>;

    /// Ends whatever runs in the container and starts its agent again, as it was made: its
    /// workspace stays, everything else is new. When it returns, `open` works.
    ///
    /// On `Err`, and when the future is dropped, the workspace is as it was, and whether an
    /// agent runs is not known. One that was half made, or of which only the workspace is
    /// left, cannot be started again.
    async fn restart(&self, id: &ContainerId) -> Result<Container, EngineError>;

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

    /// Brings to the disk what this engine needs to find these containers and to start them
    /// again after a power cut. One that is gone needs nothing, and what a daemon keeps is the
    /// daemon's affair.
    async fn sync(&self, _ids: &[ContainerId]) -> Result<(), EngineError> {
        Ok(())
    }

    /// Waits until the container's agent has ended.
    async fn exited(&self, id: &ContainerId) -> Result<(), EngineError>;

    /// What will stand behind the limits of a container made now, as far as that can be
    /// told without making one.
    async fn limits(&self) -> Result<Enforced, EngineError>;

    /// How large the host of its containers is. What an engine cannot tell is this host's.
    async fn host_size(&self) -> Result<HostSize, EngineError> {
        Ok(HostSize::read())
    }

    /// Removes what dead processes left: containers that were to end with their owner, and
    /// half-made ones. Answers how many.
    async fn sweep(&self) -> Result<usize, EngineError>;

    /// How many things [`Engine::sweep`] finds to remove now. Removes nothing.
    async fn leftovers(&self) -> Result<usize, EngineError>;

    /// Removes what this engine keeps of images although no image and no container needs it;
    /// with `idle`, also images of which no container was made for so long. With `dry_run`
    /// it removes nothing, and answers what it would. Of an engine that others use too, only
    /// what we pulled is removed. One without images removes none.
    async fn sweep_images(
        &self,
        _idle: Option<Duration>,
        _dry_run: bool,
    ) -> Result<SweptImages, EngineError> {
        Ok(SweptImages::default())
    }
}

/// What was removed of an engine's images.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SweptImages {
    /// Images.
    pub images: usize,
    /// Parts of images that nothing needed.
    pub leftovers: usize,
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
    /// The digest of the image it was made of, if that has one.
    pub image_digest: Option<String>,
    /// The engine's own name of that image, which stays the same while tags move. One that
    /// was built on this host has it too.
    pub image_id: Option<String>,
    /// What it was asked to be, but for its variables, if the engine remembers that.
    pub spec: Option<ContainerSpec>,
}
