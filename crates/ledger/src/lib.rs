//! The ledger: one event for every operation, in an order that cannot be changed unseen.
//!
//! ```text
//! AUDIT/00000000000000000001.jsonl.zst    sealed segments, named by their first event
//! AUDIT/00000000000000004711.jsonl        the segment that is being written
//! ```
//!
//! Each line is JSON and begins with the SHA-256 of the line before and of its own bytes
//! ([`chain`]). How far the chain was is also noted elsewhere, in the [`Anchor`], so that a
//! ledger whose end was cut off is told from one that just ended there.
//!
//! # Who writes
//!
//! ```text
//! operation ─▶ format, redact ─▶ queue ─▶ writer thread: hash, write(2) ─▶ ticket ─▶ answer
//!                                              └─▶ keeper thread: fsync, anchor, seal, retention
//! ```
//!
//! An operation is answered once its event is with the kernel: SIGKILL loses nothing that was
//! acknowledged. The writer takes everything that waits and writes it with one call, so callers
//! that finish together share it. It never waits for the disk: a second thread syncs every
//! `keeper::SYNC_INTERVAL`, which is what a power cut can cost.
//!
//! The finishing task does not write by itself. That would save the way to another thread and
//! back (`xtask bench ledger` measures it), but write(2) of an appending file waits for the file
//! system's journal when a disk is slow, and would hold up a thread that serves others.

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
