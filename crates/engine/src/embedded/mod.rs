//! The embedded engine: containers made of kernel features, without a daemon.
//!
//! ```text
//! HOME/ids/N                 who has the Nth range of user ids
//! HOME/containers/ID/        0700, named by the container's id, locked by who makes it
//!   state.json               what a later process needs to find the container again
//!   launch.json              how its init is started, unless it ends with its owner
//!   agent.sock               where the agent listens
//!   agent.log                what the agent says before it dies
//!   workspace/               the container's /workspace, if it is older than the tree
//! TREE/n_…/fs/               the container's /workspace
//! ```
//!
//! The directory is created first and removed last, so whatever exists of a container has one: a
//! process that dies at any line leaves something that `list` shows and `destroy` removes.

mod create;
mod disk;
mod home;
mod id_ranges;
mod init_process;
mod kind;
mod pull;
mod remove_tree;
mod restart;
mod root;
mod spec;
mod sync;
mod tree;
mod workspace;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use hotcell_domain::{Admitted, ContainerId, ContainerSpec, EngineId, Lifetime, Phase, Reference};
use hotcell_image::{Collected, Credentials, ImageError, Images, InUse};
use hotcell_runtime::cgroup;
use tokio::io::unix::AsyncFd;
use tokio::net::UnixStream;
use tokio::sync::oneshot;

use self::create::EmbeddedInner;
use self::home::{Home, Record};
use self::tree::{NodeId, Tree};
use crate::{
    Abandonment, AgentStream, Capabilities, Container, DiskUse, Enforced, Engine, EngineError,
    EngineView, Garbage, HostSize, Pull, ReadyImage, SweepMode, Swept,
};

pub(crate) use self::kind::EmbeddedKind;
pub use self::tree::FileIds;

/// The name on the command line.
const NAME: &str = "embedded";

/// Settings of the embedded engine.
#[derive(Debug, Clone)]
pub struct EmbeddedConfig {
    /// The directory of its containers.
    pub home: PathBuf,
    /// The directory of their workspaces.
    pub tree: PathBuf,
    /// The program to start as the launcher.
    pub launcher: PathBuf,
    /// The agent's static binary.
    pub agent: &'static [u8],
    /// Put containers into cgroups, if the host has them. Without cgroups, limits are rlimits at
    /// best.
    pub cgroups: bool,
    /// Refuse to create a container if one of its limits cannot be enforced.
    pub require_limits: bool,
}

/// Creates containers with namespaces, cgroups and seccomp.
#[derive(Debug)]
pub struct Embedded {
    inner: Arc<EmbeddedInner>,
}

impl Embedded {
    /// Opens the engine's home, creates it if it is missing, and starts the launcher.
    pub fn open(config: EmbeddedConfig) -> Result<Self, EngineError> {
        Ok(Self {
            inner: Arc::new(EmbeddedInner::open(config)?),
        })
    }

    /// Enables OCI images from this store. Without it, only `host` and `rootfs:PATH` work.
    #[must_use]
    pub fn with_images(self, images: Images) -> Self {
        // Nobody else has it yet, so it cannot have been set by another task.
        let _ = self.inner.images().set(images);
        self
    }

    /// Sets the credentials for pulls. The default is those of this user.
    #[must_use]
    pub fn with_credentials(self, credentials: Credentials) -> Self {
        // Nobody else has it yet, so it cannot have been set by another task.
        let _ = self.inner.credentials().set(credentials);
        self
    }

    /// The store of OCI images.
    pub fn images(&self) -> Option<&Images> {
        self.inner.images().get()
    }

    /// Removes an image that no container uses.
    pub async fn remove_image(&self, reference: &Reference) -> Result<Collected, ImageError> {
        let reference = reference.clone();
        self.with_store(move |images, in_use| images.remove(&reference, in_use))
            .await
    }

    /// Removes what no image and no container needs; with `idle`, also images from which no
    /// container was created for this long.
    pub async fn collect_images(&self, idle: Option<Duration>) -> Result<Collected, ImageError> {
        self.with_store(move |images, in_use| images.gc(in_use, idle))
            .await
    }

    /// What [`Embedded::collect_images`] would remove.
    async fn count_images(&self, idle: Option<Duration>) -> Result<Collected, ImageError> {
        self.with_store(move |images, in_use| images.count_garbage(in_use, idle))
            .await
    }

    /// Counts the containers for which the predicate holds. A failure for one of them is logged and
    /// does not affect the others.
    async fn count<F>(&self, is_counted: F) -> Result<usize, EngineError>
    where
        F: Fn(&EmbeddedInner, &ContainerId) -> Result<bool, EngineError> + Send + 'static,
    {
        self.blocking(move |inner| {
            let is_counted = |id: &&ContainerId| match is_counted(inner, id) {
                Ok(is_counted) => is_counted,
                Err(error) => {
                    tracing::warn!(container.id = %id, %error, "a container is not swept");
                    false
                }
            };
            Ok(inner.home().ids()?.iter().filter(is_counted).count())
        })
        .await
    }

