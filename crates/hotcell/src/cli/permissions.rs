//! Permissions of callers, and the default image.

use clap::Args;
use clap::builder::BoolishValueParser;
use hotcell_domain::ImageName;
use hotcell_egress::ProfileName;

/// What callers may request beyond a sealed container.
#[derive(Debug, Args)]
#[command(next_help_heading = "Policy")]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of the command line"
)]
pub(crate) struct PermissionArgs {
    /// Allow execs to run as root inside their container
    #[arg(long, env = "HOTCELL_ALLOW_AS_ROOT", value_parser = BoolishValueParser::new())]
    pub(crate) allow_as_root: bool,

    /// Allow containers with unrestricted network access (`network: full`)
    #[arg(long, env = "HOTCELL_ALLOW_NETWORK", value_parser = BoolishValueParser::new())]
    pub(crate) allow_network: bool,

    /// Allow owners to connect to ports of their containers (`hotcell forward`, `/v1/containers/{id}/ports/{port}/`)
    #[arg(long, env = "HOTCELL_ALLOW_PORTS", value_parser = BoolishValueParser::new())]
    pub(crate) allow_ports: bool,

    /// Allow a directory of this host as a container's root file system (`rootfs:/path`)
    #[arg(long, env = "HOTCELL_ALLOW_ROOTFS", value_parser = BoolishValueParser::new())]
    pub(crate) allow_rootfs: bool,

    /// Egress profile of containers that name none, instead of `default` of `[egress]`
    #[arg(long, value_name = "PROFILE", value_parser = ProfileName::parse, env = "HOTCELL_EGRESS")]
    pub(crate) egress: Option<ProfileName>,
}

/// The image of containers that do not name one.
#[derive(Debug, Args)]
#[command(next_help_heading = "Images")]
pub(crate) struct DefaultImageArgs {
    /// Image, or alias of one, for containers that do not name one [default: host; with Docker and Podman python:3.12-slim]
    #[arg(long, value_name = "IMAGE", value_parser = ImageName::parse, env = "HOTCELL_DEFAULT_IMAGE")]
    pub(crate) default_image: Option<ImageName>,
}
