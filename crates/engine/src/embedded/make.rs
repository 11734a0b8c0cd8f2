//! Making a container, step by step, and taking it apart.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hotcell_domain::{ContainerId, ContainerSpec, ImageRef, Lifetime, Network};
use hotcell_runtime::{
    IdMap, LaunchError, LaunchSpec, Launched, Launcher, Limits, Root, USER_ID, cgroup, ids,
};

use super::home::{Home, Init, Record, Stage};
use super::{EmbeddedConfig, remove, search};
use crate::EngineError;

/// How long a killed container may take to be gone. The kernel needs milliseconds,
/// unless a process in it is stuck in a device.
const KILL_TIMEOUT: Duration = Duration::from_secs(30);

/// How long an agent whose owner lost its connection waits for it to come back.
const LINGER_MS: u32 = 2000;

/// `/dev/shm`, as Docker has it.
const SHM_BYTES: u64 = 64 << 20;

/// Open files of one process; what most hosts allow without asking.
const OPEN_FILES: u64 = 4096;

/// Makes and unmakes containers, one step after the other.
#[derive(Debug)]
pub(super) struct Maker {
    config: EmbeddedConfig,
    home: Home,
    launcher: Mutex<Arc<Launcher>>,
}

impl Maker {
    pub(super) fn open(config: EmbeddedConfig) -> Result<Self, EngineError> {
        let home = Home::open(&config.home)?;
        let launcher = Mutex::new(start_launcher(&config)?);
        Ok(Self {
            config,
            home,
            launcher,
        })
    }

    pub(super) fn home(&self) -> &Home {
        &self.home
    }

    /// See [`crate::Engine::create`].
    pub(super) fn create(
        &self,
        id: &ContainerId,
        spec: &ContainerSpec,
    ) -> Result<Record, EngineError> {
        let root = root(spec)?;
        if !self.home.claim(id)? {
            let record = self.home.require(id)?;
            if matches!(record.stage, Stage::Made(_)) || !record.is_abandoned() {
                return Ok(record);
            }
            self.destroy(id)?;
            return self.create(id, spec);
        }
        self.make(id, spec, root).inspect_err(|_| {
            if let Err(error) = self.destroy(id) {
                tracing::warn!(container.id = %id, %error, "a failed container stays");
            }
        })
    }

    fn make(
        &self,
        id: &ContainerId,
        spec: &ContainerSpec,
        root: Root,
    ) -> Result<Record, EngineError> {
        let mut record = Record::making(id, spec.lifetime);
        self.home.save(&record)?;
        let ids = self.choose_ids(id)?;
        let workspace = self.make_workspace(id, ids)?;
        let listener = self.listen(id)?;
        let log = File::create(self.home.directory(id).join("agent.log"));
        let log = log.map_err(EngineError::engine("make the agent's log"))?;
        let launch = LaunchSpec {
            cgroup: self.config.cgroups,
            ..launch_spec(id, spec, root, workspace, ids)
        };
        let launched = self.launch(&launch, &log, &listener)?;
        let init = Init {
            pid: launched.pid,
            start_time: launched.start_time,
            enforced: launched.enforced,
            cgroup: launched.cgroup,
            ids,
        };
        record.stage = Stage::Made(init);
        self.home.save(&record)?;
        self.require_limits(&record)?;
        Ok(record)
    }

    /// Starts init. A launcher that died is replaced once.
    fn launch(
        &self,
        spec: &LaunchSpec,
        log: &File,
        listener: &UnixListener,
    ) -> Result<Launched, EngineError> {
        let launcher = self.launcher();
        match launcher.launch(spec, log.as_fd(), &[listener.as_fd()]) {
            Err(LaunchError::Gone { .. }) => {
                let fresh = self.replace_launcher(&launcher)?;
                fresh.launch(spec, log.as_fd(), &[listener.as_fd()])
            }
            other => other,
        }
        .map_err(EngineError::engine("start the container"))
    }

