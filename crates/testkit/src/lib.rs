//! What tests of several crates share. Nothing that ships depends on it.
//!
//! Rust's test harness cannot skip a test at run time: one that returns early has passed. Such a
//! test calls [`skip()`] first, and `./test` subtracts it from those that passed, counts it as
//! skipped and names it. With `CI=true` it fails instead.
//!
//! A tier that lacks something by design says so in [`TIER_LACKS`]: there the test is excluded,
//! which is listed as well, and is not a failure in CI. An ordinary user, for example, cannot start
//! Docker.

#![forbid(unsafe_code)]

#[cfg(feature = "engine")]
pub mod agent;
mod alone;
#[cfg(feature = "arguments")]
pub mod arguments;
#[cfg(feature = "collector")]
pub mod collector;
#[cfg(feature = "engine")]
pub mod conformance;
#[cfg(feature = "engine")]
pub mod fake;
#[cfg(feature = "registry")]
pub mod image;
#[cfg(feature = "issuer")]
pub mod issuer;
pub mod python;
#[cfg(feature = "registry")]
pub mod registry;
mod skip;
#[cfg(feature = "world")]
pub mod world;

pub use alone::is_alone;
pub use skip::{Need, TIER_LACKS, not_claimed, skip, skip_part};
