//! Hostile agents: whatever they send becomes an error, in bounded time and memory, and never a
//! panic.

mod answers;
mod connections;
mod fake;
mod tunnels;
