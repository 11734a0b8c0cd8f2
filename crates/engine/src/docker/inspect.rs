//! The state of containers, from what the engine reports.

use std::collections::BTreeMap;

use bollard::models::{
    ContainerInspectResponse, ContainerState, ContainerStateStatusEnum, ContainerSummary,
    ContainerSummaryStateEnum, SystemInfo,
};
use bollard::query_parameters::{
    InspectContainerOptions, ListContainersOptionsBuilder, ListVolumesOptionsBuilder,
};
use hotcell_domain::{ContainerId, ContainerSpec, CpuMillis, Lifetime, Limits, Phase};

use super::client::{Client, optional};
use super::config::{DockerConfig, Flavor};
use super::create::DockerInner;
use super::usage::Usage;
use super::{dialect, names, usage};
use crate::stored_spec::StoredSpec;
use crate::{Container, Enforced, Enforcement, EngineError, HostSize};

/// Properties of the engine's host.
#[derive(Debug, Clone, Copy)]
pub(super) struct DaemonInfo {
    /// What enforces a container's limits.
    pub(super) enforced: Enforced,
    /// Whether the engine runs as an ordinary user.
    pub(super) is_rootless: bool,
    /// Cores of its host, if the engine reports them.
    pub(super) cores: Option<u32>,
    /// Memory of its host, if the engine reports it.
    pub(super) memory_bytes: Option<u64>,
    /// Whether our containers run on a kernel of their own (gVisor).
    pub(super) has_own_kernel: bool,
    /// Whether images are in containerd's store.
    pub(super) has_containerd_store: bool,
}

impl Default for DaemonInfo {
    fn default() -> Self {
        Self {
            enforced: Enforced::NOTHING,
            is_rootless: false,
            cores: None,
            memory_bytes: None,
            has_own_kernel: false,
            has_containerd_store: false,
        }
    }
}

impl DaemonInfo {
    /// Asks the engine. Without a runtime it uses its default one.
    pub(super) async fn ask(client: &Client, runtime: Option<&str>) -> Result<Self, EngineError> {
        let info = client.call("ask the engine what it can", bollard::Docker::info);
        Ok(Self::of(&info.await?, runtime))
    }

    pub(super) fn of(info: &SystemInfo, runtime: Option<&str>) -> Self {
        let by_cgroup = |claim: Option<bool>| match claim {
            Some(true) => Enforcement::Cgroup,
            Some(false) | None => Enforcement::None,
        };
        // Memory beyond the limit would go to swap, unless that is limited, too.
        let memory = info.memory_limit.zip(info.swap_limit);
        let mut store = info.driver_status.iter().flatten().flatten();
        let options = info.security_options.iter().flatten();
        Self {
            enforced: Enforced {
                memory: by_cgroup(memory.map(|(memory, swap)| memory && swap)),
                cpus: by_cgroup(info.cpu_cfs_quota),
                pids: by_cgroup(info.pids_limit),
                // There is no volume limit that every driver supports.
                disk: Enforcement::Watched,
            },
            is_rootless: options
                .into_iter()
                .any(|option| option.contains("rootless")),
            cores: info.ncpu.and_then(|cores| u32::try_from(cores).ok()),
            memory_bytes: info.mem_total.and_then(|bytes| u64::try_from(bytes).ok()),
            has_own_kernel: is_gvisor(info, runtime),
            has_containerd_store: store.any(|word| word.contains("io.containerd.snapshotter")),
        }
    }

    /// The size of the engine's host. The engine does not report how many processes the host can
    /// have, and reports zero for unknown values.
    pub(super) fn host_size(self, this_host: HostSize) -> HostSize {
        let told = |memory: &u64| *memory > 0;
        HostSize {
            memory_bytes: self
                .memory_bytes
                .filter(told)
                .unwrap_or(this_host.memory_bytes),
            cores: self
                .cores
                .filter(|cores| *cores > 0)
                .unwrap_or(this_host.cores),
            ..this_host
        }
    }

