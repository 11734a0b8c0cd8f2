//! The container profile, translated into the options of Docker and Podman.

use std::collections::HashMap;

use bollard::models::{
    ContainerCreateBody, HealthConfig, HostConfig, HostConfigCgroupnsModeEnum, HostConfigLogConfig,
    Mount, MountType, MountVolumeOptions, ResourcesUlimits, RestartPolicy, RestartPolicyNameEnum,
};
use hotcell_domain::{
    Admitted, ContainerId, ContainerSpec, ImageRef, Lifetime, Network, Profile, Source,
};

use super::agent_volume::AgentMount;
use super::config::{DockerConfig, Flavor};
use super::image::LocalImage;
use super::inspect::DaemonInfo;
use super::names;
use crate::EngineError;
use crate::stored_spec::StoredSpec;

/// The user that the agent starts as if its execs may run as root. It switches to the container's
/// user at once: engines cannot give capabilities to an ordinary user, but a process that switches
/// can keep them.
const AGENT_ROOT: &str = "0:0";

/// The capabilities that the agent then starts with: those that it needs to run execs as another
/// user, and to drop all others.
const AGENT_CAPABILITIES: [&str; 4] = ["SETUID", "SETGID", "KILL", "SETPCAP"];

/// The abstract name of the agent's socket: see the agent's `handshake`.
pub(super) const AGENT_SOCKET: &str = "hotcell-agent";

/// The user that the agent accepts connections from. Nothing in the container can become it: no
/// process there has a capability or can gain one. No image is known to use it.
pub(super) const CONNECT_UID: u32 = 65533;

/// The directories of a read-only root where Podman mounts an unlimited tmpfs, unless something
/// else is mounted there.
const PODMANS_TMPFS: [&str; 2] = ["/run", "/var/tmp"];

/// The paths that Docker masks by default outside of `/proc`, besides one directory per core.
const SYS_MASKED: [&str; 2] = ["/sys/devices/virtual/powercap", "/sys/firmware"];

/// Most cores whose directories are masked.
const MASKED_CORES_MAX: u32 = 1024;

/// `RLIMIT_NPROC`: processes of one host user, over all containers. Only set if the engine would
/// otherwise request more than a host may allow.
const USER_PROCESSES: u64 = 16_384;

/// Host processes per process in gVisor, and those that gVisor needs for itself.
const SANDBOX_PIDS_FACTOR: i64 = 4;
const SANDBOX_PIDS: i64 = 256;

/// Log size that the engine keeps of the agent's few messages.
const LOG_SIZE: &str = "256k";

/// Rejects specs that this engine cannot run; returns the image.
pub(super) fn check(spec: &Admitted<ContainerSpec>) -> Result<Source, EngineError> {
    let unsupported = |what: &str| EngineError::Unsupported { what: what.into() };
    match &spec.value().image {
        ImageRef::Oci(reference) => {
            let source = spec.image().map(|source| source.value().clone());
            source.ok_or_else(|| unsupported(&format!("image {reference}")))
        }
        ImageRef::Host => Err(unsupported(
            "image \"host\": that is the embedded engine's; name an OCI image",
        )),
        ImageRef::Rootfs(_) => Err(unsupported(
            "images of the form rootfs:PATH: those are the embedded engine's; name an OCI image",
        )),
    }
}

/// The agent's volume and its mount point in a container.
pub(super) struct Agent<'a> {
    pub(super) volume: &'a str,
    pub(super) mount: &'a AgentMount,
}

