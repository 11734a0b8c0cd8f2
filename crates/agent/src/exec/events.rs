//! The numbered events of one exec that are not acknowledged yet.
//!
//! Invariant: the events held are `acked + 1 ..= last`, without gaps.

use std::collections::VecDeque;

use hotcell_agent_api::bounds::{CHUNK_BYTES_MAX, UNACKED_BYTES_MAX, UNACKED_EVENTS_MAX};
use hotcell_agent_api::v1::ExecEvent;
use hotcell_agent_api::v1::exec_event::Event;

/// Events from the first unacknowledged one to the last.
#[derive(Debug, Default)]
pub(super) struct Events {
    unacked: VecDeque<ExecEvent>,
    bytes: usize,
    last: u64,
    acked: u64,
}

/// An invalid sequence number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SeqError {
    /// It was acknowledged before, so the events after it may be gone.
    #[error("events up to {acked} were acknowledged and are gone")]
    Gone {
        /// The last acknowledged number.
        acked: u64,
    },
    /// It does not exist yet.
    #[error("the last event has number {last}")]
    Ahead {
        /// The last number.
        last: u64,
    },
}

impl Events {
    /// Appends an event with the next number.
    pub(super) fn push(&mut self, unix_ms: u64, event: Event) {
        let held = self.unacked.len() as u64;
        assert_eq!(
            self.last,
            self.acked + held,
            "events are numbered without a gap"
        );
        self.last += 1;
        self.bytes += bytes_of(&event);
        self.unacked.push_back(ExecEvent {
            seq: self.last,
            unix_ms,
            event: Some(event),
        });
    }

    /// How large the next chunk of output may be; 0: wait for an acknowledgement.
    pub(super) fn room(&self) -> usize {
        if self.unacked.len() >= UNACKED_EVENTS_MAX {
            return 0;
        }
        UNACKED_BYTES_MAX
            .saturating_sub(self.bytes)
            .min(CHUNK_BYTES_MAX)
    }

    /// Drops all events up to `seq`. Idempotent.
    pub(super) fn ack(&mut self, seq: u64) -> Result<(), SeqError> {
        if seq > self.last {
            return Err(SeqError::Ahead { last: self.last });
        }
        while self.unacked.front().is_some_and(|event| event.seq <= seq) {
            let event = self.unacked.pop_front().and_then(|event| event.event);
            self.bytes -= event.as_ref().map_or(0, bytes_of);
        }
        self.acked = self.acked.max(seq);
        let is_counted = !self.unacked.is_empty() || self.bytes == 0;
        assert!(is_counted, "bytes are counted as long as they are held");
        Ok(())
    }

    /// Checks that a follower can resume after `seq`.
    pub(super) fn check_resume(&self, seq: u64) -> Result<(), SeqError> {
        if seq < self.acked {
            return Err(SeqError::Gone { acked: self.acked });
        }
        if seq > self.last {
            return Err(SeqError::Ahead { last: self.last });
        }
        Ok(())
    }

    /// The event after `seq`, or the oldest one held if that was acknowledged meanwhile.
    pub(super) fn after(&self, seq: u64) -> Option<&ExecEvent> {
        let index = usize::try_from(seq.saturating_sub(self.acked)).ok()?;
        self.unacked.get(index)
    }

    /// The number of the last event.
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// The last acknowledged number.
    pub(super) fn acked(&self) -> u64 {
        self.acked
    }

    /// Drops all events; the numbering continues.
    pub(super) fn clear(&mut self) {
        self.unacked = VecDeque::new();
        self.bytes = 0;
        self.acked = self.last;
    }
}

fn bytes_of(event: &Event) -> usize {
    match event {
        Event::Output(output) => output.data.len(),
        Event::Started(_) | Event::Exit(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hotcell_agent_api::v1::Output;

    fn output(bytes: usize) -> Event {
        Event::Output(Output {
            stream: 1,
            data: vec![0; bytes].into(),
        })
    }

    #[test]
    fn a_full_log_has_no_room_until_it_is_acknowledged() {
        let mut events = Events::default();
        for _ in 0..UNACKED_BYTES_MAX / CHUNK_BYTES_MAX {
            assert_eq!(events.room(), CHUNK_BYTES_MAX);
            events.push(0, output(CHUNK_BYTES_MAX));
        }
        assert_eq!(events.room(), 0);
        events.ack(1).unwrap();
        assert_eq!(events.room(), CHUNK_BYTES_MAX);
    }

    #[test]
    fn many_small_events_fill_it_too() {
        let mut events = Events::default();
        for _ in 0..UNACKED_EVENTS_MAX {
            events.push(0, output(1));
        }
        assert_eq!(events.room(), 0);
    }

    #[test]
    fn what_was_acknowledged_is_gone_and_what_was_not_is_there() {
        let mut events = Events::default();
        for _ in 0..5 {
            events.push(0, output(1));
        }
        events.ack(2).unwrap();
        events.ack(1).unwrap();
        assert_eq!(events.check_resume(1), Err(SeqError::Gone { acked: 2 }));
        assert_eq!(events.check_resume(6), Err(SeqError::Ahead { last: 5 }));
        assert_eq!(events.ack(6), Err(SeqError::Ahead { last: 5 }));
        let seqs: Vec<u64> = (2..5).map(|seq| events.after(seq).unwrap().seq).collect();
        assert_eq!(seqs, [3, 4, 5]);
        assert!(events.after(5).is_none());
    }

    proptest::proptest! {
        #[test]
        fn numbers_have_no_gap_whatever_is_pushed_and_acknowledged(
            steps in proptest::collection::vec((0_usize..3, 0_u64..40), 1..100),
        ) {
            let mut events = Events::default();
            for (pushes, ack) in steps {
                (0..pushes).for_each(|_| events.push(0, output(3)));
                let _ = events.ack(ack);
                let unacked: Vec<u64> = events.unacked.iter().map(|event| event.seq).collect();
                let expected: Vec<u64> = (events.acked() + 1..=events.last()).collect();
                proptest::prop_assert_eq!(unacked, expected);
                proptest::prop_assert_eq!(events.bytes, events.unacked.len() * 3);
            }
        }
    }
}
