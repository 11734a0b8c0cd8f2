//! Under load by several callers, whatever can die is killed at a moment that a seed determines:
//! the server, its launcher, an agent, Docker. Nothing that was acknowledged is lost, nothing happens
//! twice, and nothing is left.
//!
//! `HOTCELL_CHAOS_ROUNDS` says how many rounds there are, `HOTCELL_CHAOS_SEED` which is the first,
//! and `HOTCELL_CHAOS_CONTAINERS` how many containers come and go; `./test --chaos` sets them.

#![expect(clippy::unwrap_used, reason = "a test may fail here")]

mod caller;
mod churn;
mod engine;
mod load;
mod memory;
mod proof;
mod round;
pub(crate) mod strike;
mod termination;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use round::Round;

/// As many rounds as fit into a run of all tests.
const ROUNDS: u64 = 12;

/// A number that the environment may set.
fn number(name: &str, usual: u64) -> u64 {
    let set = std::env::var(name).ok();
    set.map_or(usual, |text| text.parse().unwrap())
}

#[test]
fn whatever_dies_nothing_that_was_acknowledged_is_lost_and_nothing_is_left() {
    let first = number("HOTCELL_CHAOS_SEED", 0);
    for seed in first..first + number("HOTCELL_CHAOS_ROUNDS", ROUNDS) {
        told_by_seed(seed, "whatever_dies", || Round::new(seed).run());
    }
}

/// Runs a round; says how to repeat it if it fails.
fn told_by_seed(seed: u64, test: &str, round: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(round)) {
        eprintln!(
            "seed {seed} failed; this repeats it:\n  \
             HOTCELL_CHAOS_SEED={seed} HOTCELL_CHAOS_ROUNDS=1 ./test {test}"
        );
        resume_unwind(panic);
    }
}
