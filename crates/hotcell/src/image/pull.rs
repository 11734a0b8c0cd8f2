//! `hotcell pull`.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use hotcell_domain::{ImageAliases, ImageRef, Reference};
use hotcell_image::{Image, ImageError};
use serde_json::Value;

use super::{Bars, PullArgs, advised, advised_refusal, log_denial, open, shown};

/// Pulls or loads an image, and prints what its name resolves to now.
pub(super) async fn run(arguments: &PullArgs, aliases: &ImageAliases) -> Result<ExitCode> {
    let bars = Bars::on_terminal();
    let fetched = fetch(arguments, aliases, &bars).await;
    bars.finish();
    print(arguments, &fetched?)?;
    Ok(ExitCode::SUCCESS)
}

async fn fetch(arguments: &PullArgs, aliases: &ImageAliases, bars: &Bars) -> Result<Vec<Image>> {
    let reference = reference(arguments, aliases)?;
    let images = open(&arguments.state)?;
    let policy = arguments.policy.policy();
    if let Some(file) = &arguments.from {
        let name = reference.as_ref();
        let loaded = images.load(file, name, &policy, &bars.report()).await;
        if let Err(ImageError::Refused(refusal)) = &loaded {
            log_denial(&file.display(), refusal);
        }
        return loaded
            .map_err(advised)
            .with_context(|| format!("load {}", file.display()));
    }
    let reference = reference.context("an image is required")?;
    let source = policy
        .admit(reference.clone())
        .inspect_err(|refusal| log_denial(&reference, refusal))
        .map_err(advised_refusal)?;
    let credentials = arguments.policy.credentials()?;
    let image = images
        .pull(&source, &credentials, &bars.report())
        .await
        .map_err(advised)?;
    Ok(vec![image])
}

/// The image that was named, if one was.
fn reference(arguments: &PullArgs, aliases: &ImageAliases) -> Result<Option<Reference>> {
    let Some(name) = &arguments.image else {
        return Ok(None);
    };
    match aliases.resolve(name) {
        ImageRef::Oci(reference) => Ok(Some(reference)),
        ImageRef::Host | ImageRef::Rootfs(_) => bail!("{name} is not an image of a registry"),
    }
}

fn print(arguments: &PullArgs, images: &[Image]) -> Result<()> {
    let mut out = std::io::stdout().lock();
    if arguments.json {
        let images: Vec<Value> = images.iter().map(shown).collect();
        serde_json::to_writer(&mut out, &images)?;
        writeln!(out)?;
        return Ok(());
    }
    for image in images {
        let pinned = image.reference.pinned(image.digest.clone());
        writeln!(out, "{pinned}")?;
    }
    Ok(())
}