/// The engine's request body. The spec has passed [`check`].
pub(super) fn body(
    config: &DockerConfig,
    host: DaemonInfo,
    id: &ContainerId,
    spec: &ContainerSpec,
    image: &LocalImage,
    agent: &Agent<'_>,
) -> ContainerCreateBody {
    let profile = Profile::of(spec);
    let volumes = [
        Volume {
            name: &names::of(id),
            target: profile.workspace,
            is_read_only: false,
            labels: names::labels(&config.scope, id),
        },
        Volume {
            name: agent.volume,
            target: agent.mount.directory(),
            is_read_only: true,
            labels: names::of_agent(&config.scope),
        },
    ];
    ContainerCreateBody {
        hostname: Some("hotcell".to_owned()),
        user: Some(first_user(&profile)),
        env: Some(vec![profile.home_variable()]),
        entrypoint: Some(agent_command(host, agent.mount, id, &profile)),
        cmd: Some(Vec::new()),
        // The engine would otherwise run the image's health check inside, for ever.
        healthcheck: Some(HealthConfig {
            test: Some(vec!["NONE".to_owned()]),
            ..HealthConfig::default()
        }),
        image: Some(image.id.clone()),
        working_dir: Some(profile.workspace.to_owned()),
        // The agent ignores SIGTERM, and an engine that shuts down would wait for it.
        stop_signal: Some("SIGKILL".to_owned()),
        labels: Some(labels(config, id, spec, image)),
        host_config: Some(mounted(
            config.flavor,
            &volumes,
            sealed(config, host, &profile),
        )),
        ..ContainerCreateBody::default()
    }
}

fn first_user(profile: &Profile) -> String {
    if profile.allow_root {
        return AGENT_ROOT.to_owned();
    }
    profile.user()
}

fn agent_command(
    host: DaemonInfo,
    mount: &AgentMount,
    id: &ContainerId,
    profile: &Profile,
) -> Vec<String> {
    let (agent, filter, id) = (mount.agent(), mount.filter(), id.to_string());
    let uid = CONNECT_UID.to_string();
    let mut command = vec![
        &agent,
        "init",
        "--container",
        &id,
        "--root",
        profile.workspace,
        "--listen-abstract",
        AGENT_SOCKET,
        &uid,
    ];
    if profile.seccomp {
        command.extend(["--filter", &filter]);
    }
    if host.has_own_kernel {
        command.push("--own-kernel");
    }
    let linger = profile.linger_ms.map(|linger_ms| linger_ms.to_string());
    if let Some(linger) = &linger {
        command.extend(["--linger-ms", linger]);
    }
    let [user, group] = [profile.user_id, profile.group_id].map(|id| id.to_string());
    if profile.allow_root {
        command.extend(["--become", &user, &group]);
    }
    command.into_iter().map(str::to_owned).collect()
}

fn labels(
    config: &DockerConfig,
    id: &ContainerId,
    spec: &ContainerSpec,
    image: &LocalImage,
) -> names::Labels {
    let lifetime = match spec.lifetime {
        Lifetime::WithOwner => names::WITH_OWNER,
        Lifetime::UntilDestroyed => names::UNTIL_DESTROYED,
    };
    let stored = StoredSpec::of(spec).to_text();
    let identity = image.identity();
    let own = [
        (names::SPEC_LABEL, stored.as_str()),
        (names::IMAGE_LABEL, image.id.as_str()),
        (names::DIGEST_LABEL, identity.as_str()),
        (names::LIFETIME_LABEL, lifetime),
    ];
    let mut labels = names::labels(&config.scope, id);
    labels.extend(own.map(|(name, value)| (name.to_owned(), value.to_owned())));
    labels
}

