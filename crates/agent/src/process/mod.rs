//! Keepers, the processes below them, and how they are ended.
//!
//! ```text
//!  agent ── keeper (subreaper) ── leader ── …
//!                │                   └─ double-forked, setsid: reparented to the keeper
//!                └─ status pipe: started │ failed · ended
//! ```
//!
//! Invariant: the agent's only children are keepers, so the processes of an exec are
//! exactly the descendants of its keeper. Any other child of the agent is an orphan of a killed
//! keeper, and is killed.

mod keeper;
mod leader;
mod record;
mod scan;
mod table;
pub mod tree;

pub use keeper::{Launch, Stdio, User};
pub use record::{LaunchStep, RECORD_BYTES, Record, WaitStatus};
pub use scan::is_ending;
pub use table::{Gone, Table};
