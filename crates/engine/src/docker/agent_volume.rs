//! The volume with the agent: one for each version, filled once, mounted read-only.
//!
//! It is filled through the engine's archive call, which also works with an engine on another
//! host. That call needs a container that mounts the volume, so one is created, never started,
//! and removed. The marker is the last entry of the archive: if it exists, the agent is complete.
//! Every user of the engine can create a volume of this name, so each server reads the content
//! back once and compares it.
//!
//! An image is hostile, and can have files, links and volumes at any path. So each container,
//! the one that fills the volume included, mounts it at an [`AgentMount`] with a random name that
//! is drawn after the image was chosen: nothing of the image can be at that path or below it.

use std::time::Duration;

use bollard::container::PathStatResponse;
use bollard::models::{ContainerCreateBody, HostConfig, VolumeCreateRequest};
use bollard::query_parameters::{
    ContainerArchiveInfoOptionsBuilder, CreateContainerOptionsBuilder,
    DownloadFromContainerOptionsBuilder, RemoveContainerOptionsBuilder,
    UploadToContainerOptionsBuilder,
};
use futures_util::StreamExt as _;
use sha2::{Digest as _, Sha256};

use super::client::{Client, Fault, FaultKind, optional};
use super::config::DockerConfig;
use super::image::LocalImage;
use super::profile::{Volume, mounted};
use super::{archive, names};
use crate::EngineError;

/// The seccomp filter in the volume.
const FILTER_NAME: &str = "filter";

/// The agent in the volume.
const AGENT_NAME: &str = "hotcell-agent";

/// The marker: the agent in the volume is complete.
const MARK_NAME: &str = "complete";

/// Attempts to fill the volume, and the pause before the second; later pauses are longer.
const FILLS_MAX: u32 = 6;
const FILL_PAUSE: Duration = Duration::from_millis(100);

/// Where one container mounts the volume: a directory of the root that no image can have.
#[derive(Debug)]
pub(super) struct AgentMount(String);

impl AgentMount {
    /// Draws a random name, which nobody who builds an image can guess.
    pub(super) fn draw() -> Result<Self, EngineError> {
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(EngineError::engine("draw a random name"))?;
        let random = u128::from_ne_bytes(random);
        Ok(Self(format!("/.hotcell-{random:032x}")))
    }

    pub(super) fn directory(&self) -> &str {
        &self.0
    }

    /// The path of the agent in the container.
    pub(super) fn agent(&self) -> String {
        self.file(AGENT_NAME)
    }

    /// The path of the seccomp filter in the container.
    pub(super) fn filter(&self) -> String {
        self.file(FILTER_NAME)
    }

    fn file(&self, name: &str) -> String {
        format!("{}/{name}", self.0)
    }
}

/// The volume's name for this agent and our filter.
pub(super) fn volume_name(agent: &[u8]) -> String {
    let digest = Sha256::new().chain_update(agent).chain_update(filter());
    let mut start = [0; 8];
    start.copy_from_slice(&digest.finalize()[..8]);
    format!("hotcell-agent-{:016x}", u64::from_be_bytes(start))
}

/// Makes sure that the volume exists and holds the complete agent.
///
/// Idempotent, and safe while other servers do the same: they write the same bytes, and only
/// what is missing. Returns whether something was missing. On `Err` the container that fills the
/// volume may be left behind.
pub(super) async fn ensure(
    client: &Client,
    config: &DockerConfig,
    name: &str,
    filler: &str,
    image: &LocalImage,
) -> Result<bool, EngineError> {
    let mount = AgentMount::draw()?;
    let labels = names::of_agent(&config.scope);
    let request = VolumeCreateRequest {
        name: Some(name.to_owned()),
        labels: Some(labels.clone()),
        ..VolumeCreateRequest::default()
    };
    let step = "make the agent's volume";
    if let Err(fault) = client.call(step, |api| api.create_volume(request)).await {
        // Podman refuses to create what another server creates at the same moment.
        let there = client.call(step, |api| api.inspect_volume(name)).await;
        optional(there)?.ok_or(fault)?;
    }
    let body = filler_body(config, &mount, name, image, labels);
    make_filler(client, filler, body).await?;
    let was_missing = fill(client, config, filler, &mount).await?;
    verify(client, config, name, filler, &mount).await?;
    remove_filler(client, filler).await?;
    Ok(was_missing)
}