fn sealed(config: &DockerConfig, host: DaemonInfo, profile: &Profile) -> HostConfig {
    let memory = signed(profile.limits.memory.get());
    HostConfig {
        runtime: config.runtime.clone(),
        cap_drop: Some(vec!["ALL".to_owned()]),
        cap_add: profile
            .allow_root
            .then(|| AGENT_CAPABILITIES.map(str::to_owned).into()),
        security_opt: Some(security(config.flavor, profile)),
        masked_paths: masked(config.flavor, host, profile),
        readonly_rootfs: Some(profile.read_only_root),
        privileged: Some(false),
        init: Some(false),
        ipc_mode: Some("private".to_owned()),
        cgroupns_mode: Some(HostConfigCgroupnsModeEnum::PRIVATE),
        network_mode: Some(network(profile.network).to_owned()),
        dns: dns(config.flavor, profile.network),
        sysctls: sysctls(config.flavor, profile.network),
        memory: Some(memory),
        memory_swap: Some(memory),
        nano_cpus: Some(i64::from(profile.limits.cpus.get()) * 1_000_000),
        pids_limit: Some(pids(host, profile)),
        ulimits: Some(ulimits(config.flavor, host, profile)),
        tmpfs: Some(tmpfs(config.flavor, profile)),
        shm_size: Some(signed(profile.shm_bytes_max)),
        restart_policy: Some(RestartPolicy {
            name: Some(RestartPolicyNameEnum::NO),
            maximum_retry_count: None,
        }),
        log_config: Some(HostConfigLogConfig {
            typ: Some("json-file".to_owned()),
            config: Some(HashMap::from([(
                "max-size".to_owned(),
                LOG_SIZE.to_owned(),
            )])),
        }),
        ..HostConfig::default()
    }
}

/// Security options. Podman masks these paths in addition to its own.
fn security(flavor: Flavor, profile: &Profile) -> Vec<String> {
    let mut options = Vec::new();
    if profile.no_new_privileges {
        options.push("no-new-privileges".to_owned());
    }
    if flavor == Flavor::Podman {
        options.push(format!("mask={}", proc_masked(profile).join(":")));
    }
    options
}

/// The masked paths. Docker masks only these, so the list includes Docker's own defaults.
fn masked(flavor: Flavor, host: DaemonInfo, profile: &Profile) -> Option<Vec<String>> {
    if flavor == Flavor::Podman {
        return None;
    }
    let cores = 0..host.cores.unwrap_or_default().min(MASKED_CORES_MAX);
    let mut paths = proc_masked(profile);
    paths.extend(SYS_MASKED.map(str::to_owned));
    paths.extend(cores.map(|core| format!("/sys/devices/system/cpu/cpu{core}/thermal_throttle")));
    Some(paths)
}

fn proc_masked(profile: &Profile) -> Vec<String> {
    let paths = profile
        .proc_masked
        .iter()
        .map(|name| format!("/proc/{name}"));
    paths.collect()
}

/// The limit on host processes. A sandbox with its own kernel runs each process as several of the
/// host's, and dies if it has none left for itself.
fn pids(host: DaemonInfo, profile: &Profile) -> i64 {
    let pids = i64::from(profile.limits.pids.get());
    if host.has_own_kernel {
        return pids * SANDBOX_PIDS_FACTOR + SANDBOX_PIDS;
    }
    pids
}

/// The name server of a container without a network: the agent listens there if the container may
/// reach something. Podman refuses the option without a network, and leaves the image's file alone.
fn dns(flavor: Flavor, network: Network) -> Option<Vec<String>> {
    let is_ours = flavor == Flavor::Docker && network == Network::None;
    is_ours.then(|| vec!["127.0.0.1".to_owned()])
}

/// The agent listens for names on their own ports. Docker allows that by itself.
fn sysctls(flavor: Flavor, network: Network) -> Option<HashMap<String, String>> {
    let is_needed = flavor == Flavor::Podman && network == Network::None;
    let low_ports = ("net.ipv4.ip_unprivileged_port_start", "0");
    is_needed.then(|| HashMap::from([low_ports].map(|(name, value)| (name.into(), value.into()))))
}

fn network(network: Network) -> &'static str {
    match network {
        Network::None => "none",
        Network::Full => "default",
    }
}

