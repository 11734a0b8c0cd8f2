//! Execs, as callers see them, and below them the table of each container.
//!
//! An exec is noted in the store before the agent starts it under the same id. Its output
//! is acknowledged to the agent when it is in the log. Its end is in the store before anybody
//! is told of it, and the agent forgets it last. So whoever dies at whatever moment, the next
//! server knows where to go on, and nothing runs or is written twice.

mod batch;
mod call;
mod cancel;
mod close;
mod command;
mod end;
mod find;
mod follow;
mod ids;
mod index;
mod input;
mod list;
mod live;
mod notebook;
mod poll;
mod queue;
mod recover;
mod sink;
mod start;
mod stdin;
mod stream;
mod table;
mod unlisted;

use std::time::Duration;

use bytes::Bytes;
use hotcell_domain::{Command, ContainerId, ExecEnd, ExecId, ExecStatus, Name, Principal, Stream};

use crate::Abandonment;

pub(crate) use self::command::environment;
pub(crate) use self::index::LiveExecs;
pub use self::notebook::CellValues;
pub(crate) use self::notebook::{Cell, NoKernel};
pub use self::stream::{ExecStdin, ExecStream};
pub(crate) use self::table::ExecTable;

/// An exec that somebody asks for.
#[derive(Debug, Clone)]
pub struct Start {
    /// What to run.
    pub command: Command,
    /// The same key means the same request.
    pub key: Option<Name>,
    /// Whether somebody waits for it. Without a key, an exec that was abandoned is cancelled:
    /// nobody would learn of it.
    pub abandonment: Abandonment,
}

/// What a caller wants to know of an exec.
#[derive(Debug, Clone, Copy)]
pub struct Poll {
    /// Messages after this one.
    pub after_seq: u64,
    /// How long to wait for news.
    pub wait: Duration,
    /// About how much output to answer.
    pub bytes_max: usize,
    /// Wait for the end rather than for any news: answer early only when `bytes_max` is full.
    pub until_end: bool,
}

/// An exec and a part of what it wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecView {
    /// Its handle.
    pub id: ExecId,
    /// Where it is in its life.
    pub status: ExecStatus,
    /// What it wrote.
    pub messages: Vec<Message>,
    /// What to ask for next.
    pub next_seq: u64,
    /// It has ended, and this is the last of its output.
    pub is_complete: bool,
    /// How it ended.
    pub end: Option<ExecEnd>,
    /// What holds it up, if something outside of it does: a full disk, a container that
    /// does not answer.
    pub stalled: Option<&'static str>,
    /// Bytes dropped from the middle of its output.
    pub truncated_bytes: u64,
}

/// Something an exec wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Counted from 1.
    pub seq: u64,
    /// Where it was written.
    pub stream: Stream,
    /// When.
    pub unix_ms: u64,
    /// What. It never ends in the middle of a UTF-8 character.
    pub data: Bytes,
}

/// An exec in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecSummary {
    /// Its handle.
    pub id: ExecId,
    /// Whose it is.
    pub principal: Principal,
    /// Where it runs.
    pub container: ContainerId,
    /// What it runs: its first arguments, a few KiB of them.
    pub argv: Vec<String>,
    /// Where it is in its life.
    pub status: ExecStatus,
    /// Output since this server follows it, in bytes; `None` once it has ended.
    pub output_bytes: Option<u64>,
    /// When it was asked for.
    pub created_unix_ms: u64,
    /// When it ended.
    pub ended_unix_ms: Option<u64>,
    /// How it ended.
    pub end: Option<ExecEnd>,
}

/// What is sent to a running exec; each part that is there, in this order.
#[derive(Debug, Clone, Default)]
pub struct Input {
    /// A size for its terminal: rows and columns.
    pub resize: Option<(u16, u16)>,
    /// For its standard input.
    pub data: Bytes,
    /// Then close its standard input.
    pub eof: bool,
    /// For every process of it.
    pub signal: Option<Signal>,
}

/// Signals that callers may send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "they are signals' names")]
pub enum Signal {
    Term,
    Kill,
    Int,
    Hup,
    Usr1,
    Usr2,
    Winch,
}
