//! Exec ids that sort by age even within one millisecond, so that queued execs keep their order
//! when they are read back from the store.

use hotcell_domain::ExecId;

/// Number of random bits in an id.
const CHANCE_BITS: u32 = 80;

/// Generates ids, each greater than the one before.
#[derive(Debug, Default)]
pub(super) struct ExecIds {
    unix_ms: u64,
    chance: u128,
}

impl ExecIds {
    /// Returns the next id and its timestamp, which never decreases.
    pub(super) fn next(&mut self, now_unix_ms: u64, random: [u8; 10]) -> (ExecId, u64) {
        let random = number(random);
        if now_unix_ms > self.unix_ms {
            self.restart(now_unix_ms, random);
        } else {
            // An unpredictable increment.
            self.chance += 1 + (random & u128::from(u64::MAX));
            if self.chance >> CHANCE_BITS != 0 {
                self.restart(self.unix_ms + 1, random);
            }
        }
        let bytes = self.chance.to_be_bytes();
        let mut chance = [0; 10];
        chance.copy_from_slice(&bytes[6..]);
        (ExecId::from_parts(self.unix_ms, chance), self.unix_ms)
    }

    /// Leaves the highest random bit clear, as room for increments.
    fn restart(&mut self, unix_ms: u64, random: u128) {
        self.unix_ms = unix_ms;
        self.chance = random >> 1;
    }
}

fn number(random: [u8; 10]) -> u128 {
    let mut bytes = [0; 16];
    bytes[6..].copy_from_slice(&random);
    u128::from_be_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn each_handle_is_greater_than_the_one_before(
            steps in prop::collection::vec((0..5_u64, any::<[u8; 10]>()), 1..200)
        ) {
            let mut ids = ExecIds::default();
            let mut last = ids.next(5, [0; 10]);
            for (now, random) in steps {
                let next = ids.next(5 + now, random);
                prop_assert!(next.0 > last.0 && next.1 >= last.1);
                last = next;
            }
        }
    }

    #[test]
    fn chance_that_runs_out_borrows_a_millisecond() {
        let mut ids = ExecIds {
            unix_ms: 7,
            chance: (1 << CHANCE_BITS) - 1,
        };
        let before = ExecId::from_parts(7, [0xff; 10]);
        let (id, unix_ms) = ids.next(7, [0xff; 10]);
        assert!(id > before);
        assert_eq!(unix_ms, 8);
    }
}
