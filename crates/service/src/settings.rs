//! What the operator chose.

use std::time::Duration;

use hotcell_domain::{
    ContainerSpec, ImageAliases, ImageRef, Lifetime, Limits, Policy, Quotas, Totals,
};
use hotcell_ledger::Ledger;
use hotcell_otlp::Exporter;

/// What the operator chose.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What is let in.
    pub policy: Policy,
    /// The image of a container that names none.
    pub default_image: ImageRef,
    /// The operator's names of images.
    pub aliases: ImageAliases,
    /// The limits of a container that names none.
    pub default_limits: Limits,
    /// How much all containers may have together, warm ones too; `None`: no bound.
    pub totals: Option<Totals>,
    /// When containers end if nobody ends them.
    pub lifetime: Lifetime,
    /// Execs that run at once in one container.
    pub execs_running_max: usize,
    /// Execs that wait for a place in one container.
    pub execs_queued_max: usize,
    /// How much each principal may have.
    pub quotas: Quotas,
    /// Clients that may be attached to one container.
    pub attachments_max: usize,
    /// Output kept of one exec, in bytes on the disk.
    pub output_bytes_max: u64,
    /// Ended execs that are remembered of one principal; the oldest go first.
    pub ended_execs_max: u64,
    /// Ended containers that are remembered of one principal; the oldest go first.
    pub ended_containers_max: u64,
    /// New work is refused while the disk of the state directory has less room than this;
    /// `None`: 512 MiB or a fiftieth of the disk, whichever is less.
    pub reserve_bytes: Option<u64>,
    /// From TERM to KILL.
    pub kill_grace: Duration,
    /// How long a stop may take beyond its grace. What is left then is the next server's.
    pub stop_timeout: Duration,
    /// How long a key means the same request.
    pub key_lifetime: Duration,
    /// How long ended execs, their logs and ended containers are remembered.
    pub ended_retention: Duration,
    /// How long a transient container may be idle.
    pub transient_idle_max: Duration,
    /// How long an image may be kept of which no container is made; `None`: for ever.
    pub image_idle_max: Option<Duration>,
    /// How often garbage is collected.
    pub gc_interval: Duration,
    /// How often store and engine are compared.
    pub reconcile_interval: Duration,
    /// What is kept ready.
    pub warm: Vec<PoolSpec>,
    /// How often a container that is kept ready is asked whether it is well.
    pub warm_check_interval: Duration,
    /// How snippets are run.
    pub code: CodeSettings,
    /// Where operations are recorded; `None`: nowhere.
    pub ledger: Option<Ledger>,
    /// Where spans of operations go; `None`: nowhere.
    pub traces: Option<Exporter>,
}

/// How snippets are run.
#[derive(Debug, Clone, PartialEq)]
pub struct CodeSettings {
    /// The image of sessions; `None`: that of a container that names none.
    pub image: Option<ImageRef>,
    /// How long a session may be idle.
    pub session_idle_max: Duration,
    /// How long a snippet may run if its caller does not say.
    pub timeout: Duration,
    /// How much of each stream of a snippet is answered.
    pub output_chars_max: usize,
}

impl Default for CodeSettings {
    fn default() -> Self {
        Self {
            image: None,
            session_idle_max: Duration::from_mins(15),
            timeout: Duration::from_secs(30),
            output_chars_max: 50_000,
        }
    }
}

/// Containers that are kept ready.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolSpec {
    /// What they are made of.
    pub image: ImageRef,
    /// How many.
    pub wanted: usize,
    /// Their limits; `None`: those of a container that names none. A `spawn` is served by a
    /// container whose limits are those that it asks for.
    pub limits: Option<Limits>,
}

impl Settings {
    /// A container of this image whose caller names nothing else.
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
            ledger: None,
            traces: None,
        }
    }
}