fn tmpfs(flavor: Flavor, profile: &Profile) -> HashMap<String, String> {
    let size = profile.limits.tmp.get();
    let options = format!("rw,exec,nosuid,nodev,size={size},mode=1777");
    let mut mounts = HashMap::from([("/tmp".to_owned(), options)]);
    if flavor == Flavor::Podman {
        let read_only = "ro,nosuid,nodev,noexec,mode=755";
        let more = PODMANS_TMPFS.map(|path| (path.to_owned(), read_only.to_owned()));
        mounts.extend(more);
    }
    mounts
}

/// Converts a size to the API's type.
fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

fn ulimits(flavor: Flavor, host: DaemonInfo, profile: &Profile) -> Vec<ResourcesUlimits> {
    let both = |(name, value): (&str, u64)| ResourcesUlimits {
        name: Some(name.to_owned()),
        soft: Some(signed(value)),
        hard: Some(signed(value)),
    };
    let process = profile.process;
    let mut limits = vec![
        ("nofile", process.open_files_max),
        ("core", process.core_bytes_max),
        ("msgqueue", process.message_queue_bytes_max),
        ("rtprio", 0),
        ("nice", 0),
    ];
    // A rootless engine cannot raise limits above those of its user.
    if !host.is_rootless {
        limits.push(("memlock", process.locked_bytes_max));
        limits.push(("sigpending", process.pending_signals_max));
        // Podman requests a million by default, which some hosts refuse.
        if flavor == Flavor::Podman {
            limits.push(("nproc", USER_PROCESSES));
        }
    }
    limits.into_iter().map(both).collect()
}

/// A named volume in a container.
pub(super) struct Volume<'a> {
    pub(super) name: &'a str,
    pub(super) target: &'a str,
    pub(super) is_read_only: bool,
    /// The labels it was created with. If the volume was removed before the container is created,
    /// Docker creates it again with these labels; Podman, without any.
    pub(super) labels: names::Labels,
}

