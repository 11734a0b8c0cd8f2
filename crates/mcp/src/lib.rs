//! The Model Context Protocol: server and transports.
//!
//! [`Server`] provides tools, resources and prompts. It does not depend on a transport, and no
//! request depends on an earlier one: every request names its target.

#![forbid(unsafe_code)]

mod asking;
mod call;
mod codemode;
mod complete;
mod egress;
mod interrupt;
mod json_size;
mod memories;
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

/// Tells a caller without admin rights how to get them.
pub const ADMIN_HINT: &str = "use a token with admin rights (hotcell token add NAME --admin), stdio or the server's unix socket; without authentication, --admin-over-http gives it to everybody";

pub use egress::{EGRESS_METHOD, EgressAnswer, EgressRequest};
pub use interrupt::{INTERRUPT_METHOD, REPL_KEY};
pub use memories::{MEMORY_METHOD, MemoryKind, MemoryRequest};
pub use options::{Options, Toolset, ToolsetError, Toolsets};
pub use reload::{RELOAD_METHOD, Reload, ReloadReport};
pub use server::Server;
pub use tools::{Code, ToolError, workspace_path};
