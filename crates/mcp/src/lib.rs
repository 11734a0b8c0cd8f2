//! How clients talk to Hotcell: the Model Context Protocol and its transports.
//!
//! [`Server`] is what is served: tools, resources, prompts. It knows no transport, and no
//! request depends on an earlier one: whatever a request is about is named in it.

#![forbid(unsafe_code)]

mod call;
mod complete;
pub mod endpoints;
mod options;
mod prompts;
mod resources;
mod server;
mod task;
mod tools;
pub mod transport;
mod words;

pub use options::{Options, Toolset, ToolsetError, Toolsets};
pub use server::Server;
