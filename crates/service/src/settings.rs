//! The operator's settings.

use std::path::PathBuf;
use std::time::Duration;

use hotcell_domain::{
    ContainerSpec, ImageAliases, ImageRef, Lifetime, Limits, Policy, Quotas, Totals,
};
use hotcell_egress::ProfileName;
use hotcell_ledger::Ledger;
use hotcell_otlp::Exporter;

use crate::AssignedEgress;

/// The operator's settings.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The rules that requests must pass.
    pub policy: Policy,
    /// The image of a container that names none.
    pub default_image: ImageRef,
    /// Short names of images.
    pub aliases: ImageAliases,
    /// The limits of a container that names none.
    pub default_limits: Limits,
    /// Limits on the sum over all containers, including warm ones; `None`: no limit.
    pub totals: Option<Totals>,
    /// When containers end by themselves.
    pub lifetime: Lifetime,
    /// Concurrently running execs per container.
    pub execs_running_max: usize,
    /// Queued execs per container.
    pub execs_queued_max: usize,
    /// The quotas of principals.
    pub quotas: Quotas,
    /// Clients that may be attached to one container.
    pub attachments_max: usize,
    /// Disk space for the output of one exec.
    pub output_bytes_max: u64,
    /// Ended execs kept per principal; the oldest are removed first.
    pub ended_execs_max: u64,
    /// Ended containers kept per principal; the oldest are removed first.
    pub ended_containers_max: u64,
    /// New work is refused while the disk of the state directory has less free space than this;
    /// `None`: 512 MiB or 2 % of the disk, whichever is less.
    pub reserve_bytes: Option<u64>,
    /// Grace period between SIGTERM and SIGKILL.
    pub kill_grace: Duration,
    /// How long a stop may take beyond its grace period. The rest is left to the next server.
    pub stop_timeout: Duration,
    /// How long an idempotency key is valid.
    pub key_lifetime: Duration,
    /// How long ended execs, their logs and ended containers are kept.
    pub ended_retention: Duration,
    /// How long a transient container may be idle before it is ended.
    pub transient_idle_max: Duration,
    /// How long an image is kept from which no container is created; `None`: for ever.
    pub image_idle_max: Option<Duration>,
    /// How often garbage is collected.
    pub gc_interval: Duration,
    /// How often the store and the engine are reconciled.
    pub reconcile_interval: Duration,
    /// The sets of the warm pool.
    pub warm: Vec<PoolSpec>,
    /// How often the health of each warm container is checked.
    pub warm_check_interval: Duration,
    /// Settings of sessions and snippets.
    pub code: CodeSettings,
    /// What containers may reach.
    pub egress: hotcell_egress::Settings,
    /// The profiles of single principals and images.
    pub assigned: AssignedEgress,
    /// Where the authority lives that containers with a profile trust; `None`: no container can
    /// have a profile.
    pub egress_directory: Option<PathBuf>,
    /// Whether owners may connect to ports of their containers.
    pub allow_ports: bool,
    /// The audit log; `None`: operations are not recorded.
    pub ledger: Option<Ledger>,
    /// Exports the spans of operations; `None`: no traces.
    pub traces: Option<Exporter>,
}

/// Settings of sessions and snippets.
#[derive(Debug, Clone, PartialEq)]
pub struct CodeSettings {
    /// The image of sessions; `None`: the default image.
    pub image: Option<ImageRef>,
    /// How long a session may be idle before it is ended.
    pub session_idle_max: Duration,
    /// Timeout of a snippet whose caller sets none.
    pub timeout: Duration,
    /// Characters of each output stream in a reply.
    pub output_chars_max: usize,
    /// The egress profile of sessions; `None`: the default one.
    pub egress: Option<ProfileName>,
}

impl Default for CodeSettings {
    fn default() -> Self {
        Self {
            image: None,
            session_idle_max: Duration::from_mins(15),
            timeout: Duration::from_secs(30),
            output_chars_max: 50_000,
            egress: None,
        }
    }
}

/// A set of the warm pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolSpec {
    /// The image of its containers.
    pub image: ImageRef,
    /// The number of containers to keep ready.
    pub wanted: usize,
    /// Their limits; `None`: the default limits. A `spawn` gets a warm container only if the
    /// requested limits are equal.
    pub limits: Option<Limits>,
}

impl Settings {
    /// The spec of a container of this image with default settings.
    pub(crate) fn spec(&self, image: ImageRef) -> ContainerSpec {
        ContainerSpec {
            limits: self.default_limits,
            lifetime: self.lifetime,
            allow_root: self.policy.allow_root,
            ..ContainerSpec::new(image)
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        const HOUR: Duration = Duration::from_hours(1);
        Self {
            policy: Policy::default(),
            default_image: ImageRef::Host,
            aliases: ImageAliases::default(),
            default_limits: Limits::default(),
            totals: None,
            lifetime: Lifetime::UntilDestroyed,
            execs_running_max: 4,
            execs_queued_max: 64,
            quotas: Quotas::default(),
            attachments_max: 64,
            output_bytes_max: 64 << 20,
            ended_execs_max: 10_000,
            ended_containers_max: 10_000,
            reserve_bytes: None,
            kill_grace: Duration::from_secs(3),
            stop_timeout: Duration::from_secs(30),
            key_lifetime: HOUR * 24,
            ended_retention: HOUR * 24,
            transient_idle_max: HOUR * 24 * 7,
            image_idle_max: Some(HOUR * 24 * 30),
            gc_interval: Duration::from_mins(1),
            reconcile_interval: Duration::from_mins(5),
            warm: Vec::new(),
            warm_check_interval: Duration::from_secs(30),
            code: CodeSettings::default(),
            egress: hotcell_egress::Settings::default(),
            assigned: AssignedEgress::default(),
            egress_directory: None,
            allow_ports: false,
            ledger: None,
            traces: None,
        }
    }
}
