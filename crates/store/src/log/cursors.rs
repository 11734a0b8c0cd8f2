//! Remembers where readers stopped, so that they can continue without scanning from the start.

use std::collections::{HashMap, VecDeque};

use hotcell_domain::ExecId;

/// Positions remembered for all logs together.
const CURSORS_MAX: usize = 1024;

/// A position between two records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LogPosition {
    pub(super) part: u64,
    pub(super) offset: u64,
}

type Key = (ExecId, u64);

/// The positions after messages; only the most recent ones.
#[derive(Debug, Default)]
pub(super) struct Cursors {
    positions: HashMap<Key, LogPosition>,
    oldest_first: VecDeque<Key>,
}

impl Cursors {
    /// The position after message `seq`.
    pub(super) fn get(&self, id: &ExecId, seq: u64) -> Option<LogPosition> {
        self.positions.get(&(id.clone(), seq)).copied()
    }

    pub(super) fn put(&mut self, id: &ExecId, seq: u64, position: LogPosition) {
        let key = (id.clone(), seq);
        if self.positions.insert(key.clone(), position).is_some() {
            return;
        }
        self.oldest_first.push_back(key);
        if self.oldest_first.len() > CURSORS_MAX
            && let Some(oldest) = self.oldest_first.pop_front()
        {
            self.positions.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_places_are_remembered_and_no_more() {
        let id = ExecId::from_parts(1, [1; 10]);
        let mut cursors = Cursors::default();
        let position = |offset| LogPosition { part: 0, offset };
        for seq in 0..5000 {
            cursors.put(&id, seq, position(seq));
            cursors.put(&id, seq, position(seq + 1));
        }
        assert_eq!(cursors.positions.len(), CURSORS_MAX);
        assert_eq!(cursors.oldest_first.len(), CURSORS_MAX);
        assert_eq!(cursors.get(&id, 4999), Some(position(5000)));
        assert_eq!(cursors.get(&id, 0), None);
    }
}
