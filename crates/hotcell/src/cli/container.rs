//! The container of a command that needs no server.

use clap::Args;
use clap::builder::BoolishValueParser;
use hotcell_domain::ImageName;
use hotcell_egress::ProfileName;

use super::{LimitArgs, StateArgs};
use crate::image::PolicyArgs;

/// A container that ends with the command.
#[derive(Debug, Args)]
pub(crate) struct ContainerArgs {
    /// What the container's root is made of: `host`, `rootfs:/path`, or an image such as
    /// `python:3.12-slim` or an alias of one, which is pulled if it is missing
    #[arg(long, default_value = "host", value_parser = ImageName::parse)]
    pub(crate) image: ImageName,

    /// Egress profile: what it may reach, such as `packages` [default: `default` of `[egress]`]
    #[arg(long, value_name = "PROFILE", value_parser = ProfileName::parse, env = "HOTCELL_EGRESS")]
    pub(crate) egress: Option<ProfileName>,

    /// Refuse to run where a limit cannot be enforced
    #[arg(long, env = "HOTCELL_REQUIRE_LIMITS", value_parser = BoolishValueParser::new())]
    pub(crate) require_limits: bool,

    // Last: a heading lasts until the next one.
    #[command(flatten)]
    pub(crate) limits: LimitArgs,

    #[command(flatten)]
    pub(crate) images: PolicyArgs,

    #[command(flatten)]
    pub(crate) state: StateArgs,
}
