//! Creates a container step by step, and removes it.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use hotcell_domain::{Admitted, ContainerId, ContainerSpec, Lifetime};
use hotcell_image::{Credentials, Images};
use hotcell_runtime::{Enforced, IdMap, LaunchError, LaunchSpec, Launched, Launcher, cgroup};

use super::home::{ContainerLock, Home, Owner, Record};
use super::id_ranges::IdRanges;
use super::root::ContainerRoot;
use super::tree::Tree;
use super::{EmbeddedConfig, describe, init_process, remove_tree, spec, started};
use crate::pulls::Pulls;
use crate::stored_spec::StoredSpec;
use crate::uncommitted::Uncommitted;
use crate::{Abandonment, Container, EngineError, ReadyImage};

/// How long a killed container may take to exit. The kernel needs milliseconds, unless a process is
/// stuck in a device driver.
const KILL_TIMEOUT: Duration = Duration::from_secs(30);

/// How many launchers may die during one launch.
const LAUNCHER_DEATHS_MAX: u32 = 4;

/// Creates and removes containers, one step after the other.
#[derive(Debug)]
pub(super) struct EmbeddedInner {
    config: EmbeddedConfig,
    home: Home,
    tree: Tree,
    id_ranges: IdRanges,
    launcher: Mutex<Arc<Launcher>>,
    /// Whether a launcher has started a container, so that others can.
    has_launched: AtomicBool,
    images: OnceLock<Images>,
    credentials: OnceLock<Credentials>,
    pulls: Pulls,
    disk_quotas: OnceLock<bool>,
}

impl EmbeddedInner {
    pub(super) fn open(config: EmbeddedConfig) -> Result<Self, EngineError> {
        let home = Home::open(&config.home)?;
        let tree = Tree::open(&config.tree);
        Ok(Self {
            id_ranges: IdRanges::open(&config.home, &home)?,
            home,
            tree: tree.map_err(EngineError::engine("make the directory of workspaces"))?,
            launcher: Mutex::new(
                start_launcher(&config).map_err(EngineError::engine("start the launcher"))?,
            ),
            has_launched: AtomicBool::new(false),
            images: OnceLock::new(),
            credentials: OnceLock::new(),
            pulls: Pulls::default(),
            disk_quotas: OnceLock::new(),
            config,
        })
    }

    pub(super) fn home(&self) -> &Home {
        &self.home
    }

    pub(super) fn tree(&self) -> &Tree {
        &self.tree
    }

    pub(super) fn id_ranges(&self) -> &IdRanges {
        &self.id_ranges
    }

    pub(super) fn uses_cgroups(&self) -> bool {
        self.config.cgroups
    }

    /// Whether filesystem quotas limit the disk usage of containers, once known.
    pub(super) fn known_disk_quotas(&self) -> &OnceLock<bool> {
        &self.disk_quotas
    }

    pub(super) fn images(&self) -> &OnceLock<Images> {
        &self.images
    }

    pub(super) fn credentials(&self) -> &OnceLock<Credentials> {
        &self.credentials
    }

    pub(super) fn pulls(&self) -> &Pulls {
        &self.pulls
    }

    /// See [`crate::Engine::create`]. The container stays locked until it is taken or undone.
    pub(super) fn create(
        self: &Arc<Self>,
        id: &ContainerId,
        spec: &Admitted<ContainerSpec>,
        image: &ReadyImage,
        abandonment: &Abandonment,
    ) -> Result<Uncommitted<Container>, EngineError> {
        spec::check(spec.value())?;
        let container_root = image.payload(spec)?;
        // Before anything is locked: the child of the probe inherits our descriptors, and could
        // hold the lock a moment longer than we live.
        self.tree.file_ids();
        self.has_disk_quotas();
        let lock = self.home.claim(id)?;
        if let Some(record) = self.home.read(id)? {
            return Ok(Uncommitted::existing(describe(id, Some(record))));
        }
        let made = self
            .clear(id)
            .and_then(|()| abandonment.check())
            .and_then(|()| self.make(id, spec.value(), container_root))
            .and_then(|record| abandonment.check().map(|()| record));
        match made {
            Ok(record) => {
                let container = started(id, record);
                let (inner, id) = (Arc::clone(self), id.clone());
                // In a thread, because the caller that drops it may be one that must not block.
                Ok(Uncommitted::made(container, move || {
                    std::thread::spawn(move || inner.destroy_or_warn(&id, &lock));
                }))
            }
            Err(error) => {
                self.destroy_or_warn(id, &lock);
                Err(error)
            }
        }
    }

