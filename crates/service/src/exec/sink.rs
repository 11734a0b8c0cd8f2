//! The destination of an exec's output: its log, or a stream to the caller that started it.

use hotcell_store::{LogPiece, LogWriter, StoreError};

use super::stream::StreamSink;

#[derive(Debug)]
pub(super) enum OutputSink {
    Log(LogWriter),
    Stream(StreamSink),
}

impl OutputSink {
    /// Opens a log that an earlier server may have written to.
    pub(super) async fn open(&mut self) -> Result<(), StoreError> {
        match self {
            Self::Log(log) => log.open().await,
            Self::Stream(_) => Ok(()),
        }
    }

    /// Writes pieces of output and returns the sequence number of the newest message. May be
    /// repeated after an `Err`. If the future is dropped, either the first pieces are written or
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

    /// Closes the sink: the exec has ended.
    pub(super) async fn finish(&mut self, unix_ms: u64) -> Result<u64, StoreError> {
        match self {
            Self::Log(log) => log.finish(unix_ms).await,
            Self::Stream(stream) => Ok(stream.finish()),
        }
    }

    /// The agent's sequence number up to which everything is written.
    pub(super) fn agent_seq(&self) -> u64 {
        match self {
            Self::Log(log) => log.agent_seq(),
            Self::Stream(stream) => stream.agent_seq(),
        }
    }

    /// The sequence number of the newest message.
    pub(super) fn last_seq(&self) -> u64 {
        match self {
            Self::Log(log) => log.last_seq(),
            Self::Stream(stream) => stream.last_seq(),
        }
    }
}