/// The embedded engine's seccomp filter, as the bytes of its instructions. The agent loads it,
/// so that every engine refuses the same system calls, whatever its own filter allows.
fn filter() -> Vec<u8> {
    hotcell_runtime::filter()
}

/// The container that mounts the volume to fill it. It is never started.
fn filler_body(
    config: &DockerConfig,
    mount: &AgentMount,
    name: &str,
    image: &LocalImage,
    labels: names::Labels,
) -> ContainerCreateBody {
    let volume = Volume {
        name,
        target: mount.directory(),
        is_read_only: false,
        labels: labels.clone(),
    };
    ContainerCreateBody {
        image: Some(image.id.clone()),
        entrypoint: Some(vec![mount.agent()]),
        labels: Some(labels),
        host_config: Some(mounted(
            config.flavor,
            &[volume],
            HostConfig {
                network_mode: Some("none".to_owned()),
                ..HostConfig::default()
            },
        )),
        ..ContainerCreateBody::default()
    }
}

async fn make_filler(
    client: &Client,
    filler: &str,
    body: ContainerCreateBody,
) -> Result<(), Fault> {
    let options = CreateContainerOptionsBuilder::default()
        .name(filler)
        .build();
    let step = "make a container to fill the agent's volume";
    let made = client.call(step, |api| api.create_container(Some(options), body));
    made.await?;
    Ok(())
}

/// Fills the volume unless it is complete, and returns whether it was not. Podman refuses to write
/// a file that another server writes at the same moment: then one of the two finds, a little
/// later, that the volume is complete.
async fn fill(
    client: &Client,
    config: &DockerConfig,
    filler: &str,
    mount: &AgentMount,
) -> Result<bool, EngineError> {
    let mut attempt = 1;
    while !is_filled(client, config, filler, mount).await? {
        match upload(client, config, filler, mount).await? {
            Ok(()) => return Ok(true),
            Err(fault) if is_refusal(&fault) && attempt < FILLS_MAX => {
                tokio::time::sleep(FILL_PAUSE * attempt).await;
                attempt += 1;
            }
            Err(fault) => return Err(fault.into()),
        }
    }
    Ok(attempt > 1)
}

fn is_refusal(fault: &Fault) -> bool {
    matches!(fault.kind, FaultKind::Refused | FaultKind::Conflict)
}

