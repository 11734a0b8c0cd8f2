//! Execs: commands that the server started, their numbered output, their end.
//!
//! ```text
//!            Input ─▶ stdin ─┐                       ┌─▶ follower (at most one)
//!  start ─▶ keeper ─▶ leader ┴▶ pipes ─▶ supervisor ─┴─▶ event log ◀─ ack
//!                                            ▲                │ full: the pipes are not read
//!                          timeout, Cancel ──┘                ▼ and the process waits
//! ```
//!
//! Nothing of an exec belongs to a connection. One task, its supervisor, owns its way
//! from start to end; calls only ask.

mod error;
mod events;
mod follow;
mod held;
mod input;
mod output;
mod registry;
mod start;
mod status;
mod stdio;
mod supervise;

pub use error::ExecError;
pub use follow::{Acks, Follower};
pub use held::Exec;
pub use registry::Execs;
pub use start::{Start, StartError, grace, window};
