//! `hotcell pull` and `hotcell image`: the images of the embedded engine.

mod advice;
mod args;
mod bars;
mod list;
mod pull;

use std::process::ExitCode;

use anyhow::{Context, Result};
use hotcell_domain::{Admitted, Caller, ImageAliases, PolicyError, Source};
use hotcell_image::{Credentials, Image, Images};
use serde_json::{Value, json};

pub(crate) use self::advice::{advised, advised_refusal};
use self::args::ImageCommand;
pub(crate) use self::args::{ImageArgs, PolicyArgs, PullArgs};
use self::bars::Bars;
use crate::cli::StateArgs;
use crate::state;

/// Opens the images of a state directory.
pub(crate) fn open(arguments: &StateArgs) -> Result<Images> {
    let directory = state::directory(arguments.state_dir.clone())?;
    state::prepare(&directory)?;
    Images::open(&state::images(&directory)).with_context(|| {
        let directory = directory.display();
        format!("open the images in {directory} (another place: --state-dir)")
    })
}

/// Returns the image, pulled with progress bars if it is missing.
pub(crate) async fn ensure(
    images: &Images,
    source: &Admitted<Source>,
    credentials: &Credentials,
) -> Result<Image> {
    let bars = Bars::on_terminal();
    let pulled = images.ensure(source, credentials, &bars.report()).await;
    bars.finish();
    pulled.map_err(advised)
}

/// Logs a denial for the operator; the caller gets the error.
pub(crate) fn log_denial(image: &impl std::fmt::Display, refusal: &PolicyError) {
    hotcell_service::log_denial(&Caller::local(), image, refusal);
}

/// `hotcell pull`.
pub(crate) fn pull(arguments: &PullArgs, aliases: &ImageAliases) -> Result<ExitCode> {
    runtime()?.block_on(pull::run(arguments, aliases))
}

/// `hotcell image`.
pub(crate) fn manage(arguments: &ImageArgs) -> Result<ExitCode> {
    match &arguments.command {
        ImageCommand::Ls(arguments) => list::list(arguments),
        ImageCommand::Rm(arguments) => runtime()?.block_on(list::remove(arguments)),
        ImageCommand::Gc(arguments) => runtime()?.block_on(list::collect(arguments)),
    }
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("start the async runtime")
}

/// An image as `--json` shows it.
fn shown(image: &Image) -> Value {
    let seconds = |time: std::time::SystemTime| {
        let since = time.duration_since(std::time::UNIX_EPOCH);
        since.map_or(0, |since| since.as_secs())
    };
    json!({
        "image": image.reference.to_string(),
        "digest": image.digest.as_str(),
        "manifest": image.manifest.as_str(),
        "size_bytes": image.size_bytes,
        "layers": image.layers.len(),
        "origin": image.origin,
        "pulled_at_s": seconds(image.pulled_at),
        "used_at_s": seconds(image.used_at),
    })
}