    fn make(
        &self,
        id: &ContainerId,
        spec: &ContainerSpec,
        container_root: &ContainerRoot,
    ) -> Result<Record, EngineError> {
        if let (Some(images), Some(image)) = (self.images.get(), &container_root.image) {
            images.used(image);
        }
        let workspace = self.make_workspace(id, &spec.limits)?;
        let listener = self.listen(id)?;
        let log = self.make_log(id)?;
        let root = container_root.root.clone();
        let (cgroups, image) = (self.config.cgroups, container_root.image.as_ref());
        let launch = spec::launch(id, spec, root, &workspace, cgroups, image);
        if spec.lifetime == Lifetime::UntilDestroyed {
            self.home.save_launch(id, &launch)?;
        }
        let launched = self.launch(id, &launch, &log, &listener)?;
        let record = Record {
            pid: launched.pid,
            start_time: launched.start_time,
            enforced: Enforced {
                disk: workspace.disk,
                ..launched.enforced
            },
            cgroup: launched.cgroup,
            ids: workspace.ids,
            node: Some(workspace.node),
            file_ids: Some(workspace.format.ids),
            owner: Owner::us(spec.lifetime),
            manifest: container_root
                .image
                .as_ref()
                .map(|image| image.manifest.to_string()),
            image_digest: container_root
                .image
                .as_ref()
                .map(|image| image.digest.to_string()),
            spec: Some(StoredSpec::of(spec)),
            restarts: false,
        };
        self.home.save(id, &record)?;
        self.require_limits(&record)?;
        Ok(record)
    }

    pub(super) fn make_log(&self, id: &ContainerId) -> Result<File, EngineError> {
        let log = File::create(self.home.directory(id).join("agent.log"));
        log.map_err(EngineError::engine("make the agent's log"))
    }

    /// Starts init. A launcher that died is replaced; the caller may try again if they keep dying.
    pub(super) fn launch(
        &self,
        id: &ContainerId,
        spec: &LaunchSpec,
        log: &File,
        listener: &UnixListener,
    ) -> Result<Launched, EngineError> {
        let mut launcher = self.launcher();
        for _ in 0..LAUNCHER_DEATHS_MAX {
            match launcher.launch(spec, log.as_fd(), &[listener.as_fd()]) {
                Ok(made) => {
                    self.has_launched.store(true, Ordering::Relaxed);
                    return Ok(made);
                }
                Err(LaunchError::Gone { .. }) => {}
                // It died before it was ready, or this host never lets one be.
                Err(LaunchError::Start { .. }) if self.has_launched.load(Ordering::Relaxed) => {}
                Err(other) => return Err(EngineError::engine("start the container")(other)),
            }
            match self.replace_launcher(&launcher) {
                Ok(next) => launcher = next,
                // The next round finds the old one dead, and tries again.
                Err(error) => tracing::warn!(%error, "could not start another launcher"),
            }
            end_unrecorded(id)?;
        }
        Err(EngineError::Unavailable {
            engine: "embedded",
            hint: "something on this host keeps ending its launcher",
            source: "the launcher ended each time".into(),
        })
    }

