//! How clients talk to Hotcell: the Model Context Protocol and its transports.
//!
//! [`Server`] is what is served: tools, resources, prompts. It knows no transport, and no
//! request depends on an earlier one: whatever a request is about is named in it.

#![forbid(unsafe_code)]

mod call;
mod complete;
mod json_size;
mod mime;
mod options;
mod picture;
mod prompts;
mod reload;
mod resources;
mod server;
mod task;
mod text;
mod tools;
pub mod transport;

/// How somebody who is refused what is the operator's gets it.
pub const ADMIN_HINT: &str = "use a token with admin rights (hotcell token add NAME --admin), stdio or the server's unix socket; without authentication, --admin-over-http gives it to everybody";

pub use options::{Options, Toolset, ToolsetError, Toolsets};
pub use reload::{RELOAD_METHOD, Reload, ReloadReport};
pub use server::Server;
pub use tools::{Code, ToolError, workspace_path};
