//! The server's own code on a state that ends with this process: rows in memory, no pool, no
//! timers. Its containers end with this process too, however that ends; files that they left then
//! are removed by the next one.

mod engine;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Error, Result, anyhow};
use hotcell_domain::{ImageRef, Lifetime, Policy};
use hotcell_engine::{Embedded, Engine, Garbage, SweepMode};
use hotcell_image::Images;
use hotcell_service::{CodeSettings, Service, ServiceError, Settings, SystemClock, SystemRandom};
use hotcell_store::Store;

pub(crate) use self::engine::StartingEngine;
use crate::cli::ContainerArgs;
use crate::config::Tables;
use crate::{egress, image, state};

/// Grace period between SIGTERM and SIGKILL, after the timeout and after Ctrl-C.
const KILL_GRACE: Duration = Duration::from_secs(3);

/// A service without persistent state: everything it knows ends with this process.
pub(crate) struct TemporaryService {
    service: Service,
    engine: Arc<Embedded>,
}

impl TemporaryService {
    /// Starts it, and pulls the image if it is missing. Output logs, where there are any, go to
    /// `logs`.
    pub(crate) async fn start(
        arguments: &ContainerArgs,
        tables: &Tables,
        engine: StartingEngine,
        logs: &Path,
    ) -> Result<Self> {
        let image = tables.aliases.resolve(&arguments.image);
        let images = image::open(&arguments.state)?;
        pull_missing(arguments, &image, &images).await?;
        let store = Store::in_memory(logs).context("open a database in memory")?;
        let engine = engine.ready().map_err(advise)?.with_images(images);
        let engine = Arc::new(engine);
        let service = start_service(arguments, tables, image, &engine, store)?;
        Ok(Self { service, engine })
    }

    pub(crate) fn service(&self) -> &Service {
        &self.service
    }

    /// Removes what earlier processes that were killed left.
    pub(crate) async fn sweep(&self) {
        let swept = self.engine.sweep(Garbage::Containers, SweepMode::Remove);
        if let Err(error) = swept.await {
            tracing::warn!(%error, "could not remove leftovers of an earlier run");
        }
    }
}

/// Pulls the image here, where a person sees the progress and gets advice if it fails. The engine
/// finds it afterwards.
async fn pull_missing(arguments: &ContainerArgs, image: &ImageRef, images: &Images) -> Result<()> {
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

fn start_service(
    arguments: &ContainerArgs,
    tables: &Tables,
    image: ImageRef,
    engine: &Arc<Embedded>,
    store: Store,
) -> Result<Service> {
    let settings = Settings {
        // Whoever can start this program is the operator, and can read the host's files anyway.
        policy: Policy {
            maxima: None,
            allow_network: false,
            allow_rootfs: true,
            allow_root: false,
            images: arguments.images.policy(),
        },
        default_image: image,
        default_limits: arguments.limits.limits(),
        lifetime: Lifetime::WithOwner,
        kill_grace: KILL_GRACE,
        egress: egress::settings_without_server(&tables.egress, arguments.egress.as_ref()),
        egress_directory: Some(egress::directory(&state::directory(
            arguments.state.state_dir.clone(),
        )?)),
        // A person who runs something here looks after the disk.
        reserve_bytes: Some(0),
        code: CodeSettings {
            // Nobody pays for a long answer with tokens.
            output_chars_max: OUTPUT_CHARS_MAX,
            ..CodeSettings::default()
        },
        ..Settings::default()
    };
    let engine: Arc<dyn Engine> = Arc::clone(engine) as Arc<dyn Engine>;
    let (clock, random) = (Arc::new(SystemClock), Arc::new(SystemRandom));
    let service = Service::temporary(engine, store, settings, clock, random);
    service.context("start the service")
}

/// Output of a snippet that is shown, of each stream.
const OUTPUT_CHARS_MAX: usize = 1_000_000;

/// Adds advice to an error of the engine.
pub(crate) fn advise(error: ServiceError) -> Error {
    if let ServiceError::Refused(refusal) = error {
        return image::advised_refusal(refusal);
    }
    let error = Error::new(error);
    anyhow!("{error:#}; `hotcell doctor` tells what this host lacks and how to mend it")
}
