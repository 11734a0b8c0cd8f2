//! The broker against real TLS hosts: what is allowed gets through, what is not gets an answer.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

mod allowed;
mod ask;
mod attacks;
mod cache;
mod cache_attacks;
mod denied;
mod floods;
mod lookup;
mod proxy;
mod reload;
mod secrets;
mod slow;
mod world;