    /// Rejects a container with a limit that the host cannot enforce.
    pub(super) fn check(self, config: &DockerConfig, limits: &Limits) -> Result<(), EngineError> {
        self.check_cpus(config.flavor, limits.cpus)?;
        self.check_enforced(config)
    }

    /// Rejects all containers if limits must be enforced but cannot be.
    pub(super) fn check_enforced(self, config: &DockerConfig) -> Result<(), EngineError> {
        match self.enforced.missing() {
            Some(limit) if config.require_limits => Err(EngineError::Unlimited { limit }),
            Some(_) | None => Ok(()),
        }
    }

    /// Rejects more cores than the host has: Docker's own message does not help callers.
    fn check_cpus(self, flavor: Flavor, cpus: CpuMillis) -> Result<(), EngineError> {
        match (flavor, self.cores) {
            (Flavor::Docker, Some(cores)) if cpus.get() > cores.saturating_mul(1000) => {
                let what = format!("more than {cores} cpus; ask for {cores} or fewer");
                Err(EngineError::Unsupported { what })
            }
            (Flavor::Docker | Flavor::Podman, _) => Ok(()),
        }
    }
}

/// Whether the runtime is gVisor, judged by its name or that of its program: an operator can give
/// it any name, and can have made it the engine's default.
fn is_gvisor(info: &SystemInfo, runtime: Option<&str>) -> bool {
    let Some(name) = runtime.or(info.default_runtime.as_deref()) else {
        return false;
    };
    let known = info.runtimes.as_ref().and_then(|known| known.get(name));
    let program = known.and_then(|runtime| runtime.path.as_deref());
    let program = program.and_then(|path| path.rsplit('/').next());
    let is_one = |text: &str| text.contains("runsc") || text.contains("gvisor");
    is_one(name) || program.is_some_and(is_one)
}

impl DockerInner {
    /// What the engine reports about a container, if it is ours.
    pub(super) async fn find_container(
        &self,
        id: &ContainerId,
    ) -> Result<Option<ContainerInspectResponse>, EngineError> {
        let name = names::of(id);
        let step = "look for the container";
        let found = self.client().call(step, async |api| {
            let options = None::<InspectContainerOptions>;
            dialect::inspected(api.inspect_container(&name, options).await)
        });
        let found = optional(found.await)?.filter(|found| {
            let labels = found
                .config
                .as_ref()
                .and_then(|config| config.labels.as_ref());
            names::owner(&self.config.scope, labels).as_ref() == Some(id)
        });
        if let Some(found) = &found
            && self.client().host().may_be_local()
        {
            self.processes().note(id, found);
        }
        Ok(found)
    }

    /// See [`crate::Engine::inspect`].
    pub(super) async fn inspect(&self, id: &ContainerId) -> Result<Container, EngineError> {
        let Some(found) = self.find_container(id).await? else {
            return self.inspect_remains(id).await;
        };
        let usage = usage::of(self.client(), &found).await;
        self.describe(id, found, usage).await
    }

    /// A container that was just created; its resource usage is not worth a request.
    pub(super) async fn inspect_new(&self, id: &ContainerId) -> Result<Container, EngineError> {
        let found = self.find_container(id).await?;
        let found = found.ok_or_else(|| EngineError::NotFound { id: id.clone() })?;
        self.describe(id, found, Usage::default()).await
    }

    async fn describe(
        &self,
        id: &ContainerId,
        found: ContainerInspectResponse,
        usage: Usage,
    ) -> Result<Container, EngineError> {
        let labels = found.config.and_then(|config| config.labels);
        let labels = labels.as_ref();
        let was_killed = found.state.as_ref().and_then(|state| state.oom_killed);
        Ok(Container {
            id: id.clone(),
            phase: phase(found.state.as_ref()),
            lifetime: lifetime(labels),
            enforced: self.daemon_info().await?.enforced,
            oom_kills: usage.oom_kills.max(u64::from(was_killed == Some(true))),
            memory_bytes: usage.memory_bytes,
            cpu_time: usage.cpu_time,
            image_digest: label(labels, names::DIGEST_LABEL),
            image_id: label(labels, names::IMAGE_LABEL),
            file_ids: None,
            spec: spec(labels),
        })
    }

