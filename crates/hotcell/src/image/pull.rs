//! `hotcell pull`.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, Result};
use hotcell_image::{Credentials, Image, ImageError};
use serde_json::Value;

use super::{Bars, PullArgs, advised, advised_refusal, log_denial, open, shown};

/// Pulls or loads, and prints what the name stands for now.
pub(super) async fn run(arguments: &PullArgs) -> Result<ExitCode> {
    let bars = Bars::on_terminal();
    let fetched = fetch(arguments, &bars).await;
    bars.finish();
    print(arguments, &fetched?)?;
    Ok(ExitCode::SUCCESS)
}

async fn fetch(arguments: &PullArgs, bars: &Bars) -> Result<Vec<Image>> {
    let images = open(&arguments.state)?;
    let policy = arguments.policy.policy();
    if let Some(file) = &arguments.from {
        let name = arguments.image.as_ref();
        let loaded = images.load(file, name, &policy, &bars.report()).await;
        if let Err(ImageError::Refused(refusal)) = &loaded {
            log_denial(&file.display(), refusal);
        }
        return loaded
            .map_err(advised)
            .with_context(|| format!("load {}", file.display()));
    }
    let reference = arguments.image.clone().context("an image is required")?;
    let source = policy
        .admit(reference.clone())
        .inspect_err(|refusal| log_denial(&reference, refusal))
        .map_err(advised_refusal)?;
    let image = images
        .pull(&source, &Credentials::of_user(), &bars.report())
        .await
        .map_err(advised)?;
    Ok(vec![image])
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
