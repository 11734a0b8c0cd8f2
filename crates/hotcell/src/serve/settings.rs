//! From the command line to the settings of each part.

use std::time::Duration;

use hotcell_domain::{Caller, Policy};
use hotcell_mcp::{Options, Toolsets};
use hotcell_service::Settings;

use crate::cli::ServeArgs;

const DAY: Duration = Duration::from_hours(24);

/// What the service is told.
pub(super) fn of_service(arguments: &ServeArgs) -> Settings {
    Settings {
        policy: Policy {
            allow_rootfs: arguments.allow_rootfs,
            allow_root: arguments.allow_as_root,
        },
        default_image: arguments.default_image.clone(),
        default_limits: arguments.limits.limits(),
        execs_running_max: arguments.execs_running_max,
        execs_queued_max: arguments.execs_queued_max,
        containers_max: arguments.containers_max,
        output_bytes_max: arguments.output_bytes_max.get(),
        transient_idle_max: DAY * u32::from(arguments.transient_gc_days),
        ..Settings::default()
    }
}

/// What the protocol's side is told. `url` is where HTTP is found, if it is.
pub(super) fn of_protocol(arguments: &ServeArgs, url: Option<String>) -> Options {
    Options {
        toolsets: arguments.toolsets.unwrap_or(Toolsets::ALL),
        caller: Caller::local(),
        public_url: arguments.public_url.clone().or(url),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    }
}
