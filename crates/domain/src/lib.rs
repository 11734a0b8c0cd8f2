//! The words of Hotcell and its pure rules: what a container is, which moves its
//! life may make, how large anything may be, and who lets it in.
//!
//! No I/O, no async, no clock, no JSON, no SQL lives here.

#![forbid(unsafe_code)]

mod admitted;
mod env;
mod id;
mod image;
mod language;
mod limits;
mod phase;
mod spec;

pub use admitted::{Admitted, Policy, Refusal};
pub use env::{Env, EnvError};
pub use id::{ContainerId, ExecId, IdError};
pub use image::{ImageError, ImageRef};
pub use language::{LANGUAGES, Language};
pub use limits::{Bytes, CpuMillis, LimitError, Limits, Pids};
pub use phase::Phase;
pub use spec::{ContainerSpec, Lifetime, Network};
