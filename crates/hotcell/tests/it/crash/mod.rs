//! Things that die: the server, its launcher, an agent, a connection, a record on disk.
//! Whatever died, and whenever, the rest goes on and nothing is left behind.

#![expect(clippy::unwrap_used, reason = "a test may fail")]

mod agent;
mod driver;
mod launcher;
pub(crate) mod moment;
mod owner;
mod record;
mod server;
mod stream;