    async fn sweep_containers(&self, mode: SweepMode) -> Result<usize, EngineError> {
        match mode {
            SweepMode::Remove => self.count(EmbeddedInner::sweep).await,
            SweepMode::Count => self.count(EmbeddedInner::is_abandoned).await,
        }
    }

    async fn sweep_images(
        &self,
        unused_for: Option<Duration>,
        mode: SweepMode,
    ) -> Result<Swept, EngineError> {
        let swept = match mode {
            SweepMode::Count => self.count_images(unused_for).await,
            SweepMode::Remove => self.collect_images(unused_for).await,
        };
        match swept {
            Ok(swept) => Ok(Swept {
                images: swept.images,
                leftovers: swept.layers + swept.partial,
            }),
            // The store is in use; the next sweep removes the rest.
            Err(ImageError::Busy) => Ok(Swept::default()),
            Err(error) => Err(EngineError::engine("remove images")(error)),
        }
    }

    async fn with_store<F>(&self, work: F) -> Result<Collected, ImageError>
    where
        F: FnOnce(&Images, InUse<'_>) -> Result<Collected, ImageError> + Send + 'static,
    {
        let inner = Arc::clone(&self.inner);
        let done = tokio::task::spawn_blocking(move || match inner.images().get() {
            Some(images) => work(images, &|| root::images_in_use(inner.home())),
            None => Ok(Collected::default()),
        });
        done.await.unwrap_or(Err(ImageError::Cancelled))
    }

    /// Runs work on a blocking thread: the kernel's calls are short but synchronous.
    async fn blocking<T, F>(&self, work: F) -> Result<T, EngineError>
    where
        T: Send + 'static,
        F: FnOnce(&EmbeddedInner) -> Result<T, EngineError> + Send + 'static,
    {
        let inner = Arc::clone(&self.inner);
        tokio::task::spawn_blocking(move || work(&inner))
            .await
            .map_err(EngineError::engine("run the engine's work"))?
    }
}

#[async_trait]
impl Engine for Embedded {
    fn identity(&self) -> EngineId {
        EngineId::named(NAME)
    }

    async fn capabilities(&self) -> Result<Capabilities, EngineError> {
        self.blocking(|inner| {
            let host = if inner.uses_cgroups() {
                cgroup::HostCgroups::detect()
            } else {
                cgroup::HostCgroups::none("cgroups are switched off")
            };
            Ok(Capabilities {
                host_images: true,
                network: false,
                enforced: Enforced {
                    disk: inner.disk_enforcement(),
                    ..host.promises()
                },
                host_size: HostSize::read(),
            })
        })
        .await
    }

    async fn fetch_image(
        &self,
        spec: &Admitted<ContainerSpec>,
        pull: Pull<'_>,
        abandonment: &Abandonment,
    ) -> Result<ReadyImage, EngineError> {
        if let (Some(images), Some(source), Pull::IfMissing(progress)) =
            (self.images(), spec.image(), pull)
            && images.find(&source).is_none()
        {
            let (images, asked) = (images.clone(), source.value().clone());
            let credentials = self.inner.credentials().get_or_init(Credentials::of_user);
            let credentials = credentials.clone();
            let pull = |progress| async move {
                pull::pull(&images, &source, &credentials, progress).await
            };
            let pulls = self.inner.pulls();
            pulls.join(&asked, progress, abandonment, pull).await?;
        }
        let asked = spec.clone();
        let find = move |inner: &EmbeddedInner| root::find(inner.images().get(), &asked);
        let found = self.blocking(find).await?;
        Ok(ReadyImage::new(spec, found.id(), found))
    }

    async fn create(
        &self,
        id: &ContainerId,
        spec: &Admitted<ContainerSpec>,
        image: ReadyImage,
        abandonment: &Abandonment,
    ) -> Result<Container, EngineError> {
        let (answer, answered) = oneshot::channel();
        let inner = Arc::clone(&self.inner);
        let (asked, spec, abandonment) = (id.clone(), spec.clone(), abandonment.clone());
        // The work continues if the caller's future is dropped; an answer that nobody takes then
        // removes the container. The image is held until the record names it.
        tokio::task::spawn_blocking(move || {
            drop(answer.send(inner.create(&asked, &spec, &image, &abandonment)));
        });
        let made = answered
            .await
            .map_err(EngineError::engine("make the container"))??;
        Ok(made.commit())
    }

    async fn restart(
        &self,
        id: &ContainerId,
        abandonment: &Abandonment,
    ) -> Result<Container, EngineError> {
        let (asked, abandonment) = (id.clone(), abandonment.clone());
        let restart = move |inner: &EmbeddedInner| inner.restart(&asked, &abandonment);
        let record = self.blocking(restart).await?;
        Ok(started(id, record))
    }

    async fn open(&self, id: &ContainerId) -> Result<AgentStream, EngineError> {
        let socket = self.inner.home().socket(id)?;
        let stream = UnixStream::connect(socket.path()).await;
        let stream = stream.map_err(EngineError::engine("connect to the agent"))?;
        Ok(AgentStream::new(stream))
    }