/// Adds the volumes to a container, without copying the image's content into them. Podman
/// guarantees that only with `Binds`, the older of the two options.
pub(super) fn mounted(flavor: Flavor, volumes: &[Volume<'_>], host: HostConfig) -> HostConfig {
    match flavor {
        Flavor::Docker => HostConfig {
            mounts: Some(volumes.iter().map(mount).collect()),
            ..host
        },
        Flavor::Podman => HostConfig {
            binds: Some(volumes.iter().map(bind).collect()),
            ..host
        },
    }
}

fn mount(volume: &Volume<'_>) -> Mount {
    Mount {
        target: Some(volume.target.to_owned()),
        source: Some(volume.name.to_owned()),
        typ: Some(MountType::VOLUME),
        read_only: Some(volume.is_read_only),
        volume_options: Some(MountVolumeOptions {
            no_copy: Some(true),
            labels: Some(volume.labels.clone()),
            ..MountVolumeOptions::default()
        }),
        ..Mount::default()
    }
}

fn bind(volume: &Volume<'_>) -> String {
    let access = if volume.is_read_only { "ro" } else { "rw" };
    format!("{}:{}:{access},nocopy", volume.name, volume.target)
}

#[cfg(test)]
mod tests {
    use hotcell_domain::Policy;

    use super::*;

    fn made(flavor: Flavor) -> ContainerCreateBody {
        let config = DockerConfig {
            flavor,
            host: super::super::config::Host::Unix("/s".into()),
            runtime: Some("runsc".to_owned()),
            scope: "here".to_owned(),
            agent: b"",
            require_limits: false,
        };
        let image = LocalImage {
            id: "sha256:1".to_owned(),
            digest: Some("sha256:2".to_owned()),
        };
        let id = ContainerId::from_parts(1, [7; 10]);
        let spec = ContainerSpec::new(ImageRef::parse("a").expect("a reference"));
        let agent = Agent {
            volume: "agent",
            mount: &AgentMount::draw().expect("random bytes"),
        };
        let host = DaemonInfo {
            has_own_kernel: true,
            cores: Some(2),
            ..DaemonInfo::default()
        };
        body(&config, host, &id, &spec, &image, &agent)
    }

    #[test]
    fn the_profile_is_sealed() {
        let body = made(Flavor::Docker);
        assert_eq!(body.user.as_deref(), Some("1000:1000"));
        let host = body.host_config.expect("there is one");
        assert_eq!(host.cap_drop, Some(vec!["ALL".to_owned()]));
        assert_eq!(host.cap_add, None);
        assert_eq!(
            host.security_opt,
            Some(vec!["no-new-privileges".to_owned()])
        );
        assert_eq!(host.readonly_rootfs, Some(true));
        assert_eq!(host.network_mode.as_deref(), Some("none"));
        assert_eq!(
            (host.memory, host.memory_swap),
            (Some(512 << 20), Some(512 << 20))
        );
        assert_eq!(host.nano_cpus, Some(1_000_000_000));
        assert_eq!(host.pids_limit, Some(4 * 256 + 256));
        assert_eq!(host.runtime.as_deref(), Some("runsc"));
        let mounts = host.mounts.expect("there are some");
        let read_only: Vec<_> = mounts.iter().map(|mount| mount.read_only).collect();
        assert_eq!(read_only, [Some(false), Some(true)]);
    }

    #[test]
    fn what_is_masked_adds_to_what_the_engine_masks() {
        // The defaults of Docker 28 on a host with two cores.
        let defaults = [
            "/proc/acpi",
            "/proc/asound",
            "/proc/interrupts",
            "/proc/kcore",
            "/proc/keys",
            "/proc/latency_stats",
            "/proc/sched_debug",
            "/proc/scsi",
            "/proc/timer_list",
            "/proc/timer_stats",
            "/sys/devices/system/cpu/cpu0/thermal_throttle",
            "/sys/devices/system/cpu/cpu1/thermal_throttle",
            "/sys/devices/virtual/powercap",
            "/sys/firmware",
        ];
        let host = made(Flavor::Docker).host_config.expect("there is one");
        let masked = host.masked_paths.expect("there are some");
        for path in defaults.iter().chain(&["/proc/cmdline", "/proc/pressure"]) {
            assert!(masked.iter().any(|masked| masked == path), "{path}");
        }
        let host = made(Flavor::Podman).host_config.expect("there is one");
        assert_eq!(host.masked_paths, None);
        let options = host.security_opt.expect("there are some");
        let masked = options
            .iter()
            .find_map(|option| option.strip_prefix("mask="));
        let masked: Vec<_> = masked.expect("there is one").split(':').collect();
        assert!(masked.contains(&"/proc/cmdline") && masked.contains(&"/proc/pressure"));
    }

    #[test]
    fn volumes_take_nothing_over_from_an_image_and_are_ours_whoever_makes_them() {
        let host = made(Flavor::Docker).host_config.expect("there is one");
        for mount in host.mounts.expect("there are some") {
            let options = mount.volume_options.expect("there are some");
            assert_eq!(options.no_copy, Some(true));
            let labels = options.labels.expect("there are some");
            assert_eq!(labels[names::SCOPE_LABEL], "here");
        }
        let host = made(Flavor::Podman).host_config.expect("there is one");
        assert_eq!(host.mounts, None);
        for bind in host.binds.expect("there are some") {
            assert!(bind.ends_with(",nocopy"), "{bind}");
        }
    }

    #[test]
    fn images_of_the_host_are_refused_in_a_sentence() {
        let policy = Policy {
            allow_rootfs: true,
            ..Policy::default()
        };
        for image in [ImageRef::Host, ImageRef::Rootfs("/srv".into())] {
            let spec = policy.admit(ContainerSpec::new(image)).expect("admitted");
            let refused = check(&spec).expect_err("refused");
            assert!(
                refused.to_string().contains("name an OCI image"),
                "{refused}"
            );
        }
    }
}
