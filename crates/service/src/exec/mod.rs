//! Execs: the operations that callers use, and the table of execs of each container.
//!
//! An exec is recorded in the store before the agent starts it under the same id. Its output is
//! acknowledged to the agent once it is in the log. Its end is stored before it is reported to
//! anyone, and the agent forgets the exec last. So whichever process dies at whichever moment, the
//! next server knows where to continue, and nothing runs or is written twice.

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

use crate::{Abandonment, EgressReport};

pub(crate) use self::command::environment;
pub(crate) use self::find::no_exec;
pub(crate) use self::index::LiveExecs;
pub(crate) use self::live::LiveExec;
pub use self::notebook::CellValues;
pub(crate) use self::notebook::{Cell, NoKernel};
pub use self::stream::{ExecStdin, ExecStream};
pub(crate) use self::table::ExecTable;

/// A request to start an exec.
#[derive(Debug, Clone)]
pub struct Start {
    /// The command to run.
    pub command: Command,
    /// Idempotency key: a repeated request returns the same exec.
    pub key: Option<Name>,
    /// Whether the caller still waits. Without a key, an abandoned exec is cancelled: nobody would
    /// learn its id.
    pub abandonment: Abandonment,
}

/// A request for the state of an exec and its output.
#[derive(Debug, Clone, Copy)]
pub struct Poll {
    /// Return messages after this sequence number.
    pub after_seq: u64,
    /// How long to wait if there is nothing new.
    pub wait: Duration,
    /// Approximate limit on the output in the reply.
    pub bytes_max: usize,
    /// Wait until the exec ends rather than for any new output; return early only when `bytes_max`
    /// is reached.
    pub until_end: bool,
}

/// The state of an exec and a page of its output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecView {
    /// The id that `exec_start` returned.
    pub id: ExecId,
    /// The current status.
    pub status: ExecStatus,
    /// The output after the requested sequence number.
    pub messages: Vec<Message>,
    /// The `after_seq` of the next poll.
    pub next_seq: u64,
    /// Whether the exec has ended and this page is the last of its output.
    pub is_complete: bool,
    /// How the exec ended, once it has.
    pub end: Option<ExecEnd>,
    /// Why the exec is stalled by something outside of it, such as a full disk or an unreachable
    /// container.
    pub stalled: Option<&'static str>,
    /// Bytes dropped from the middle of its output.
    pub truncated_bytes: u64,
    /// What its container's egress did while it ran, if there is something to tell.
    pub egress: Option<EgressReport>,
}

/// A piece of an exec's output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The sequence number, counted from 1.
    pub seq: u64,
    /// The stream it was written to.
    pub stream: Stream,
    /// When it was written.
    pub unix_ms: u64,
    /// The bytes. They never end in the middle of a UTF-8 character.
    pub data: Bytes,
}

/// An exec, as lists show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecSummary {
    /// The id that `exec_start` returned.
    pub id: ExecId,
    /// The owner.
    pub principal: Principal,
    /// The container that it runs in.
    pub container: ContainerId,
    /// The first few KiB of the command line.
    pub argv: Vec<String>,
    /// The current status.
    pub status: ExecStatus,
    /// Bytes of output since this server began to follow it; `None` once it has ended.
    pub output_bytes: Option<u64>,
    /// When it was requested.
    pub created_unix_ms: u64,
    /// When it ended, if it has.
    pub ended_unix_ms: Option<u64>,
    /// How it ended, if it has.
    pub end: Option<ExecEnd>,
}

/// Input for a running exec. The parts that are set are applied in this order.
#[derive(Debug, Clone, Default)]
pub struct Input {
    /// New size of the terminal: rows and columns.
    pub resize: Option<(u16, u16)>,
    /// Bytes for standard input.
    pub data: Bytes,
    /// Close standard input after `data`.
    pub eof: bool,
    /// A signal for every process of the exec.
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
