//! The fake engine passes the conformance suite, and survives faults.

mod conformance_fake;
mod simulation;
