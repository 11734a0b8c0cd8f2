//! The ledger on real files: what it keeps, what it notices, what it survives.

#![expect(clippy::unwrap_used, reason = "a test may fail here")]

mod failing;
mod figures;
mod restart;
mod rotation;
mod support;
mod tampering;