    fn launcher(&self) -> Arc<Launcher> {
        Arc::clone(&self.launcher.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn replace_launcher(&self, dead: &Arc<Launcher>) -> Result<Arc<Launcher>, EngineError> {
        let mut launcher = self.launcher.lock().unwrap_or_else(PoisonError::into_inner);
        if Arc::ptr_eq(&launcher, dead) {
            *launcher = start_launcher(&self.config)?;
        }
        Ok(Arc::clone(&launcher))
    }

    fn require_limits(&self, record: &Record) -> Result<(), EngineError> {
        use hotcell_runtime::Enforcement::Cgroup;
        let Some(enforced) = record.enforced().filter(|_| self.config.require_limits) else {
            return Ok(());
        };
        let limits = [
            ("memory", enforced.memory),
            ("cpus", enforced.cpus),
            ("pids", enforced.pids),
        ];
        match limits
            .iter()
            .find(|(_, enforcement)| *enforcement != Cgroup)
        {
            Some((limit, _)) => Err(EngineError::Unlimited { limit }),
            None => Ok(()),
        }
    }

    /// Who the container's users are outside: as host root a range of ids of its own.
    fn choose_ids(&self, id: &ContainerId) -> Result<IdMap, EngineError> {
        let taken = self.taken_ids()?;
        // Where to begin is not important, only that not everyone begins at once.
        let first = id.as_str().bytes().fold(0_u32, |sum, byte| {
            sum.wrapping_mul(31).wrapping_add(u32::from(byte))
        });
        let free = (0..ids::RANGE_COUNT)
            .filter_map(|n| ids::range_base(first.wrapping_add(n) % ids::RANGE_COUNT))
            .find(|base| !taken.contains(&IdMap::Range { base: *base }));
        let free = free.ok_or(EngineError::Exhausted {
            resource: "user id ranges",
        })?;
        Ok(ids::choose(|| free))
    }

    fn taken_ids(&self) -> Result<Vec<IdMap>, EngineError> {
        let mut taken = Vec::new();
        for id in self.home.ids()? {
            if let Some(Record {
                stage: Stage::Made(init),
                ..
            }) = self.home.read(&id)?
            {
                taken.push(init.ids);
            }
        }
        Ok(taken)
    }

    fn make_workspace(&self, id: &ContainerId, ids: IdMap) -> Result<PathBuf, EngineError> {
        let path = self.home.directory(id).join("workspace");
        let made = fs::DirBuilder::new()
            .mode(0o755)
            .create(&path)
            .and_then(|()| match ids {
                IdMap::Range { .. } => {
                    std::os::unix::fs::chown(&path, ids.host_uid(USER_ID), ids.host_gid(USER_ID))
                }
                // The container's user is ourselves.
                IdMap::Single | IdMap::Subordinate { .. } => Ok(()),
            });
        made.map_err(EngineError::engine("make the workspace"))?;
        Ok(path)
    }

    fn listen(&self, id: &ContainerId) -> Result<UnixListener, EngineError> {
        let socket = self.home.socket(id)?;
        UnixListener::bind(socket.path()).map_err(EngineError::engine("make the agent's socket"))
    }

    /// See [`crate::Engine::destroy`].
    pub(super) fn destroy(&self, id: &ContainerId) -> Result<(), EngineError> {
        let record = self.home.require(id)?;
        let directory = self.home.directory(id);
        match &record.stage {
            Stage::Made(init) => {
                end(record.pidfd()?)?;
                init.cgroup
                    .remove()
                    .map_err(EngineError::engine("remove the cgroup"))?;
                remove_foreign(&directory, init.ids)?;
            }
            Stage::Making => {
                end(search::init_of(id).map_err(EngineError::engine("search for the container"))?)?;
                let place = cgroup::Host::detect().find(id.as_str());
                place
                    .remove()
                    .map_err(EngineError::engine("remove the cgroup"))?;
            }
        }
        remove::tree(&directory).map_err(EngineError::engine("remove the container's files"))
    }
}

/// Removes what belongs to ids that are not ours to remove as.
fn remove_foreign(directory: &Path, ids: IdMap) -> Result<(), EngineError> {
    match ids {
        IdMap::Range { .. } | IdMap::Single => Ok(()),
        IdMap::Subordinate { .. } => {
            hotcell_runtime::remove_tree_as(&ids, &directory.join("workspace"))
                .map_err(EngineError::engine("remove the container's files"))
        }
    }
}

fn start_launcher(config: &EmbeddedConfig) -> Result<Arc<Launcher>, EngineError> {
    let launcher = Launcher::start(&config.launcher, config.agent);
    Ok(Arc::new(
        launcher.map_err(EngineError::engine("start the launcher"))?,
    ))
}

/// Kills the container's init, and with it its process namespace, and waits for it.
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

fn root(spec: &ContainerSpec) -> Result<Root, EngineError> {
    if spec.network != Network::None {
        return Err(EngineError::Unsupported {
            what: "network but \"none\"".into(),
        });
    }
    match &spec.image {
        ImageRef::Host => Ok(Root::Host),
        ImageRef::Rootfs(path) => Ok(Root::Overlay {
            lowers: vec![path.clone()],
            scratch: None,
        }),
        ImageRef::Oci(reference) => Err(EngineError::Unsupported {
            what: format!("image {reference}"),
        }),
    }
}

fn launch_spec(
    id: &ContainerId,
    spec: &ContainerSpec,
    root: Root,
    workspace: PathBuf,
    ids: IdMap,
) -> LaunchSpec {
    let mut argv = search::argv(id);
    if spec.lifetime == Lifetime::WithOwner {
        argv.extend(["--linger-ms".to_owned(), LINGER_MS.to_string()]);
    }
    LaunchSpec {
        name: id.to_string(),
        root,
        workspace,
        ids,
        limits: Limits {
            memory_bytes: spec.limits.memory.get(),
            cpu_millis: spec.limits.cpus.get(),
            pids: spec.limits.pids.get(),
            tmp_bytes: spec.limits.tmp.get(),
            shm_bytes: SHM_BYTES,
            open_files: OPEN_FILES,
        },
        allow_root: spec.allow_root,
        argv,
        env: Vec::new(),
        cgroup: true,
    }
}