    /// The leftovers of a container that the engine no longer has: its volume, or nothing.
    async fn inspect_remains(&self, id: &ContainerId) -> Result<Container, EngineError> {
        let name = names::of(id);
        let volume = self
            .client()
            .call("look for the workspace", |api| api.inspect_volume(&name));
        let labels = optional(volume.await)?.map(|volume| volume.labels);
        match names::owner(&self.config.scope, labels.as_ref()) {
            Some(owner) if owner == *id => self.plain(owner, Summary::REMAINS).await,
            Some(_) | None => Err(EngineError::NotFound { id: id.clone() }),
        }
    }

    /// See [`crate::Engine::list`]. Reports resource usage only if this host's kernel knows it: the
    /// engine would need one call per container.
    pub(super) async fn list(&self) -> Result<Vec<Container>, EngineError> {
        let step = "list the containers";
        let filter = names::filter_containers(&self.config.scope);
        let options = ListVolumesOptionsBuilder::default()
            .filters(&filter)
            .build();
        // Volumes first: a container that is created in between then has an entry of its own.
        let volumes = self
            .client()
            .call(step, |api| api.list_volumes(Some(options)));
        let volumes = volumes.await?.volumes.unwrap_or_default();
        let options = ListContainersOptionsBuilder::default()
            .all(true)
            .filters(&filter)
            .build();
        let containers = self.client().call(step, async |api| {
            dialect::listed(api.list_containers(Some(options)).await)
        });
        let containers = containers.await?;

        let scope = &self.config.scope;
        let mut all = BTreeMap::new();
        for volume in volumes {
            if let Some(id) = names::owner(scope, Some(&volume.labels)) {
                all.insert(id, Summary::REMAINS);
            }
        }
        for container in containers {
            if let Some(id) = names::owner(scope, container.labels.as_ref()) {
                all.insert(id, Summary::of(&container));
            }
        }
        let mut listed = Vec::with_capacity(all.len());
        for (id, summary) in all {
            listed.push(self.plain(id, summary).await?);
        }
        Ok(listed)
    }

    async fn plain(&self, id: ContainerId, summary: Summary) -> Result<Container, EngineError> {
        let usage = self.processes().usage(&id).unwrap_or_default();
        Ok(Container {
            id,
            phase: summary.phase,
            lifetime: summary.lifetime,
            enforced: self.daemon_info().await?.enforced,
            oom_kills: usage.oom_kills,
            memory_bytes: usage.memory_bytes,
            cpu_time: usage.cpu_time,
            image_digest: summary.image_digest,
            image_id: summary.image_id,
            file_ids: None,
            spec: summary.spec,
        })
    }
}

/// The properties of a container that a list contains.
struct Summary {
    phase: Phase,
    lifetime: Lifetime,
    image_digest: Option<String>,
    image_id: Option<String>,
    spec: Option<ContainerSpec>,
}

impl Summary {
    /// A volume without its container: the container is being created, or was removed halfway.
    const REMAINS: Self = Self {
        phase: Phase::Creating,
        lifetime: Lifetime::WithOwner,
        image_digest: None,
        image_id: None,
        spec: None,
    };

    fn of(container: &ContainerSummary) -> Self {
        let labels = container.labels.as_ref();
        Self {
            phase: summary_phase(container),
            lifetime: lifetime(labels),
            image_digest: label(labels, names::DIGEST_LABEL),
            image_id: label(labels, names::IMAGE_LABEL),
            spec: spec(labels),
        }
    }
}

fn label(labels: Option<&names::Labels>, name: &str) -> Option<String> {
    let value = labels.and_then(|labels| labels.get(name));
    value.filter(|value| !value.is_empty()).cloned()
}

/// The spec that a container with these labels was created from.
fn spec(labels: Option<&names::Labels>) -> Option<ContainerSpec> {
    let stored = StoredSpec::parse(labels?.get(names::SPEC_LABEL)?)?;
    stored.spec(lifetime(labels))
}

