//! The terms and pure rules of Hotcell: what a container is, how its phase may change, how large
//! things may be, and what policy admits.
//!
//! No I/O, async, clocks, JSON or SQL here.

#![forbid(unsafe_code)]

mod admitted;
mod alias;
mod caller;
mod command;
mod digest;
mod engine_id;
mod env;
mod exec;
mod id;
mod image;
mod image_alias;
mod image_policy;
mod language;
mod limits;
mod maxima;
mod name;
mod package;
mod phase;
mod profile;
mod quota;
mod reference;
mod spec;
mod time;
mod trace;

pub use admitted::{Admitted, Policy, PolicyError};
pub use alias::{Alias, AliasError, ContainerRef};
pub use caller::{Caller, Principal};
pub use command::{Command, CommandError, Stdin, TerminalSize};
pub use digest::{Digest, DigestError};
pub use engine_id::EngineId;
pub use env::{Env, EnvError, IMAGE_ENV_BYTES_MAX, IMAGE_VARIABLES_MAX};
pub use exec::{ExecEnd, ExecStatus, NotStarted, Stream, Usage};
pub use id::{ContainerId, ExecId, IdError, RunId};
pub use image::{ImageError, ImageRef};
pub use image_alias::{
    IMAGE_ALIAS_BYTES_MAX, IMAGE_ALIASES_MAX, ImageAliasError, ImageAliases, ImageName,
};
pub use image_policy::{ImagePolicy, Source, Transport};
pub use language::{LANGUAGES, Language};
pub use limits::{Bytes, CpuMillis, LimitError, Limits, Pids};
pub use maxima::{Maxima, Share, Totals};
pub use name::{LabelError, Labels, Name, NameError};
pub use package::{Installer, PACKAGES_MAX, Package, PackageError};
pub use phase::Phase;
pub use profile::{ProcessLimits, Profile};
pub use quota::{OverQuota, Quota, QuotaError, QuotaKind, QuotaOverride, Quotas};
pub use reference::Reference;
pub use spec::{ContainerSpec, Lifetime, Network};
pub use time::{parse_rfc3339, rfc3339};
pub use trace::{TraceContext, TraceId};
