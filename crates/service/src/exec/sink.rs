//! Where the output of an exec goes: into its log, or streamed to whoever started it.

use hotcell_store::{LogPiece, LogWriter, StoreError};

use super::stream::StreamSink;

/// Where the output of an exec goes.
#[derive(Debug)]
pub(super) enum OutputSink {
    Log(LogWriter),
    Stream(StreamSink),
}

impl OutputSink {
    /// Finds what another server wrote.
    pub(super) async fn open(&mut self) -> Result<(), StoreError> {
        match self {
            Self::Log(log) => log.open().await,
            Self::Stream(_) => Ok(()),
        }
    }

    /// Takes what the agent sent, and returns the number of the newest message. It can be
    /// repeated after an `Err`. Dropped while it waits, it has taken the first of the pieces, or
    /// none.
    pub(super) async fn append(&mut self, pieces: Vec<LogPiece>) -> Result<u64, StoreError> {
        match self {
            Self::Log(log) => log.append(pieces).await,
            Self::Stream(sink) => {
                for piece in pieces {
                    sink.append(piece).await;
                }
                Ok(sink.last_seq())
            }
        }
    }

    /// The exec has ended: nothing comes any more.
    pub(super) async fn finish(&mut self, unix_ms: u64) -> Result<u64, StoreError> {
        match self {
            Self::Log(log) => log.finish(unix_ms).await,
            Self::Stream(stream) => Ok(stream.finish()),
        }
    }

    /// The agent's number up to which everything has been taken.
    pub(super) fn agent_seq(&self) -> u64 {
        match self {
            Self::Log(log) => log.agent_seq(),
            Self::Stream(stream) => stream.agent_seq(),
        }
    }

    /// The number of the newest message.
    pub(super) fn last_seq(&self) -> u64 {
        match self {
            Self::Log(log) => log.last_seq(),
            Self::Stream(stream) => stream.last_seq(),
        }
    }
}
