//! How clients talk to Hotcell: the Model Context Protocol and its transports.
//!
//! [`Server`] is what is served: tools, resources, prompts. It knows no transport, and no
//! request depends on an earlier one: whatever a request is about is named in it.

#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

mod call;
mod complete;
mod mime;
mod options;
mod picture;
mod prompts;
mod resources;
mod server;
mod task;
mod text;
mod time;
mod tools;
pub mod transport;

/// How somebody who is refused what is the operator's gets it.
pub const ADMIN_HINT: &str = "use it over stdio or on the server's own machine, or have the operator start the server with --admin-over-http";

pub use options::{Options, Toolset, ToolsetError, Toolsets};
pub use server::Server;
pub use tools::{Code, ToolError, workspace_path};