/// Whether a container with these labels ends with its owner.
fn lifetime(labels: Option<&names::Labels>) -> Lifetime {
    match labels.and_then(|labels| labels.get(names::LIFETIME_LABEL)) {
        Some(ends) if ends == names::WITH_OWNER => Lifetime::WithOwner,
        Some(_) | None => Lifetime::UntilDestroyed,
    }
}

/// The phase of a container.
pub(super) fn phase(state: Option<&ContainerState>) -> Phase {
    use ContainerStateStatusEnum as Status;
    let Some(state) = state else {
        return Phase::Failed;
    };
    match state.status {
        Some(Status::CREATED) => Phase::Creating,
        Some(Status::RUNNING | Status::PAUSED | Status::RESTARTING | Status::STOPPING) => {
            Phase::Running
        }
        Some(Status::EXITED) if state.exit_code == Some(0) => Phase::Stopped,
        Some(Status::EXITED | Status::DEAD | Status::REMOVING | Status::EMPTY) | None => {
            Phase::Failed
        }
    }
}

/// The phase from a list, which contains the exit code only as text.
fn summary_phase(container: &ContainerSummary) -> Phase {
    use ContainerSummaryStateEnum as State;
    let ended_well = container
        .status
        .as_deref()
        .is_some_and(|status| status.starts_with("Exited (0)"));
    match container.state {
        Some(State::CREATED) => Phase::Creating,
        Some(State::RUNNING | State::PAUSED | State::RESTARTING | State::STOPPING) => {
            Phase::Running
        }
        Some(State::EXITED) if ended_well => Phase::Stopped,
        Some(State::EXITED | State::DEAD | State::REMOVING | State::EMPTY) | None => Phase::Failed,
    }
}

#[cfg(test)]
mod tests {
    use bollard::models::Runtime;

    use super::*;

    #[test]
    fn gvisor_is_known_under_any_name_and_as_the_engines_own_choice() {
        let at = |path: &str| Runtime {
            path: Some(path.to_owned()),
            ..Runtime::default()
        };
        let runtimes = [
            ("runc", "runc"),
            ("sealed", "/usr/local/bin/runsc"),
            ("io.containerd.runsc.v1", ""),
        ];
        let runtimes = runtimes.map(|(name, path)| (name.to_owned(), at(path)));
        let info = |default: &str| SystemInfo {
            runtimes: Some(runtimes.clone().into()),
            default_runtime: Some(default.to_owned()),
            ..SystemInfo::default()
        };
        for (default, asked, is_one) in [
            ("runc", None, false),
            ("runc", Some("sealed"), true),
            ("sealed", None, true),
            ("sealed", Some("runc"), false),
            ("io.containerd.runsc.v1", None, true),
            ("/usr/sbin/runc", None, false),
        ] {
            let daemon_info = DaemonInfo::of(&info(default), asked);
            assert_eq!(daemon_info.has_own_kernel, is_one, "{default} {asked:?}");
        }
    }

    #[test]
    fn containerds_store_is_told_from_dockers_own() {
        let of = |key: &str, value: &str| {
            let status = vec![vec![key.to_owned(), value.to_owned()]];
            let info = SystemInfo {
                driver_status: Some(status),
                ..SystemInfo::default()
            };
            DaemonInfo::of(&info, None).has_containerd_store
        };
        assert!(of("driver-type", "io.containerd.snapshotter.v1"));
        assert!(!of("Backing Filesystem", "extfs"));
    }

    #[test]
    fn memory_is_limited_only_where_swap_is() {
        let of = |memory, swap| {
            let info = SystemInfo {
                memory_limit: memory,
                swap_limit: swap,
                ..SystemInfo::default()
            };
            DaemonInfo::of(&info, None).enforced.memory
        };
        assert_eq!(of(Some(true), Some(true)), Enforcement::Cgroup);
        for (memory, swap) in [
            (Some(true), Some(false)),
            (Some(false), Some(true)),
            (Some(true), None),
            (None, None),
        ] {
            assert_eq!(of(memory, swap), Enforcement::None, "{memory:?} {swap:?}");
        }
    }
}
