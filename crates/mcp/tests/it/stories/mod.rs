//! What clients see: every tool, resource and prompt, over a connection, on a real service.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

mod admin;
mod code;
mod containers;
mod execs;
mod files;
mod offers;
mod progress;
mod prompts;
mod renderings;
mod resources;
mod tasks;
