//! The protocol between server and agent: the Rust code of `proto/agent.proto` and the bounds that
//! both sides keep. It does not know the implementation of either side.

#![forbid(unsafe_code)]

pub mod bounds;

/// Generated from `proto/agent.proto` by `cargo xtask codegen`.
#[expect(
    missing_docs,
    clippy::all,
    clippy::pedantic,
    reason = "generated"
)]
#[rustfmt::skip]
pub mod v1 {
    include!("hotcell.agent.v1.rs");
}
