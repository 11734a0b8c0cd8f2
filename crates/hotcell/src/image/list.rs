//! `hotcell image ls`, `rm` and `gc`.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use hotcell_engine::{Embedded, EmbeddedConfig};
use hotcell_image::Collected;
use serde_json::{Value, json};

use super::args::{CollectArgs, ListArgs, RemoveArgs};
use super::{open, shown};
use crate::cli::StateArgs;
use crate::state;

const DAY: Duration = Duration::from_hours(24);

/// Characters of a digest that are shown.
const DIGEST_SHOWN: usize = 12;

pub(super) fn list(arguments: &ListArgs) -> Result<ExitCode> {
    let images = open(&arguments.state)?.list()?;
    let mut out = std::io::stdout().lock();
    if arguments.json {
        let images: Vec<Value> = images.iter().map(shown).collect();
        serde_json::to_writer(&mut out, &images)?;
        writeln!(out)?;
        return Ok(ExitCode::SUCCESS);
    }
    let (digest, size, age) = ("DIGEST", "SIZE", "AGE");
    writeln!(out, "{digest:<DIGEST_SHOWN$}  {size:>9}  {age:>6}  IMAGE")?;
    for image in &images {
        let digest = &image.digest.hex()[..DIGEST_SHOWN];
        let age = SystemTime::now().duration_since(image.pulled_at);
        let days = age.map_or(0, |age| age.as_secs() / DAY.as_secs());
        let size = image.size_bytes.div_ceil(1_000_000);
        let name = &image.reference;
        writeln!(out, "{digest}  {size:>6} MB  {days:>4} d  {name}")?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn remove(arguments: &RemoveArgs) -> Result<ExitCode> {
    let engine = engine(&arguments.state)?;
    let mut all = Collected::default();
    for reference in &arguments.images {
        let removed = engine.remove_image(reference).await?;
        all.images += removed.images;
        all.layers += removed.layers;
        all.partial += removed.partial;
    }
    print(all, arguments.json)?;
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn collect(arguments: &CollectArgs) -> Result<ExitCode> {
    let idle = arguments
        .idle_days
        .map(|days| DAY * u32::try_from(days).unwrap_or(u32::MAX));
    let collected = engine(&arguments.state)?.collect_images(idle).await?;
    print(collected, arguments.json)?;
    Ok(ExitCode::SUCCESS)
}

/// Prints what was removed.
fn print(removed: Collected, is_json: bool) -> Result<()> {
    let Collected {
        images,
        layers,
        partial,
    } = removed;
    let mut out = std::io::stdout().lock();
    if is_json {
        let removed = json!({ "images": images, "layers": layers, "partial": partial });
        writeln!(out, "{removed}")?;
    } else {
        writeln!(
            out,
            "removed {images} images, {layers} layers, {partial} unfinished downloads"
        )?;
    }
    Ok(())
}

/// Opens the engine, which knows the images that its containers use.
fn engine(arguments: &StateArgs) -> Result<Embedded> {
    let images = open(arguments)?;
    let directory = state::directory(arguments.state_dir.clone())?;
    let engine = Embedded::open(EmbeddedConfig {
        home: directory.join("run"),
        tree: directory.join("tree"),
        launcher: PathBuf::from("/proc/self/exe"),
        agent: hotcell_agent_image::AGENT,
        cgroups: true,
        require_limits: false,
    });
    let engine = engine.context("open the engine whose containers use the images")?;
    Ok(engine.with_images(images))
}
