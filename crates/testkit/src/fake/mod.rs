//! An engine for tests of the layers above engines. **It is not a sandbox.**
//!
//! Its containers are plain processes: the real agent, started on the host with a directory as its
//! root and all rights of the user who runs the test. In return it works everywhere, starts fast,
//! and can inject [`Faults`] from a seed.

mod faults;
mod home;
mod process;
mod seed;
mod stream;

use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use hotcell_domain::{Admitted, ContainerId, ContainerSpec, EngineId, Phase};
use rustix::process::Signal;
use tokio::net::UnixStream;

pub use faults::{CreateFault, DestroyFault, FAULTS_MAX, Faults, ListFault, OpenFault};
pub use seed::{each_seed, seeds};

use self::home::{Home, Making, UNLIMITED};
use self::process::all_gone;
use self::stream::Faulty;
use hotcell_engine::{
    Abandonment, AgentStream, Capabilities, Container, Engine, EngineError, Garbage, HostSize,
    Pull, ReadyImage, SweepMode, Swept,
};

/// The file that says which image every name refers to.
const TAG_FILE: &str = "tag";

/// Runs agents as plain processes. They run until they are destroyed, whatever their spec says;
/// their limits and image are recorded but not applied: there is one image, and [`Fake::tag`] sets
/// its id.
///
/// All state is in one directory: another value over the same directory finds the containers again.
#[derive(Debug)]
pub struct Fake {
    agent_program: PathBuf,
    directory: PathBuf,
    faults: Mutex<Faults>,
    /// Held while a container is created or removed: one at a time is fast enough.
    changing: tokio::sync::Mutex<()>,
}

impl Fake {
    /// An engine that starts `agent_program` and keeps its containers in `directory`.
    pub fn new(agent_program: PathBuf, directory: PathBuf, faults: Faults) -> Self {
        Self {
            agent_program,
            // So that the root has the same path outside and inside.
            directory: fs::canonicalize(&directory).unwrap_or(directory),
            faults: Mutex::new(faults),
            changing: tokio::sync::Mutex::new(()),
        }
    }

    /// Kills a container's agent with all its processes, as a crash would. Does nothing if it has
    /// exited.
    pub async fn crash(&self, id: &ContainerId) -> Result<(), EngineError> {
        if let Some(process) = self.find(id)?.process() {
            all_gone(&process.kill_tree()).await;
        }
        Ok(())
    }

    /// Stops a container's agent (SIGSTOP) until [`Fake::resume`].
    pub fn pause(&self, id: &ContainerId) -> Result<(), EngineError> {
        self.signal(id, Signal::STOP)
    }

    /// Continues a container's agent.
    pub fn resume(&self, id: &ContainerId) -> Result<(), EngineError> {
        self.signal(id, Signal::CONT)
    }

    fn signal(&self, id: &ContainerId, signal: Signal) -> Result<(), EngineError> {
        if let Some(process) = self.find(id)?.process() {
            process.signal(signal);
        }
        Ok(())
    }

    /// Makes every image name refer to this image from now on.
    pub fn tag(&self, image_id: &str) -> Result<(), EngineError> {
        let path = self.directory.join(TAG_FILE);
        let new = path.with_extension("new");
        fs::write(&new, image_id)
            .and_then(|()| fs::rename(&new, &path))
            .map_err(EngineError::engine("tag an image"))
    }

    /// The image that every name refers to, if it was set.
    fn tagged(&self) -> Option<String> {
        fs::read_to_string(self.directory.join(TAG_FILE)).ok()
    }

    fn faults(&self) -> MutexGuard<'_, Faults> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The directory of a container, if it exists.
    fn find(&self, id: &ContainerId) -> Result<Home, EngineError> {
        let home = Home::new(&self.directory, id);
        if home.exists() {
            return Ok(home);
        }
        Err(EngineError::NotFound { id: id.clone() })
    }

    /// Starts the agent and waits until it listens.
    async fn start(
        &self,
        mut making: Making,
        fault: Option<CreateFault>,
        abandonment: &Abandonment,
    ) -> Result<Container, EngineError> {
        const STEP: &str = "start the agent";
        let started = making.start(&self.agent_program);
        started.map_err(EngineError::engine(STEP))?;
        let listening = making.until_listening().await;
        listening.map_err(EngineError::engine("reach the agent"))?;
        if fault == Some(CreateFault::After) {
            return Err(injected(STEP));
        }
        abandonment.check()?;
        making.finish().map_err(EngineError::engine(STEP))
    }

    /// All containers that really exist.
    fn all(&self) -> std::io::Result<Vec<Container>> {
        let mut all = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            let name = entry?.file_name();
            let id = name.to_str().and_then(|name| ContainerId::parse(name).ok());
            if let Some(id) = id {
                all.push(Home::new(&self.directory, &id).describe());
            }
        }
        Ok(all)
    }
}

#[async_trait]
impl Engine for Fake {
    fn identity(&self) -> EngineId {
        EngineId::named("fake")
    }

    async fn capabilities(&self) -> Result<Capabilities, EngineError> {
        Ok(Capabilities {
            host_images: true,
            network: false,
            enforced: UNLIMITED,
            host_size: HostSize::read(),
        })
    }