    async fn inspect(&self, id: &ContainerId) -> Result<Container, EngineError> {
        let id = id.clone();
        self.blocking(move |inner| Ok(describe(&id, inner.home().read(&id)?)))
            .await
    }

    async fn list(&self) -> Result<Vec<Container>, EngineError> {
        self.blocking(|inner| list(inner.home())).await
    }

    async fn destroy(&self, id: &ContainerId) -> Result<(), EngineError> {
        let id = id.clone();
        self.blocking(move |inner| inner.destroy(&id)).await
    }

    async fn sync(&self, ids: &[ContainerId]) -> Result<(), EngineError> {
        let ids = ids.to_vec();
        let step = "bring containers to the disk";
        let sync = move |inner: &EmbeddedInner| {
            let synced = inner.tree().sync(&ids);
            synced.and_then(|()| inner.home().sync(&ids))
        };
        self.blocking(move |inner| sync(inner).map_err(EngineError::engine(step)))
            .await
    }

    async fn disk_use(&self, id: &ContainerId) -> Result<Option<DiskUse>, EngineError> {
        let id = id.clone();
        self.blocking(move |inner| inner.disk_use(&id).map(Some))
            .await
    }

    async fn exited(&self, id: &ContainerId) -> Result<(), EngineError> {
        let record = self.inner.home().read(id)?;
        let Some(pidfd) = record.map(|record| record.pidfd()).transpose()?.flatten() else {
            return Ok(());
        };
        // A pidfd becomes readable when its process ends.
        let step = "watch the container";
        #[expect(
            deprecated,
            reason = "an `OwnedFd` is the same descriptor for all its life"
        )]
        let pidfd = AsyncFd::new(pidfd).map_err(EngineError::engine(step))?;
        pidfd
            .readable()
            .await
            .map_err(EngineError::engine(step))?
            .retain_ready();
        Ok(())
    }

    async fn sweep(&self, garbage: Garbage, mode: SweepMode) -> Result<Swept, EngineError> {
        match (garbage, mode) {
            (Garbage::Containers, mode) => {
                let containers = self.sweep_containers(mode).await?;
                let workspaces = self.blocking(move |inner| inner.sweep_workspaces(mode));
                Ok(Swept::leftovers(containers + workspaces.await?))
            }
            (Garbage::Images { unused_for }, mode) => self.sweep_images(unused_for, mode).await,
        }
    }
}

/// The contents of an engine's directories, which a server may be using.
fn look(home: &Path, tree: &Path) -> Result<EngineView, EngineError> {
    // Workspaces are read before containers: a container's directory is created before its
    // workspace and removed after it.
    let nodes = Tree::to_look_at(tree).map(|tree| tree.nodes()).transpose();
    let nodes = nodes.map_err(EngineError::engine("list the workspaces"))?;
    let home = Home::to_look_at(home);
    let has_container = |node: &NodeId| {
        let directory = home.as_ref().map(|home| home.directory(node.container()));
        directory.is_some_and(|directory| directory.exists())
    };
    let mut unowned = nodes.unwrap_or_default();
    unowned.retain(|node| !has_container(node));
    Ok(EngineView {
        identity: EngineId::named(NAME),
        workspaces_unowned: unowned.into_iter().map(Into::into).collect(),
        containers: home.as_ref().map(list).transpose()?.unwrap_or_default(),
    })
}

fn list(home: &Home) -> Result<Vec<Container>, EngineError> {
    let mut containers = Vec::new();
    for id in home.ids()? {
        match home.read(&id) {
            Ok(record) => containers.push(describe(&id, record)),
            // It was removed meanwhile.
            Err(EngineError::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(containers)
}

/// Describes a container by its record and its cgroup, which reads files.
fn describe(id: &ContainerId, record: Option<Record>) -> Container {
    let Some(record) = record else {
        return Container {
            id: id.clone(),
            phase: Phase::Creating,
            lifetime: Lifetime::WithOwner,
            enforced: Enforced::NOTHING,
            oom_kills: 0,
            memory_bytes: None,
            cpu_time: None,
            image_digest: None,
            image_id: None,
            file_ids: None,
            spec: None,
        };
    };
    let is_alive = record.is_alive();
    Container {
        phase: if is_alive {
            Phase::Running
        } else {
            Phase::Stopped
        },
        oom_kills: record.cgroup.oom_kills(),
        memory_bytes: record.cgroup.memory_bytes(),
        cpu_time: record.cgroup.cpu_time(),
        ..started(id, record)
    }
}

/// Describes a container that was just started. Its new cgroup has counted nothing yet, so it is
/// not read.
fn started(id: &ContainerId, record: Record) -> Container {
    let lifetime = record.owner.lifetime();
    Container {
        id: id.clone(),
        phase: Phase::Running,
        lifetime,
        spec: record.spec.as_ref().and_then(|spec| spec.spec(lifetime)),
        enforced: record.enforced,
        oom_kills: 0,
        memory_bytes: None,
        cpu_time: None,
        file_ids: record.file_ids(),
        image_id: record.image_digest.clone(),
        image_digest: record.image_digest,
    }
}
