//! Attacks on the server, its engines and its host, from inside a container and from an image.

mod agent_connection;
mod disk;
mod escapes;
mod files;
mod helpers;
mod image;
mod kernel;
mod kernel_memory;
mod memory;
mod netlink;
mod output;
mod processes;
#[path = "../support/mod.rs"]
mod support;
mod view;
