//! The engine's directory and what it remembers of each container.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use hotcell_domain::{ContainerId, Lifetime};
use hotcell_runtime::cgroup::Place;
use hotcell_runtime::{Enforced, IdMap};
use serde::{Deserialize, Serialize};

use crate::EngineError;

/// A record is a few hundred bytes; more is not one of ours.
const RECORD_BYTES_MAX: u64 = 64 << 10;

/// Where containers live.
#[derive(Debug)]
pub(super) struct Home {
    containers: PathBuf,
}

/// What is known of a container.
#[derive(Debug, Clone)]
pub(super) struct Record {
    pub(super) id: ContainerId,
    pub(super) stage: Stage,
    /// Who made it, and whether it ends with them.
    owner: Owner,
}

/// How far a container has come.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Stage {
    /// Its init may or may not run yet.
    Making,
    /// Its init was started.
    Made(Init),
}

/// The container's PID 1, as the host knows it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Init {
    pub(super) pid: u32,
    pub(super) start_time: u64,
    pub(super) cgroup: Place,
    pub(super) enforced: Enforced,
    pub(super) ids: IdMap,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Owner {
    pid: u32,
    start_time: u64,
    /// The container ends with this process.
    binding: bool,
}

#[derive(Serialize, Deserialize)]
struct Saved {
    owner: Owner,
    stage: Stage,
}

/// The agent's socket by a path short enough for `sun_path`, whatever the home is.
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

    /// Makes the container's directory; false if there is one already.
    pub(super) fn claim(&self, id: &ContainerId) -> Result<bool, EngineError> {
        match fs::DirBuilder::new().mode(0o700).create(self.directory(id)) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(EngineError::engine("make the container's directory")(error)),
        }
    }

    /// What is known of a container; `None` if there is none.
    pub(super) fn read(&self, id: &ContainerId) -> Result<Option<Record>, EngineError> {
        let directory = self.directory(id);
        let saved = match read_bounded(&directory.join("state.json")) {
            Ok(text) => serde_json::from_slice::<Saved>(&text).ok(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(EngineError::engine("read the container's state")(error)),
        };
        if let Some(Saved { owner, stage }) = saved {
            return Ok(Some(Record {
                id: id.clone(),
                stage,
                owner,
            }));
        }
        // A directory without a readable state is what a crash left of a container.
        if !directory.exists() {
            return Ok(None);
        }
        let owner = Owner {
            pid: 0,
            start_time: 0,
            binding: true,
        };
        Ok(Some(Record {
            id: id.clone(),
            stage: Stage::Making,
            owner,
        }))
    }

    /// What is known of a container that must exist.
    pub(super) fn require(&self, id: &ContainerId) -> Result<Record, EngineError> {
        self.read(id)?
            .ok_or_else(|| EngineError::NotFound { id: id.clone() })
    }

    /// Remembers how far a container has come; the file is there whole or not at all.
    pub(super) fn save(&self, record: &Record) -> Result<(), EngineError> {
        let saved = Saved {
            owner: record.owner.clone(),
            stage: record.stage.clone(),
        };
        let directory = self.directory(&record.id);
        let write = || -> io::Result<()> {
            let text = serde_json::to_vec(&saved)?;
            let scratch = directory.join("state.json.new");
            File::create(&scratch)?.write_all(&text)?;
            fs::rename(&scratch, directory.join("state.json"))
        };
        write().map_err(EngineError::engine("save the container's state"))
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

impl Record {
    /// A container that this process begins to make.
    pub(super) fn making(id: &ContainerId, lifetime: Lifetime) -> Self {
        let pid = std::process::id();
        let owner = Owner {
            pid,
            start_time: hotcell_runtime::start_time(pid).unwrap_or_default(),
            binding: lifetime == Lifetime::WithOwner,
        };
        Self {
            id: id.clone(),
            stage: Stage::Making,
            owner,
        }
    }

    /// Whether the process that should have ended it, or finished making it, is gone.
    pub(super) fn is_abandoned(&self) -> bool {
        let unfinished = self.owner.binding || matches!(self.stage, Stage::Making);
        unfinished && !hotcell_runtime::alive(self.owner.pid, self.owner.start_time)
    }

    pub(super) fn enforced(&self) -> Option<Enforced> {
        match &self.stage {
            Stage::Making => None,
            Stage::Made(init) => Some(init.enforced),
        }
    }

    /// A handle on its init, unless that has ended.
    pub(super) fn pidfd(&self) -> Result<Option<OwnedFd>, EngineError> {
        match &self.stage {
            Stage::Making => Ok(None),
            Stage::Made(init) => hotcell_runtime::open_pidfd(init.pid, init.start_time)
                .map_err(EngineError::engine("find the container's process")),
        }
    }
}

impl Init {
    pub(super) fn is_alive(&self) -> bool {
        hotcell_runtime::alive(self.pid, self.start_time)
    }
}

fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    use std::io::Read;
    let mut text = Vec::new();
    File::open(path)?
        .take(RECORD_BYTES_MAX)
        .read_to_end(&mut text)?;
    Ok(text)
}
