//! The protocol and its transports as clients meet them, on the fake engine.

mod answers;
mod endpoints;
mod foreign;
mod fuzz_tools;
mod stories;
mod wire;
mod world;
