//! Injected faults, determined by a seed.
//!
//! The same calls in the same order meet the same faults. There are at most [`FAULTS_MAX`], so
//! retries eventually succeed.

use std::time::Duration;

/// The most faults of one seed.
pub const FAULTS_MAX: u32 = 12;

/// A cut stream ends before this many bytes.
const CUT_BYTES_MAX: u64 = 64 << 10;

/// The longest delay of a slow stream before each read.
const DELAY_US_MAX: u64 = 2_000;

/// An agent that dies does so before this many streams were opened.
const OPENS_MAX: u64 = 4;

/// Decides for each call what goes wrong.
#[derive(Debug, Clone)]
pub struct Faults {
    random: Option<SplitMix>,
    left: u32,
    /// Streams that may still be opened before the container dies.
    opens_left: Option<u64>,
}

/// Faults of `create`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CreateFault {
    /// It fails before anything was created.
    Before,
    /// It fails when the agent already runs.
    After,
}

/// Faults of `open`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenFault {
    /// It fails.
    Refused,
    /// The stream ends after this many bytes in both directions together.
    Cut(u64),
    /// Each read is delayed.
    Delayed(Duration),
    /// The container dies.
    Killed,
}

/// Faults of `list`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListFault {
    /// One container is missing.
    Omitted,
    /// An additional container that nobody created, with an id from this number.
    Stranger(u64),
}

/// Faults of `destroy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DestroyFault {
    /// It fails before anything was removed.
    Before,
    /// It fails when the processes are gone but not the files.
    HalfWay,
}

impl Faults {
    /// Nothing goes wrong.
    pub fn none() -> Self {
        Self {
            random: None,
            left: 0,
            opens_left: None,
        }
    }

    /// The faults of a seed.
    pub fn from_seed(seed: u64) -> Self {
        let mut random = SplitMix(seed);
        // Every fourth container dies by itself.
        let dies = random.below(4) == 0;
        let opens_left = dies.then(|| random.below(OPENS_MAX));
        Self {
            random: Some(random),
            left: FAULTS_MAX,
            opens_left,
        }
    }

    pub(super) fn create(&mut self) -> Option<CreateFault> {
        let random = self.strike(3)?;
        Some(match random.below(2) {
            0 => CreateFault::Before,
            _ => CreateFault::After,
        })
    }

    pub(super) fn open(&mut self) -> Option<OpenFault> {
        match &mut self.opens_left {
            Some(0) => {
                self.opens_left = None;
                return Some(OpenFault::Killed);
            }
            Some(left) => *left -= 1,
            None => {}
        }
        let random = self.strike(2)?;
        Some(match random.below(4) {
            0 => OpenFault::Refused,
            1 => OpenFault::Delayed(Duration::from_micros(random.below(DELAY_US_MAX))),
            _ => OpenFault::Cut(random.below(CUT_BYTES_MAX)),
        })
    }

    pub(super) fn list(&mut self) -> Option<ListFault> {
        let random = self.strike(3)?;
        Some(match random.below(2) {
            0 => ListFault::Omitted,
            _ => ListFault::Stranger(random.next()),
        })
    }

    pub(super) fn destroy(&mut self) -> Option<DestroyFault> {
        let random = self.strike(2)?;
        Some(match random.below(2) {
            0 => DestroyFault::Before,
            _ => DestroyFault::HalfWay,
        })
    }

    /// Decides whether to inject a fault, once in this many calls, while there are faults left.
    fn strike(&mut self, once_in: u64) -> Option<&mut SplitMix> {
        let random = self.random.as_mut()?;
        if self.left == 0 || random.below(once_in) != 0 {
            return None;
        }
        self.left -= 1;
        Some(random)
    }
}

/// The splitmix64 generator: small, fast, and good enough to choose faults.
#[derive(Debug, Clone)]
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below the bound. The bounds are small, so the bias of the remainder does not
    /// matter.
    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decisions(seed: u64) -> Vec<String> {
        let mut faults = Faults::from_seed(seed);
        let mut all = Vec::new();
        for _ in 0..100 {
            all.push(format!("{:?}", faults.create()));
            all.push(format!("{:?}", faults.open()));
            all.push(format!("{:?}", faults.list()));
            all.push(format!("{:?}", faults.destroy()));
        }
        all
    }

    #[test]
    fn a_seed_decides_the_same_again() {
        assert_eq!(decisions(7), decisions(7));
        assert_ne!(decisions(7), decisions(8));
    }

    #[test]
    fn a_seed_brings_a_bounded_number_of_faults_and_one_death() {
        for seed in 0..100 {
            let faults = decisions(seed).into_iter().filter(|one| one != "None");
            let count = faults.filter(|one| one != "Some(Killed)").count();
            assert!(count <= FAULTS_MAX as usize, "seed {seed}: {count}");
            let deaths = decisions(seed)
                .iter()
                .filter(|one| *one == "Some(Killed)")
                .count();
            assert!(deaths <= 1, "seed {seed}");
        }
    }

    #[test]
    fn without_a_seed_nothing_goes_wrong() {
        let mut faults = Faults::none();
        assert_eq!((faults.create(), faults.open()), (None, None));
        assert_eq!((faults.list(), faults.destroy()), (None, None));
    }

    #[test]
    fn the_generator_is_splitmix64() {
        let mut random = SplitMix(1_234_567);
        assert_eq!(random.next(), 6_457_827_717_110_365_317);
        assert_eq!(random.next(), 3_203_168_211_198_807_973);
    }
}
