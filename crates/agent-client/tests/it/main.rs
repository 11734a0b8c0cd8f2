//! Agents that a hostile container put in place of ours: whatever they send is an error,
//! in bounded time and memory, and never a panic.

mod answers;
mod connections;
mod fake;
mod tunnels;
