//! The command line of images.

use std::path::PathBuf;

use clap::builder::BoolishValueParser;
use clap::{ArgGroup, Args, Subcommand};
use hotcell_domain::{ImagePolicy, Reference};

use crate::cli::StateArgs;

/// What to pull, and whence.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("whence").required(true).multiple(true).args(["image", "from"]))]
pub(crate) struct PullArgs {
    /// The image, such as `python:3.12-slim`; with --from, the name to give it
    #[arg(value_parser = Reference::parse)]
    pub(crate) image: Option<Reference>,

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

/// Which images may be used.
#[derive(Debug, Args)]
pub(crate) struct PolicyArgs {
    /// Registries that images may come from
    #[arg(
        long,
        value_name = "HOST,…",
        value_delimiter = ',',
        env = "HOTCELL_ALLOWED_REGISTRIES",
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

    /// Registries that may be spoken to without TLS, besides those on this host
    #[arg(
        long,
        value_name = "HOST,…",
        value_delimiter = ',',
        env = "HOTCELL_PLAIN_HTTP"
    )]
    plain_http: Vec<String>,

    /// Use only images that are given with their digest
    #[arg(long, env = "HOTCELL_REQUIRE_DIGEST", value_parser = BoolishValueParser::new())]
    require_digest: bool,
}

impl PolicyArgs {
    /// Whoever may start this program may also load images.
    pub(crate) fn policy(&self) -> ImagePolicy {
        ImagePolicy {
            registries: self.allowed_registries.clone(),
            images: self.allowed_images.clone(),
            require_digest: self.require_digest,
            local_images: true,
            plain_http: self.plain_http.clone(),
        }
    }
}

/// What to do with images.
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

    #[command(flatten)]
    pub(crate) state: StateArgs,
}

#[derive(Debug, Args)]
pub(crate) struct CollectArgs {
    /// Also remove images of which no container was made for so many days
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u64).range(0..36_500))]
    pub(crate) idle_days: Option<u64>,

    /// Print what was removed as JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) state: StateArgs,
}