    fn launcher(&self) -> Arc<Launcher> {
        Arc::clone(&self.launcher.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn replace_launcher(&self, dead: &Arc<Launcher>) -> Result<Arc<Launcher>, LaunchError> {
        let mut launcher = self.launcher.lock().unwrap_or_else(PoisonError::into_inner);
        if Arc::ptr_eq(&launcher, dead) {
            *launcher = start_launcher(&self.config)?;
        }
        Ok(Arc::clone(&launcher))
    }

    pub(super) fn require_limits(&self, record: &Record) -> Result<(), EngineError> {
        match record.enforced.missing() {
            Some(limit) if self.config.require_limits => Err(EngineError::Unlimited { limit }),
            _ => Ok(()),
        }
    }

    pub(super) fn listen(&self, id: &ContainerId) -> Result<UnixListener, EngineError> {
        let socket = self.home.socket(id)?;
        UnixListener::bind(socket.path()).map_err(EngineError::engine("make the agent's socket"))
    }

    /// See [`crate::Engine::destroy`].
    pub(super) fn destroy(&self, id: &ContainerId) -> Result<(), EngineError> {
        match self.home.lock(id)? {
            Some(lock) => self.destroy_locked(id, &lock),
            None => Err(EngineError::NotFound { id: id.clone() }),
        }
    }

    /// Removes a container if it is abandoned.
    pub(super) fn sweep(&self, id: &ContainerId) -> Result<bool, EngineError> {
        let Some(lock) = self.lock_abandoned(id)? else {
            return Ok(false);
        };
        self.destroy_locked(id, &lock)?;
        Ok(true)
    }

    /// Whether a container is abandoned: nobody is creating or removing it, and either it should
    /// have ended with its owner, who is gone, or its creator died halfway.
    pub(super) fn is_abandoned(&self, id: &ContainerId) -> Result<bool, EngineError> {
        Ok(self.lock_abandoned(id)?.is_some())
    }

    fn lock_abandoned(&self, id: &ContainerId) -> Result<Option<ContainerLock>, EngineError> {
        let Some(lock) = self.home.try_lock(id)? else {
            return Ok(None);
        };
        let record = self.home.read(id)?;
        let is_abandoned = record.is_none_or(|record| record.owner.has_left());
        Ok(is_abandoned.then_some(lock))
    }

    fn destroy_or_warn(&self, id: &ContainerId, lock: &ContainerLock) {
        if let Err(error) = self.destroy_locked(id, lock) {
            tracing::warn!(container.id = %id, %error, "an unwanted container stays");
        }
    }

    fn destroy_locked(&self, id: &ContainerId, _: &ContainerLock) -> Result<(), EngineError> {
        let directory = self.home.directory(id);
        let record = self.home.read(id)?;
        match &record {
            Some(record) => end_recorded(id, record)?,
            None => end_unrecorded(id)?,
        }
        self.remove_workspace(id, record.as_ref())?;
        self.lift_disk_limit(record.as_ref());
        if let Some(IdMap::Range { base, .. }) = record.map(|record| record.ids) {
            self.id_ranges.give_back(base, id, &self.home);
        }
        remove_tree::tree(&directory).map_err(EngineError::engine("remove the container's files"))
    }

    /// Removes from a locked directory what a creator that died left in it.
    fn clear(&self, id: &ContainerId) -> Result<(), EngineError> {
        let directory = self.home.directory(id);
        let step = "clear the container's directory";
        let empty = fs::read_dir(&directory).map(|mut entries| entries.next().is_none());
        if empty.map_err(EngineError::engine(step))? && !self.has_workspace(id) {
            return Ok(());
        }
        end_unrecorded(id)?;
        self.remove_workspace(id, None)?;
        remove_tree::contents(&directory).map_err(EngineError::engine(step))
    }
}

fn start_launcher(config: &EmbeddedConfig) -> Result<Arc<Launcher>, LaunchError> {
    Launcher::start(&config.launcher, config.agent).map(Arc::new)
}

/// Ends the processes of a container.
pub(super) fn end_recorded(id: &ContainerId, record: &Record) -> Result<(), EngineError> {
    end(record.pidfd()?)?;
    if record.restarts {
        end_unrecorded(id)?;
    }
    remove_cgroup(&record.cgroup)
}

/// Ends the processes of a container that has no record.
fn end_unrecorded(id: &ContainerId) -> Result<(), EngineError> {
    end(init_process::init_of(id).map_err(EngineError::engine("search for the container"))?)?;
    remove_cgroup(&cgroup::HostCgroups::detect().find(id.as_str()))
}

/// Kills the container's init, and with it the whole PID namespace, and waits for the exit.
fn end(pidfd: Option<OwnedFd>) -> Result<(), EngineError> {
    let Some(pidfd) = pidfd else {
        return Ok(());
    };
    hotcell_runtime::kill(pidfd.as_fd()).map_err(EngineError::engine("kill the container"))?;
    let step = "wait for the container";
    let gone = hotcell_runtime::wait_exit(pidfd.as_fd(), KILL_TIMEOUT);
    if gone.map_err(EngineError::engine(step))? {
        return Ok(());
    }
    Err(EngineError::engine(step)(io::Error::from(
        io::ErrorKind::TimedOut,
    )))
}

fn remove_cgroup(cgroups: &cgroup::ContainerCgroups) -> Result<(), EngineError> {
    cgroups
        .remove()
        .map_err(EngineError::engine("remove the cgroup"))
}
