//! HTTP as clients meet it, over real sockets: MCP over HTTP with a small handler behind it, and
//! `/v1` on a real service with the fake engine.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

mod client;
mod conformance;
mod endpoints;
mod fixture;
mod harness;
mod host_names;
mod limits;
mod sessions;
mod sse;
mod unread_answers;
