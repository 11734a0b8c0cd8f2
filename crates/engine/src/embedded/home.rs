//! The engine's directory, and the record of each container.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use hotcell_domain::{ContainerId, Digest, Lifetime};
use hotcell_runtime::cgroup::ContainerCgroups;
use hotcell_runtime::{Enforced, IdMap, LaunchSpec};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::tree::{FileIds, NodeId};
use crate::EngineError;
use crate::stored_spec::StoredSpec;

/// A record has a few hundred bytes; a larger file is not one of ours.
const RECORD_BYTES_MAX: u64 = 64 << 10;

/// Larger than the longest message to the launcher.
const LAUNCH_BYTES_MAX: u64 = 256 << 10;

/// The directory of containers.
#[derive(Debug)]
pub(super) struct Home {
    containers: PathBuf,
}

/// The record of a container whose init was started.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) pid: u32,
    pub(super) start_time: u64,
    pub(super) cgroup: ContainerCgroups,
    pub(super) enforced: Enforced,
    pub(super) ids: IdMap,
    /// The node of its workspace; `None` if the workspace is in the container's own directory, with
    /// shifted ids, as before there was a tree.
    #[serde(default)]
    pub(super) node: Option<NodeId>,
    /// The ids of its files on disk, as in the node's format. Also stored here, so that a list
    /// reads only one file per container.
    #[serde(default)]
    pub(super) file_ids: Option<FileIds>,
    pub(super) owner: Owner,
    /// The manifest of its image, if it was created from one.
    #[serde(default)]
    pub(super) manifest: Option<String>,
    /// The digest that its image's name had in the registry.
    #[serde(default)]
    pub(super) image_digest: Option<String>,
    /// The spec that was requested.
    #[serde(default)]
    pub(super) spec: Option<StoredSpec>,
    /// Set while init is being restarted: one may run that is not recorded here.
    #[serde(default)]
    pub(super) restarts: bool,
}

/// The process that created a container.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Owner {
    pid: u32,
    start_time: u64,
    /// Whether the container ends with this process.
    binding: bool,
}

/// A record in its stored form.
#[derive(Serialize, Deserialize)]
struct SavedRecord {
    /// The container's id: a record in another container's directory is ignored.
    id: String,
    /// PIDs are invalid once the host has restarted.
    boot_id: String,
    record: Record,
}

/// Held while a container is created or removed. While it is held, a directory without a record is
/// the leftover of a crash. Released when dropped, or when the process dies.
#[derive(Debug)]
pub(super) struct ContainerLock {
    _directory: File,
}

/// The agent's socket under a path that is short enough for `sun_path`, whatever the home is.
pub(super) struct Socket {
    directory: File,
}

impl Socket {
    pub(super) fn path(&self) -> PathBuf {
        PathBuf::from(format!(
            "/proc/self/fd/{}/agent.sock",
            self.directory.as_raw_fd()
        ))
    }
}

impl Home {
    pub(super) fn open(home: &Path) -> Result<Self, EngineError> {
        let containers = home.join("containers");
        let mut builder = fs::DirBuilder::new();
        let made = builder.recursive(true).mode(0o700).create(&containers);
        made.map_err(EngineError::engine("make the engine's directory"))?;
        Ok(Self { containers })
    }

    /// Opens the directory without creating anything; `None` if it does not exist.
    pub(super) fn to_look_at(home: &Path) -> Option<Self> {
        let containers = home.join("containers");
        containers.exists().then_some(Self { containers })
    }

    /// The directories that contain names of containers, and their parent.
    pub(super) fn directories(&self) -> Vec<PathBuf> {
        let home = self.path().to_owned();
        vec![self.containers.clone(), home.join("ids"), home]
    }

    /// The engine's own directory.
    pub(super) fn path(&self) -> &Path {
        self.containers.parent().unwrap_or(&self.containers)
    }

    pub(super) fn directory(&self, id: &ContainerId) -> PathBuf {
        self.containers.join(id.as_str())
    }

