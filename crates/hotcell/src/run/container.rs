//! The container of one `hotcell run`, and the service that makes it.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Error, Result, anyhow};
use hotcell_domain::{Caller, Command, ContainerRef, ImageAliases, ImageRef, Lifetime, Policy};
use hotcell_engine::{Embedded, Engine, Garbage, SweepMode};
use hotcell_image::Images;
use hotcell_service::{
    ContainerView, ExecStream, LimitView, Service, ServiceError, Settings, Snippet, Spawn,
    SystemClock, SystemRandom,
};
use hotcell_store::Store;

use super::engine::StartingEngine;
use super::outcome::option_of;
use crate::cli::RunArgs;
use crate::image;

/// From TERM to KILL, for the timeout and for Ctrl-C.
const KILL_GRACE: Duration = Duration::from_secs(3);

/// A running container that ends with this process.
pub(super) struct RunContainer {
    service: Service,
    engine: Arc<Embedded>,
    caller: Caller,
    id: ContainerRef,
    limits: Vec<LimitView>,
}

impl RunContainer {
    /// Makes the container and connects to its agent.
    pub(super) async fn create(
        arguments: &RunArgs,
        aliases: &ImageAliases,
        engine: StartingEngine,
    ) -> Result<Self> {
        let image = aliases.resolve(&arguments.image);
        let images = image::open(&arguments.state)?;
        pull_missing(arguments, &image, &images).await?;
        let store = Store::in_memory(engine.home()).context("open a database in memory")?;
        let engine = engine.ready().map_err(advise)?.with_images(images);
        let engine = Arc::new(engine);
        let service = start_service(arguments, &engine, store)?;
        let caller = Caller::local();
        let request = Spawn {
            image: Some(image),
            limits: Some(arguments.limits.limits()),
            ..Spawn::default()
        };
        let spawned = service.spawn(&caller, request).await;
        let ContainerView { id, enforced, .. } = spawned.map_err(advise)?;
        warn_of_missing(&enforced);
        Ok(Self {
            service,
            engine,
            caller,
            id: ContainerRef::Id(id),
            limits: enforced,
        })
    }

    pub(super) fn service(&self) -> &Service {
        &self.service
    }

    pub(super) fn caller(&self) -> &Caller {
        &self.caller
    }

    /// What enforces each limit.
    pub(super) fn limits(&self) -> &[LimitView] {
        &self.limits
    }

    /// Copies a snippet into the container and returns the command that runs it.
    pub(super) async fn stage(&self, snippet: Snippet, arguments: Vec<String>) -> Result<Command> {
        let staged = self
            .service
            .stage_snippet(&self.caller, &self.id, snippet, arguments);
        staged.await.context("copy the code into the container")
    }

    pub(super) async fn start(&self, command: Command) -> Result<ExecStream> {
        let started = self.service.exec_stream(&self.caller, &self.id, command);
        started.await.context("start the command")
    }

    /// Removes every trace of the container, and what earlier runs that were killed left.
    pub(super) async fn remove(self) -> Result<()> {
        let kill = self.service.kill(&self.caller, &self.id, true);
        let sweep = self.engine.sweep(Garbage::Containers, SweepMode::Remove);
        let (killed, swept) = tokio::join!(kill, sweep);
        if let Err(error) = swept {
            tracing::warn!(%error, "could not remove leftovers of an earlier run");
        }
        // What is left are threads and the launcher, which end with this process: to end them
        // one after the other would only take time.
        std::mem::forget(self);
        match killed {
            Ok(()) | Err(ServiceError::NotFound { .. }) => Ok(()),
            Err(error) => Err(advise(error)),
        }
    }
}

/// Pulls the image here, where a person sees the progress and is told what to do when it fails;
/// the engine finds it afterwards.
async fn pull_missing(arguments: &RunArgs, image: &ImageRef, images: &Images) -> Result<()> {
    let ImageRef::Oci(reference) = image else {
        return Ok(());
    };
    let source = arguments.images.policy().admit(reference.clone());
    let source = source
        .inspect_err(|refusal| image::log_denial(reference, refusal))
        .map_err(image::advised_refusal)?;
    let credentials = arguments.images.credentials()?;
    image::ensure(images, &source, &credentials).await?;
    Ok(())
}

/// A service that keeps nothing: all it knows ends with this process.
fn start_service(arguments: &RunArgs, engine: &Arc<Embedded>, store: Store) -> Result<Service> {
    let settings = Settings {
        // Whoever may start this program is the operator, and may read the host's files anyway.
        policy: Policy {
            maxima: None,
            allow_network: false,
            allow_rootfs: true,
            allow_root: false,
            images: arguments.images.policy(),
        },
        lifetime: Lifetime::WithOwner,
        kill_grace: KILL_GRACE,
        // There is no log for which room must be kept.
        reserve_bytes: Some(0),
        ..Settings::default()
    };
    let engine: Arc<dyn Engine> = Arc::clone(engine) as Arc<dyn Engine>;
    let (clock, random) = (Arc::new(SystemClock), Arc::new(SystemRandom));
    let service = Service::temporary(engine, store, settings, clock, random);
    service.context("start the service")
}

/// Tells a person whom the engine fails where to look.
fn advise(error: ServiceError) -> Error {
    if let ServiceError::Refused(refusal) = error {
        return image::advised_refusal(refusal);
    }
    let error = Error::new(error);
    anyhow!("{error:#}; `hotcell doctor` tells what this host lacks and how to mend it")
}

/// A limit that this host cannot enforce is never silently absent.
fn warn_of_missing(limits: &[LimitView]) {
    for (by, how) in [
        (None, "here"),
        (Some("rlimit"), "as a whole, only for each process"),
    ] {
        let missing: Vec<_> = limits
            .iter()
            .filter(|limit| limit.by == by)
            .map(option_of)
            .collect();
        if !missing.is_empty() {
            let missing = missing.join(", ");
            eprintln!(
                "hotcell: this host does not limit {missing} {how}; `hotcell doctor` tells why"
            );
        }
    }
}
