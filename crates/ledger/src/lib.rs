//! The ledger: one event per operation, in a tamper-evident order.
//!
//! ```text
//! AUDIT/00000000000000000001.jsonl.zst    sealed segments, named by their first event
//! AUDIT/00000000000000004711.jsonl        the segment that is being written
//! ```
//!
//! Each line is JSON and begins with a SHA-256 over the previous line's hash and its own bytes
//! ([`chain`]). The position of the chain is also stored elsewhere, in the [`Anchor`], so that a
//! truncated ledger can be told from one that just ends there.
//!
//! # Who writes
//!
//! ```text
//! operation ─▶ format, redact ─▶ queue ─▶ writer thread: hash, write(2) ─▶ ticket ─▶ answer
//!                                              └─▶ keeper thread: fsync, anchor, seal, retention
//! ```
//!
//! An operation is answered once its event has been handed to the kernel: SIGKILL loses nothing
//! that was acknowledged. The writer takes all queued events and writes them with one call, so
//! operations that end together share it. It never waits for the disk: a second thread syncs every
//! `keeper::SYNC_INTERVAL`, which is what a power cut can lose.
//!
//! The operation's own task does not write. That would save the hand-over to another thread and
//! back (`xtask bench ledger` measures it), but an appending write(2) waits for the filesystem's
//! journal if the disk is slow, and would block a thread that serves others.

#![forbid(unsafe_code)]

mod anchor;
mod arguments;
pub mod chain;
mod event;
mod figures;
mod keeper;
mod ledger;
mod open;
mod queue;
pub mod redact;
mod retention;
mod seal;
mod segment;
mod settings;
mod verify;
mod walk;
mod writer;

pub use anchor::{Anchor, AnchorError, AnchorStore, MemoryAnchor};
pub use arguments::Arguments;
pub use event::{Event, EventName, Outcome, Who};
pub use figures::{LedgerFigures, Timing};
pub use ledger::{Ledger, NotRecorded, Ticket};
pub use open::{OpenError, Resumed};
pub use segment::{is_segment_name, segment_files};
pub use settings::{LedgerSettings, OnFailure};
pub use verify::{Fault, FaultKind, Verdict, verify};
pub use walk::{Tail, events, newest};
