//! The fake engine passes the suite that every engine must pass, and bears faults.

mod conformance_fake;
mod simulation;
