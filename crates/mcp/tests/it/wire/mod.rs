//! The transports, driven over real sockets with a small server behind them.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

pub(crate) mod client;
mod conformance;
mod fixture;
mod harness;
mod limits;
mod names;
mod sessions;
mod socket;
mod sse;
