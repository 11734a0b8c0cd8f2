//! Translates the command line into the settings of each part.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};
use hotcell_domain::{Caller, ImageRef, Policy};
use hotcell_engine::{Capabilities, EngineKind, HostSize};
use hotcell_mcp::{Options, Toolsets};
use hotcell_service::Settings;

use super::warm;
use crate::cli::{Ceilings, ServeArgs};
use crate::config::Tables;
use crate::egress;
use crate::engines::OpenedEngine;

const DAY: Duration = Duration::from_hours(24);

/// The settings of the service.
pub(super) async fn of_service(
    arguments: &ServeArgs,
    tables: &Tables,
    directory: &Path,
    OpenedEngine { kind, engine }: &OpenedEngine,
) -> Result<Settings> {
    let aliases = &tables.aliases;
    let capabilities = engine.capabilities().await?;
    let default_image = match &arguments.default.default_image {
        Some(name) => aliases.resolve(name),
        None => ImageRef::parse(kind.default_image())?,
    };
    let warmed = arguments.warm.warm_images.iter();
    let warmed = warmed.map(|warm| aliases.resolve(&warm.image));
    let code = arguments.code.settings(aliases);
    if !capabilities.host_images {
        let named = warmed.chain(code.image.clone());
        refuse_host_images(*kind, named.chain([default_image.clone()]))?;
    }
    let ceilings = ceilings(arguments, capabilities.host_size)?;
    let policy = Policy {
        maxima: Some(ceilings.maxima),
        allow_rootfs: arguments.permissions.allow_rootfs,
        allow_root: arguments.permissions.allow_as_root,
        allow_network: arguments.permissions.allow_network && has_network(*kind, capabilities),
        images: arguments.images.policy(),
    };
    let default = (&default_image, ceilings.default);
    Ok(Settings {
        warm: warm::stocks(&arguments.warm, aliases, &policy, default)?,
        aliases: aliases.clone(),
        warm_check_interval: arguments.warm.warm_check_s,
        allow_ports: arguments.permissions.allow_ports,
        policy,
        default_image,
        default_limits: ceilings.default,
        totals: Some(ceilings.totals),
        execs_running_max: arguments.counts.execs_running_max,
        execs_queued_max: arguments.counts.execs_queued_max,
        quotas: arguments.quotas.quotas(&tables.quotas)?,
        output_bytes_max: arguments.storage.output_bytes_max.get(),
        ended_execs_max: arguments.storage.ended_execs_max,
        ended_containers_max: arguments.storage.ended_containers_max,
        code,
        egress: egress::settings(&tables.egress, arguments.permissions.egress.as_ref()),
        assigned: egress::assigned(tables),
        egress_directory: Some(egress::directory(directory)),
        reserve_bytes: arguments.storage.reserve_bytes,
        transient_idle_max: DAY * u32::from(arguments.storage.transient_gc_days),
        image_idle_max: (arguments.storage.image_gc_days > 0)
            .then(|| DAY * u32::from(arguments.storage.image_gc_days)),
        ..Settings::default()
    })
}

/// The limits of containers. They are logged, because most of them are derived from the host.
fn ceilings(arguments: &ServeArgs, host: HostSize) -> Result<Ceilings> {
    let ceilings = arguments.limits.below(arguments.ceilings, host)?;
    let Ceilings { maxima, totals, .. } = &ceilings;
    tracing::info!(
        memory_max = %maxima.memory,
        cpus_max = %maxima.cpus,
        pids_max = %maxima.pids,
        disk_max = %maxima.disk,
        memory_total = %totals.memory,
        pids_total = %totals.pids,
        "limits that callers may ask for, and all containers together"
    );
    Ok(ceilings)
}

/// Rejects images made of this host's files, for engines that cannot use them.
fn refuse_host_images(kind: &dyn EngineKind, images: impl Iterator<Item = ImageRef>) -> Result<()> {
    let mut images = images.filter(|image| !matches!(image, ImageRef::Oci(_)));
    match images.next() {
        None => Ok(()),
        Some(image) => bail!(
            "engine {} cannot use image {image}, which is made of this host's files; \
             say --default-image {}, or name another --engine",
            kind.name(),
            kind.default_image()
        ),
    }
}

/// Whether an engine's containers can have a network. If not, but it is allowed, that is logged.
fn has_network(kind: &dyn EngineKind, capabilities: Capabilities) -> bool {
    if !capabilities.network {
        tracing::warn!(
            engine = kind.name(),
            "containers of this engine cannot have a network; --allow-network has no effect"
        );
    }
    capabilities.network
}

/// The settings of the MCP server. `url` is the URL of HTTP, if there is HTTP.
pub(super) fn of_protocol(arguments: &ServeArgs, url: Option<String>) -> Options {
    Options {
        toolsets: arguments.server.toolsets.unwrap_or(Toolsets::ALL),
        caller: Caller::local(),
        public_url: arguments.server.public_url.clone().or(url),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..Options::default()
    }
}
