//! Processes: keepers, what lives beneath them, and how it is ended.
//!
//! ```text
//!  agent ── keeper (subreaper) ── leader ── …
//!                │                   └─ double-forked, setsid'ed: comes back to the keeper
//!                └─ status pipe: started │ failed · ended
//! ```
//!
//! Invariant: the agent's only children are keepers, so the processes of an exec are
//! exactly the descendants of its keeper. What appears beside them was orphaned by the
//! violent end of a keeper and is killed.

mod keeper;
mod leader;
mod record;
mod scan;
mod table;
pub mod tree;

pub use keeper::{Launch, Stdio, User};
pub use record::{LaunchStep, RECORD_BYTES, Record, WaitStatus};
pub use table::{Gone, Table};
