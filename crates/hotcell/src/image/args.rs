//! The command line of images.

use std::fs::File;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::builder::BoolishValueParser;
use clap::{ArgAction, ArgGroup, Args, Subcommand};
use hotcell_domain::{ImageName, ImagePolicy, Reference};
use hotcell_image::Credentials;

use crate::cli::StateArgs;

/// The arguments of `hotcell pull`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("whence").required(true).multiple(true).args(["image", "from"]))]
pub(crate) struct PullArgs {
    /// The image, such as `python:3.12-slim`, or an alias of one; with --from, the name to give it
    #[arg(value_parser = ImageName::parse)]
    pub(crate) image: Option<ImageName>,

    /// Load it from a file: what `docker save` writes, or an OCI layout as a tar
    #[arg(long, value_name = "FILE")]
    pub(crate) from: Option<PathBuf>,

    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) policy: PolicyArgs,

    #[command(flatten)]
    pub(crate) state: StateArgs,
}

/// The policy on images.
#[derive(Debug, Args)]
#[command(next_help_heading = "Images")]
pub(crate) struct PolicyArgs {
    /// Registries that images may come from
    #[arg(
        long,
        value_name = "HOST,…",
        value_delimiter = ',',
        env = "HOTCELL_ALLOWED_REGISTRIES",
        value_parser = registry,
        default_value = "docker.io,ghcr.io"
    )]
    allowed_registries: Vec<String>,

    /// Globs of images that may be used [default: all of those registries]
    #[arg(
        long,
        value_name = "GLOB,…",
        value_delimiter = ',',
        env = "HOTCELL_ALLOWED_IMAGES"
    )]
    allowed_images: Vec<String>,

    /// Registries that the embedded engine may speak to without TLS, besides those on this host
    #[arg(
        long,
        value_name = "HOST,…",
        value_delimiter = ',',
        env = "HOTCELL_PLAIN_HTTP",
        value_parser = registry
    )]
    plain_http: Vec<String>,

    /// Use images that were loaded from a file or made on this host
    #[arg(
        long,
        value_name = "BOOL",
        action = ArgAction::Set,
        default_value_t = true,
        env = "HOTCELL_LOCAL_IMAGES",
        value_parser = BoolishValueParser::new()
    )]
    local_images: bool,

    /// Use only images that are given with their digest
    #[arg(long, env = "HOTCELL_REQUIRE_DIGEST", value_parser = BoolishValueParser::new())]
    require_digest: bool,

    /// File with credentials of registries, as Docker writes it [default: config.json in `DOCKER_CONFIG` or ~/.docker]
    #[arg(long, value_name = "FILE", env = "HOTCELL_DOCKER_CONFIG")]
    docker_config: Option<PathBuf>,
}

impl PolicyArgs {
    pub(crate) fn policy(&self) -> ImagePolicy {
        ImagePolicy {
            registries: self.allowed_registries.clone(),
            images: self.allowed_images.clone(),
            require_digest: self.require_digest,
            local_images: self.local_images,
            plain_http: self.plain_http.clone(),
        }
    }

    /// The credentials of registries. The user's own file may be missing, one that was named
    /// must be there.
    pub(crate) fn credentials(&self) -> Result<Credentials> {
        let Some(path) = &self.docker_config else {
            return Ok(Credentials::of_user());
        };
        let shown = path.display();
        File::open(path).with_context(|| format!("open --docker-config {shown}"))?;
        let path = std::path::absolute(path).context("make --docker-config absolute")?;
        Ok(Credentials::file(path))
    }
}

/// A registry as references name it: a rule that none can match is a mistake.
fn registry(text: &str) -> Result<String, String> {
    let found = Reference::parse(&format!("{text}/x/y"));
    let found = found.map(|reference| reference.registry().to_owned());
    match found {
        Ok(found) if found == text || text == "index.docker.io" => Ok(found),
        _ => Err("write a registry as its host, such as `ghcr.io` or `localhost:5000`".to_owned()),
    }
}

/// The arguments of `hotcell image`.
#[derive(Debug, Args)]
pub(crate) struct ImageArgs {
    #[command(subcommand)]
    pub(crate) command: ImageCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ImageCommand {
    /// List the images on this host
    Ls(ListArgs),
    /// Remove images that no container uses
    Rm(RemoveArgs),
    /// Remove what no image and no container needs
    Gc(CollectArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Print the list as JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) state: StateArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RemoveArgs {
    /// The images
    #[arg(required = true, value_parser = Reference::parse)]
    pub(crate) images: Vec<Reference>,

    /// Print what was removed as JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) state: StateArgs,
}

#[derive(Debug, Args)]
pub(crate) struct CollectArgs {
    /// Also remove images unused for this many days
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u64).range(0..36_500))]
    pub(crate) idle_days: Option<u64>,

    /// Print what was removed as JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) state: StateArgs,
}
