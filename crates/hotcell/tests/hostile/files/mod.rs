//! Files as hostile processes make them: whatever they do in `/workspace`, no operation
//! of the agent reads or changes another file, blocks or takes memory without bound.

#![expect(clippy::unwrap_used, reason = "a test may fail")]

mod archives;
mod container;
mod disk;
mod kinds;
mod names;
mod protocol;
mod races;
mod trees;