    async fn fetch_image(
        &self,
        spec: &Admitted<ContainerSpec>,
        _pull: Pull<'_>,
        abandonment: &Abandonment,
    ) -> Result<ReadyImage, EngineError> {
        abandonment.check()?;
        Ok(ReadyImage::new(spec, self.tagged(), ()))
    }

    async fn create(
        &self,
        id: &ContainerId,
        spec: &Admitted<ContainerSpec>,
        image: ReadyImage,
        abandonment: &Abandonment,
    ) -> Result<Container, EngineError> {
        const STEP: &str = "create the container";
        image.payload::<()>(spec)?;
        let fault = self.faults().create();
        if fault == Some(CreateFault::Before) {
            return Err(injected(STEP));
        }
        let _alone = self.changing.lock().await;
        let home = Home::new(&self.directory, id);
        match home.exists().then(|| home.describe()) {
            Some(container) if container.phase == Phase::Running => return Ok(container),
            Some(container) if container.phase == Phase::Stopped => {
                return Err(EngineError::engine(STEP)("its agent has ended"));
            }
            Some(_) | None => {}
        }
        let making = Making::begin(home).map_err(EngineError::engine(STEP))?;
        let noted = making.note_spec(spec.value());
        noted.map_err(EngineError::engine(STEP))?;
        if let Some(image_id) = image.id() {
            let noted = making.note_image(image_id);
            noted.map_err(EngineError::engine(STEP))?;
        }
        self.start(making, fault, abandonment).await
    }

    async fn restart(
        &self,
        id: &ContainerId,
        abandonment: &Abandonment,
    ) -> Result<Container, EngineError> {
        const STEP: &str = "start the container again";
        let _alone = self.changing.lock().await;
        abandonment.check()?;
        let home = self.find(id)?;
        let fault = self.faults().create();
        if fault == Some(CreateFault::Before) {
            return Err(injected(STEP));
        }
        let ended = home.process().ok_or("it was never made");
        let ended = ended.map_err(EngineError::engine(STEP))?;
        if !all_gone(&ended.kill_tree()).await {
            return Err(EngineError::engine(STEP)("a process does not end"));
        }
        ended.reap();
        let making = Making::again(home).map_err(EngineError::engine(STEP))?;
        self.start(making, fault, abandonment).await
    }

    async fn open(&self, id: &ContainerId) -> Result<AgentStream, EngineError> {
        const STEP: &str = "open a stream";
        let home = self.find(id)?;
        let fault = self.faults().open();
        if fault == Some(OpenFault::Killed)
            && let Some(process) = home.process()
        {
            all_gone(&process.kill_tree()).await;
        }
        let connected = home.connect().await;
        let stream = connected.map_err(EngineError::engine(STEP))?;
        spoil(stream, fault).ok_or_else(|| injected(STEP))
    }

    async fn inspect(&self, id: &ContainerId) -> Result<Container, EngineError> {
        Ok(self.find(id)?.describe())
    }

    async fn list(&self) -> Result<Vec<Container>, EngineError> {
        let mut all = self.all().map_err(EngineError::engine("list"))?;
        match self.faults().list() {
            Some(ListFault::Omitted) => drop(all.pop()),
            Some(ListFault::Stranger(number)) => {
                let id = ContainerId::from_parts(number, [0; 10]);
                all.push(Home::new(&self.directory, &id).describe());
            }
            None => {}
        }
        Ok(all)
    }

    async fn destroy(&self, id: &ContainerId) -> Result<(), EngineError> {
        const STEP: &str = "destroy the container";
        let _alone = self.changing.lock().await;
        let home = self.find(id)?;
        let fault = self.faults().destroy();
        if fault == Some(DestroyFault::Before) {
            return Err(injected(STEP));
        }
        if let Some(process) = home.process() {
            if !all_gone(&process.kill_tree()).await {
                return Err(EngineError::engine(STEP)("a process does not end"));
            }
            process.reap();
        }
        if fault == Some(DestroyFault::HalfWay) {
            return Err(injected(STEP));
        }
        home.remove().map_err(EngineError::engine(STEP))
    }

    async fn exited(&self, id: &ContainerId) -> Result<(), EngineError> {
        if let Some(process) = self.find(id)?.process() {
            process.ended().await;
            process.reap();
        }
        Ok(())
    }

    async fn sweep(&self, _: Garbage, _: SweepMode) -> Result<Swept, EngineError> {
        Ok(Swept::default())
    }
}

/// The stream with its fault; `None` if the fault is a refusal.
fn spoil(stream: UnixStream, fault: Option<OpenFault>) -> Option<AgentStream> {
    match fault {
        None => Some(AgentStream::new(stream)),
        Some(OpenFault::Refused | OpenFault::Killed) => None,
        Some(OpenFault::Cut(bytes)) => Some(AgentStream::new(Faulty::cut(stream, bytes))),
        Some(OpenFault::Delayed(delay)) => Some(AgentStream::new(Faulty::delayed(stream, delay))),
    }
}

fn injected(step: &'static str) -> EngineError {
    EngineError::engine(step)("a fault of the seed")
}
