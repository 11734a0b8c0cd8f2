//! Batches of output: events that arrived together are written to the log together.
//!
//! Each log write is handed over to another thread, which costs more than the write itself. So a
//! write takes along all output that has already arrived, and never waits for more.

use std::ops::RangeInclusive;

use bytes::{Bytes, BytesMut};
use hotcell_agent_client::{AgentError, Event, EventKind, Follow, Output};
use hotcell_domain::Stream;
use hotcell_store::LogPiece;

/// New output is appended to the last record while that is below this size. A poll returns records
/// whole, so this plus one more event of the agent must stay below a poll's default size.
const GATHER_BELOW_BYTES: usize = 16 << 10;

/// A batch below this size takes one more event. It is half of what an agent sends without an
/// acknowledgement, so that the agent can send the next half while this one is written.
const BATCH_BELOW_BYTES: usize = 128 << 10;

/// Output for one log write: a command that writes byte by byte costs one record for many bytes,
/// and one that writes much costs one hand-over for many records.
pub(super) struct Batch {
    pieces: Vec<LogPiece>,
    bytes: usize,
    /// The range that timestamps are clamped to: the agent's clock is not trusted.
    times_unix_ms: RangeInclusive<u64>,
}

impl Batch {
    pub(super) fn new(times_unix_ms: RangeInclusive<u64>) -> Self {
        Self {
            pieces: Vec::new(),
            bytes: 0,
            times_unix_ms,
        }
    }

    /// Adds output from the agent, to the last record if the stream is the same and that is small.
    pub(super) fn add(&mut self, agent_seq: u64, unix_ms: u64, output: Output, data: Bytes) {
        let stream = match output {
            Output::Stdout => Stream::Stdout,
            Output::Stderr => Stream::Stderr,
        };
        self.bytes += data.len();
        match self.pieces.last_mut() {
            Some(last) if last.stream == stream && last.data.len() < GATHER_BELOW_BYTES => {
                let mut joined = BytesMut::from(std::mem::take(&mut last.data));
                joined.extend_from_slice(&data);
                last.data = joined.freeze();
                last.agent_seq = agent_seq;
            }
            _ => self.pieces.push(LogPiece {
                agent_seq,
                stream,
                unix_ms: unix_ms.clamp(*self.times_unix_ms.start(), *self.times_unix_ms.end()),
                data,
            }),
        }
    }

    /// Adds the output that has already arrived, without waiting. Returns the first event that is
    /// not output, if it meets one.
    pub(super) async fn gather(
        &mut self,
        follow: &mut Follow,
    ) -> Result<Option<Event>, AgentError> {
        while self.bytes < BATCH_BELOW_BYTES {
            let here = tokio::select! {
                biased;
                event = follow.next() => event?,
                () = std::future::ready(()) => return Ok(None),
            };
            match here {
                Some(Event {
                    seq,
                    unix_ms,
                    kind: EventKind::Output(output, data),
                }) => self.add(seq, unix_ms, output, data),
                other => return Ok(other),
            }
        }
        Ok(None)
    }

    /// The agent's sequence number of the last piece.
    pub(super) fn agent_seq(&self) -> u64 {
        self.pieces.last().map_or(0, |piece| piece.agent_seq)
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn into_pieces(self) -> Vec<LogPiece> {
        self.pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shapes(batch: Batch) -> Vec<(u64, Stream, usize)> {
        let pieces = batch.into_pieces().into_iter();
        pieces
            .map(|piece| (piece.agent_seq, piece.stream, piece.data.len()))
            .collect()
    }

    #[test]
    fn small_output_of_one_stream_is_one_record_and_large_output_stays_as_it_came() {
        let mut batch = Batch::new(0..=9);
        for (seq, output, bytes) in [
            (1, Output::Stdout, 1),
            (2, Output::Stdout, 2),
            (3, Output::Stderr, 4),
            (4, Output::Stdout, GATHER_BELOW_BYTES),
            (5, Output::Stdout, 8),
        ] {
            batch.add(seq, 1, output, Bytes::from(vec![b'x'; bytes]));
        }
        assert_eq!(
            (batch.agent_seq(), batch.bytes()),
            (5, 15 + GATHER_BELOW_BYTES)
        );
        let expected = [
            (2, Stream::Stdout, 3),
            (3, Stream::Stderr, 4),
            (4, Stream::Stdout, GATHER_BELOW_BYTES),
            (5, Stream::Stdout, 8),
        ];
        assert_eq!(shapes(batch), expected);
    }

    #[test]
    fn a_container_cannot_choose_the_time() {
        let mut batch = Batch::new(10..=20);
        batch.add(1, 5, Output::Stdout, Bytes::from_static(b"early"));
        batch.add(2, 25, Output::Stderr, Bytes::from_static(b"late"));
        let times = batch.into_pieces().into_iter().map(|piece| piece.unix_ms);
        assert_eq!(times.collect::<Vec<_>>(), [10, 20]);
    }
}
