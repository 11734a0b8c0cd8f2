//! Translates a spec into the launcher's request.

use hotcell_agent_client::bounds;
use hotcell_domain::{
    ContainerId, ContainerSpec, IMAGE_ENV_BYTES_MAX, IMAGE_VARIABLES_MAX, Network, ProcessLimits,
    Profile,
};
use hotcell_image::Image;
use hotcell_runtime::{LaunchSpec, Limits, Root};

use super::init_process;
use super::workspace::Workspace;
use crate::EngineError;

/// `runtime` seals containers as the profile says.
const _: () = {
    let process = ProcessLimits::DEFAULT;
    assert!(
        Profile::USER_ID == hotcell_runtime::USER_ID
            && process.core_bytes_max == hotcell_runtime::CORE_BYTES_MAX
            && process.locked_bytes_max == hotcell_runtime::LOCKED_BYTES_MAX
            && process.message_queue_bytes_max == hotcell_runtime::MESSAGE_QUEUE_BYTES_MAX
            && process.pending_signals_max == hotcell_runtime::PENDING_SIGNALS_MAX
    );
};

/// The limits on an image's variables equal those on what an agent may report.
const _: () = assert!(
    IMAGE_ENV_BYTES_MAX == bounds::IMAGE_ENV_BYTES_MAX
        && IMAGE_VARIABLES_MAX == bounds::IMAGE_ENV_MAX
);

/// Rejects specs that this engine cannot run.
pub(super) fn check(spec: &ContainerSpec) -> Result<(), EngineError> {
    if spec.network != Network::None {
        return Err(EngineError::Unsupported {
            what: "network but \"none\"".into(),
        });
    }
    Ok(())
}

/// The launcher's request. The spec has passed [`check`].
pub(super) fn launch(
    id: &ContainerId,
    spec: &ContainerSpec,
    root: Root,
    workspace: &Workspace,
    cgroup: bool,
    image: Option<&Image>,
) -> LaunchSpec {
    let profile = Profile::of(spec);
    let mut argv = init_process::argv(id);
    if let Some(linger_ms) = profile.linger_ms {
        argv.extend(["--linger-ms".to_owned(), linger_ms.to_string()]);
    }
    LaunchSpec {
        name: id.to_string(),
        root,
        workspace: workspace.path.clone(),
        workspace_ids: workspace.format.ids.mapped(),
        ids: workspace.ids,
        limits: Limits {
            memory_bytes: profile.limits.memory.get(),
            cpu_millis: profile.limits.cpus.get(),
            pids: profile.limits.pids.get(),
            tmp_bytes: profile.limits.tmp.get(),
            shm_bytes: profile.shm_bytes_max,
            open_files: profile.process.open_files_max,
        },
        allow_root: profile.allow_root,
        cgroup,
        argv,
        env: environment(image),
    }
}

/// The image's variables, which the agent reports to the server. Its user, directory and entry
/// point have no effect: the profile determines those.
fn environment(image: Option<&Image>) -> Vec<String> {
    let env = image.map(|image| &image.config.env[..]).unwrap_or_default();
    let variable = |(name, value): &(String, String)| format!("{name}={value}");
    env.iter().map(variable).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_parts_of_proc_are_hidden_as_on_every_engine() {
        assert_eq!(Profile::PROC_MASKED, hotcell_runtime::PROC_MASKED);
    }
}
