//! From what a caller wants to what the launcher makes.

use std::path::PathBuf;

use hotcell_agent_client::bounds;
use hotcell_domain::{
    ContainerId, ContainerSpec, IMAGE_ENV_BYTES_MAX, IMAGE_VARIABLES_MAX, Lifetime, Network,
};
use hotcell_image::Image;
use hotcell_runtime::{IdMap, LaunchSpec, Limits, Root};

use super::init_process;
use crate::EngineError;

/// How long an agent whose owner lost its connection waits for it to come back.
const LINGER_MS: u32 = 2000;

/// `/dev/shm`, as Docker has it.
const SHM_BYTES: u64 = 64 << 20;

/// Open files of one process; what most hosts allow without asking.
const OPEN_FILES: u64 = 4096;

/// What images may set, and what agents may tell of it, are the same.
const _: () = assert!(
    IMAGE_ENV_BYTES_MAX == bounds::IMAGE_ENV_BYTES_MAX
        && IMAGE_VARIABLES_MAX == bounds::IMAGE_ENV_MAX
);

/// Whether this engine can make such a container at all.
pub(super) fn check(spec: &ContainerSpec) -> Result<(), EngineError> {
    if spec.network != Network::None {
        return Err(EngineError::Unsupported {
            what: "network but \"none\"".into(),
        });
    }
    Ok(())
}

/// What the launcher is asked for. The spec has passed [`check`].
pub(super) fn launch(
    id: &ContainerId,
    spec: &ContainerSpec,
    root: Root,
    workspace: PathBuf,
    ids: IdMap,
    cgroup: bool,
    image: Option<&Image>,
) -> LaunchSpec {
    let mut argv = init_process::argv(id);
    if spec.lifetime == Lifetime::WithOwner {
        argv.extend(["--linger-ms".to_owned(), LINGER_MS.to_string()]);
    }
    LaunchSpec {
        name: id.to_string(),
        root,
        workspace,
        workspace_ids: None,
        ids,
        limits: Limits {
            memory_bytes: spec.limits.memory.get(),
            cpu_millis: spec.limits.cpus.get(),
            pids: spec.limits.pids.get(),
            tmp_bytes: spec.limits.tmp.get(),
            shm_bytes: SHM_BYTES,
            open_files: OPEN_FILES,
        },
        allow_root: spec.allow_root,
        cgroup,
        argv,
        env: environment(image),
    }
}

/// The image's variables: the agent tells them to whoever starts execs. Its user, its
/// directory and its entry point have no effect: the profile decides on those.
fn environment(image: Option<&Image>) -> Vec<String> {
    let env = image.map(|image| &image.config.env[..]).unwrap_or_default();
    let variable = |(name, value): &(String, String)| format!("{name}={value}");
    env.iter().map(variable).collect()
}
