//! The protocol as clients meet it, on the fake engine, and the unix socket.

mod fuzz_tools;
mod socket;
mod stories;
mod world;