    /// Every container that has a directory.
    pub(super) fn ids(&self) -> Result<Vec<ContainerId>, EngineError> {
        let step = EngineError::engine("list the engine's directory");
        let names = fs::read_dir(&self.containers).and_then(|entries| {
            entries
                .map(|entry| Ok(entry?.file_name()))
                .collect::<io::Result<Vec<_>>>()
        });
        let names = names.map_err(step)?;
        Ok(names
            .iter()
            .filter_map(|name| ContainerId::parse(name.to_str()?).ok())
            .collect())
    }

    /// Creates the container's directory if it is missing, and locks it.
    pub(super) fn claim(&self, id: &ContainerId) -> Result<ContainerLock, EngineError> {
        loop {
            match fs::DirBuilder::new().mode(0o700).create(self.directory(id)) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(EngineError::engine("make the container's directory")(error));
                }
                _ => {}
            }
            if let Some(lock) = self.lock(id)? {
                return Ok(lock);
            }
        }
    }

    /// Locks a container; waits while it is created or removed. `None` if there is none.
    pub(super) fn lock(&self, id: &ContainerId) -> Result<Option<ContainerLock>, EngineError> {
        self.lock_with(id, FlockOperation::LockExclusive)
    }

    /// Locks a container, unless it is being created or removed.
    pub(super) fn try_lock(&self, id: &ContainerId) -> Result<Option<ContainerLock>, EngineError> {
        self.lock_with(id, FlockOperation::NonBlockingLockExclusive)
    }

    fn lock_with(
        &self,
        id: &ContainerId,
        operation: FlockOperation,
    ) -> Result<Option<ContainerLock>, EngineError> {
        let path = self.directory(id);
        let lock = || -> io::Result<Option<ContainerLock>> {
            let directory = File::open(&path)?;
            rustix::io::retry_on_intr(|| rustix::fs::flock(&directory, operation))?;
            // While we waited, it may have been removed and even created again.
            let (ours, there) = (directory.metadata()?, fs::metadata(&path)?);
            let same = (ours.dev(), ours.ino()) == (there.dev(), there.ino());
            Ok(same.then_some(ContainerLock {
                _directory: directory,
            }))
        };
        match lock() {
            Ok(lock) => Ok(lock),
            Err(error)
                if [io::ErrorKind::NotFound, io::ErrorKind::WouldBlock].contains(&error.kind()) =>
            {
                Ok(None)
            }
            Err(error) => Err(EngineError::engine("lock the container")(error)),
        }
    }

    /// The record of a container. `Ok(None)` if it is being created, or its creator died;
    /// `NotFound` if there is none.
    pub(super) fn read(&self, id: &ContainerId) -> Result<Option<Record>, EngineError> {
        let directory = self.directory(id);
        match read_bounded(&directory.join("state.json"), RECORD_BYTES_MAX) {
            // An unreadable record counts as missing: leftovers can still be found.
            Ok(text) => Ok(SavedRecord::parse(&text, id)),
            Err(error) if !is_no_file(&error) => {
                Err(EngineError::engine("read the container's state")(error))
            }
            Err(_) if directory.exists() => Ok(None),
            Err(_) => Err(EngineError::NotFound { id: id.clone() }),
        }
    }

    /// Stores the record of a new container. It reaches the disk later, see [`Home::sync`].
    pub(super) fn save(&self, id: &ContainerId, record: &Record) -> Result<(), EngineError> {
        self.write(id, record, |_| Ok(()))
    }

    /// Replaces a record atomically: after a crash or a power cut, either the old or the new one
    /// exists.
    pub(super) fn replace(&self, id: &ContainerId, record: &Record) -> Result<(), EngineError> {
        self.write(id, record, File::sync_data)
    }

    fn write(
        &self,
        id: &ContainerId,
        record: &Record,
        finish: fn(&File) -> io::Result<()>,
    ) -> Result<(), EngineError> {
        let directory = self.directory(id);
        let saved = SavedRecord {
            id: id.to_string(),
            boot_id: boot_id(),
            record: record.clone(),
        };
        let write = || -> io::Result<()> {
            let text = serde_json::to_vec(&saved)?;
            let new = directory.join("state.json.new");
            let mut file = File::create(&new)?;
            file.write_all(&text)?;
            finish(&file)?;
            fs::rename(new, directory.join("state.json"))
        };
        write().map_err(EngineError::engine("save the container's state"))
    }

    /// Stores how a container's init is started.
    pub(super) fn save_launch(
        &self,
        id: &ContainerId,
        launch: &LaunchSpec,
    ) -> Result<(), EngineError> {
        let write = || -> io::Result<()> {
            let text = serde_json::to_vec(launch)?;
            File::create(self.directory(id).join("launch.json"))?.write_all(&text)
        };
        write().map_err(EngineError::engine("save how the container is started"))
    }

    /// How a container's init is started; `None` if unknown.
    pub(super) fn launch(&self, id: &ContainerId) -> Result<Option<LaunchSpec>, EngineError> {
        let path = self.directory(id).join("launch.json");
        match read_bounded(&path, LAUNCH_BYTES_MAX) {
            Ok(text) => Ok(serde_json::from_slice(&text).ok()),
            Err(error) if is_no_file(&error) => Ok(None),
            Err(error) => {
                let step = "read how the container is started";
                Err(EngineError::engine(step)(error))
            }
        }
    }

    /// The socket of a container's agent.
    pub(super) fn socket(&self, id: &ContainerId) -> Result<Socket, EngineError> {
        match File::open(self.directory(id)) {
            Ok(directory) => Ok(Socket { directory }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(EngineError::NotFound { id: id.clone() })
            }
            Err(error) => Err(EngineError::engine("open the container's directory")(error)),
        }
    }
}