/// Whether the marker exists and the agent has all its bytes: after a power cut a file may exist
/// without its content.
async fn is_filled(
    client: &Client,
    config: &DockerConfig,
    filler: &str,
    mount: &AgentMount,
) -> Result<bool, Fault> {
    for (name, size) in [(MARK_NAME, 0), (AGENT_NAME, config.agent.len())] {
        let path = mount.file(name);
        let options = ContainerArchiveInfoOptionsBuilder::default()
            .path(&path)
            .build();
        let step = "look into the agent's volume";
        let found = client.call(step, |api| {
            api.get_container_archive_info(filler, Some(options))
        });
        let is_whole = optional(found.await)?
            .is_some_and(|found| is_plain_file(&found) && usize::try_from(found.size) == Ok(size));
        if !is_whole {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Bytes that an archive may have besides the content of its one file.
const ARCHIVE_BYTES_MAX: usize = 64 << 10;

/// Reads the volume back, and refuses one with other content than ours. Another server may be
/// writing the same content at this moment, so a difference is checked again a little later.
async fn verify(
    client: &Client,
    config: &DockerConfig,
    name: &str,
    filler: &str,
    mount: &AgentMount,
) -> Result<(), EngineError> {
    for attempt in 1..FILLS_MAX {
        if let Ok(None) = find_foreign(client, config, filler, mount).await {
            return Ok(());
        }
        tokio::time::sleep(FILL_PAUSE * attempt).await;
    }
    let Some(file) = find_foreign(client, config, filler, mount).await? else {
        return Ok(());
    };
    let engine = config.flavor.name();
    let refusal = format!(
        "volume {name} holds another {file} than this server's: somebody else filled it; \
         remove it (`{engine} volume rm {name}`) and try again"
    );
    Err(EngineError::engine("trust the agent's volume")(refusal))
}

/// The first file of the volume that is missing or has other content than ours.
async fn find_foreign(
    client: &Client,
    config: &DockerConfig,
    filler: &str,
    mount: &AgentMount,
) -> Result<Option<&'static str>, Fault> {
    let calls = filter();
    for (file, ours) in [(AGENT_NAME, config.agent), (FILTER_NAME, &calls[..])] {
        let bytes_max = ours.len() + ARCHIVE_BYTES_MAX;
        let found = download(client, filler, &mount.file(file), bytes_max).await;
        let is_ours = optional(found)?.is_some_and(|found| archive::is_one_file(&found, ours));
        if !is_ours {
            return Ok(Some(file));
        }
    }
    Ok(None)
}

/// An archive of one file of a container, cut off where it is longer than it may be.
async fn download(
    client: &Client,
    container: &str,
    path: &str,
    bytes_max: usize,
) -> Result<Vec<u8>, Fault> {
    let options = DownloadFromContainerOptionsBuilder::default()
        .path(path)
        .build();
    let step = "read the agent's volume";
    let read = client.call(step, async |api| {
        let mut archive = Box::pin(api.download_from_container(container, Some(options)));
        let mut bytes = Vec::new();
        while bytes.len() <= bytes_max
            && let Some(piece) = archive.next().await
        {
            bytes.extend_from_slice(&piece?);
        }
        Ok(bytes)
    });
    read.await
}

/// Whether it is a regular file: the bits with which engines mark other file types are not set.
fn is_plain_file(found: &PathStatResponse) -> bool {
    const KINDS: u32 = 1 << 31 | 1 << 27 | 0b111 << 24 | 1 << 21 | 1 << 19;
    found.file_mode & KINDS == 0
}

/// Writes all files. The outer error is ours, the inner one the engine's.
async fn upload(
    client: &Client,
    config: &DockerConfig,
    filler: &str,
    mount: &AgentMount,
) -> Result<Result<(), Fault>, EngineError> {
    let step = "fill the agent's volume";
    let archive = archive::files(&[
        (AGENT_NAME, config.agent),
        (FILTER_NAME, &filter()),
        (MARK_NAME, b""),
    ]);
    let archive = archive.map_err(EngineError::engine(step))?;
    let options = UploadToContainerOptionsBuilder::default()
        .path(mount.directory())
        .build();
    let body = bollard::body_full(archive.into());
    let uploaded = client.call(step, |api| {
        api.upload_to_container(filler, Some(options), body)
    });
    Ok(uploaded.await)
}

/// Removes the container that fills the volume, also one that a dead process left.
pub(super) async fn remove_filler(client: &Client, filler: &str) -> Result<(), Fault> {
    let options = RemoveContainerOptionsBuilder::default()
        .force(true)
        .v(true)
        .build();
    let step = "remove the container that filled the agent's volume";
    let removed = client.call(step, |api| api.remove_container(filler, Some(options)));
    optional(removed.await).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_agent_has_a_volume_of_its_own() {
        assert_eq!(volume_name(b"one"), volume_name(b"one"));
        assert_ne!(volume_name(b"one"), volume_name(b"two"));
    }
}
