//! The user's other MCP servers, as Hotcell's code mode uses them: a client, and nothing else.
//!
//! ```text
//!            Upstreams ─ visible_to(principal) ─▶ Visible: servers · known · definitions · call_tool · search · pin
//!                │
//!                ├─ Catalogue (memory and disk): definitions, hashes, pins ─▶ BM25 index
//!                └─ Server, one per entry:  idle ─▶ starting ─▶ running ─▶ idle
//!                       │                              └──▶ back-off ◀──┘
//!                       └─ Connection: requests in flight, over a link: stdio, Streamable HTTP, SSE
//! ```
//!
//! Everything that an upstream sends is untrusted: it is bounded by [`bounds`], turned into our own types
//! by the first function that sees it, and no text of it reaches a log or a model without its control
//! characters escaped. One upstream that hangs, crashes or floods us costs the others nothing. Nothing
//! is started before somebody asks for its tools. Secrets are resolved when a server starts, on the
//! host, and appear in no error, log or `Debug` text.

#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

pub mod bounds;
mod catalogue;
mod connection;
mod definition;
mod error;
mod handshake;
mod health;
mod link;
mod listing;
mod name;
mod result;
mod rpc;
mod server;
mod settings;
pub mod sources;
mod text;
mod upstreams;
mod visible;

pub use catalogue::{Hit, PinState};
pub use definition::{Annotations, Definitions, ToolDefinition};
pub use error::{OpenError, UpstreamError};
pub use health::{Event, Health, NoObserver, Observer, ServerSummary};
pub use name::{ServerName, ServerNameError};
pub use result::{Blob, Content, Prompt, PromptMessage, Resource, ResourceBody, ToolResult};
pub use rpc::ProgressUpdate;
pub use settings::{
    DefaultAction, Endpoint, Entry, Finding, Launch, Principals, Program, Settings, Source,
    Template, TemplateError, Timeouts, TransportKind,
};
pub use text::quoted;
pub use upstreams::Upstreams;
pub use visible::{ToolCall, Visible};