impl SavedRecord {
    fn parse(text: &[u8], id: &ContainerId) -> Option<Record> {
        let saved = serde_json::from_slice::<Self>(text).ok()?;
        let mut record = Some(saved.record).filter(|_| saved.id == id.as_str())?;
        if saved.boot_id != boot_id() {
            // No process has this PID.
            (record.pid, record.owner.pid) = (0, 0);
        }
        Some(record)
    }
}

impl Owner {
    /// This process.
    pub(super) fn us(lifetime: Lifetime) -> Self {
        let pid = std::process::id();
        Self {
            pid,
            start_time: hotcell_runtime::start_time(pid).unwrap_or_default(),
            binding: lifetime == Lifetime::WithOwner,
        }
    }

    /// Whether the container ends with its owner.
    pub(super) fn lifetime(&self) -> Lifetime {
        if self.binding {
            Lifetime::WithOwner
        } else {
            Lifetime::UntilDestroyed
        }
    }

    /// Whether the container should have ended with a process that is gone.
    pub(super) fn has_left(&self) -> bool {
        self.binding && !hotcell_runtime::alive(self.pid, self.start_time)
    }
}

impl Record {
    /// The ids of its files on disk; `None` if an earlier version did not record them.
    pub(super) fn file_ids(&self) -> Option<FileIds> {
        match self.node {
            Some(_) => self.file_ids,
            None => Some(FileIds::Shifted),
        }
    }

    /// The manifest of its image.
    pub(super) fn image(&self) -> Option<Digest> {
        Digest::parse(self.manifest.as_deref()?).ok()
    }

    pub(super) fn is_alive(&self) -> bool {
        hotcell_runtime::alive(self.pid, self.start_time)
    }

    /// A pidfd of its init; `None` if that has exited.
    pub(super) fn pidfd(&self) -> Result<Option<OwnedFd>, EngineError> {
        hotcell_runtime::open_pidfd(self.pid, self.start_time)
            .map_err(EngineError::engine("find the container's process"))
    }
}

pub(super) fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default()
}

/// Whether a read failed because there is no file, and not, for example, for lack of descriptors:
/// then the container may well run.
fn is_no_file(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::NOENT | Errno::ISDIR | Errno::LOOP | Errno::NXIO)
    )
}

pub(super) fn read_bounded(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    use std::io::Read;
    let mut text = Vec::new();
    // Whatever is there instead of a file must not block us.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    File::from(rustix::fs::open(path, flags, Mode::empty())?)
        .take(bytes_max)
        .read_to_end(&mut text)?;
    Ok(text)
}
