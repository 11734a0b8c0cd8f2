//! Code mode: a Python script in a container that calls the user's other MCP servers.
//!
//! ```text
//! script ── frames ──▶ Run::serve ─▶ Request ─▶ granted? ─▶ Policy, Budget ─▶ Journal ─▶ Servers
//!                                                  └─ Ask: somebody decides (Asker)
//! ```
//!
//! Everything that a script sends is hostile: it is bounded and parsed once into a request. A
//! script can lie only about itself. What it may call is decided here, for each call, whatever the
//! Python side believes. This crate knows neither containers nor a database nor MCP: each is a port
//! ([`Servers`], [`Journal`], [`Memory`], [`Asker`]).

#![forbid(unsafe_code)]

mod budget;
mod call;
mod capabilities;
mod deadline;
mod failure;
mod frame;
mod policy;
mod ports;
mod python;
mod replay;
mod report;
mod request;
mod run;
mod serve;
mod settings;
mod upstreams;

pub use budget::{Budget, CallRate};
pub use capabilities::{capabilities, description, server_capabilities};
pub use failure::Failure;
pub use policy::{ArgumentTest, Decision, Policy, Rule};
pub use ports::{
    Asked, Asker, CallEnd, CallError, CallStart, EarlierCall, EarlierOutcome, Journal,
    JournalledCall, Memory, MemoryRow, Pin, Question, SaveMemory, ServerSummary, Servers, ToolCall,
    ToolDefinition,
};
pub use python::{MAIN, files_for};
pub use report::{CallReport, Report, ScriptEnd};
pub use run::{Run, RunParts};
pub use settings::{CodeMode, Directory, OutputMode, Settings};
