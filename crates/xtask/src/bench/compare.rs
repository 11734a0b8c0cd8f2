//! Compares each row of the current binary with that of an older one.
//!
//! Both are measured in every round, in turns, so each round gives a pair that saw the same
//! machine. A row counts as slower if the median ratio of its pairs says so and a sign test over
//! the rounds rules out chance.

use std::path::PathBuf;
use std::time::Duration;

use super::report::Report;
use super::samples::{Samples, millis, percentile};

/// How much slower a row may be.
const RATIO_MAX: f64 = 1.10;

/// The significance level of the sign test: how often it may call an unchanged row slower.
const ACCIDENT_MAX: f64 = 0.01;

/// The binary that is measured, and the one that it is compared with.
pub(super) struct Binaries {
    pub(super) ours: PathBuf,
    pub(super) before: Option<PathBuf>,
}

impl Binaries {
    /// The current binary first.
    pub(super) fn all(&self) -> impl Iterator<Item = &PathBuf> {
        std::iter::once(&self.ours).chain(&self.before)
    }
}

/// Calls `work` on each side, in alternating order, so that neither side always comes second.
pub(super) fn in_turns<T, E>(
    round: usize,
    sides: &mut [T],
    mut work: impl FnMut(&mut T) -> Result<(), E>,
) -> Result<(), E> {
    if round.is_multiple_of(2) {
        sides.iter_mut().try_for_each(&mut work)
    } else {
        sides.iter_mut().rev().try_for_each(&mut work)
    }
}

/// Compares the rows that both binaries have, one bound for each.
pub(super) fn verdicts(ours: &Samples, before: &Samples, report: &Report) {
    for row in ours.rows() {
        let pair = (ours.times(row), before.times(row));
        no_slower(row, "the older binary", pair, report);
    }
}

/// Checks that one of two subjects, measured in the same rounds, is not slower than the other.
pub(super) fn no_slower(
    row: &str,
    other: &str,
    (ours, theirs): (&[Duration], &[Duration]),
    report: &Report,
) {
    let ratios = ours.iter().zip(theirs);
    let ratios =
        ratios.map(|(one, other)| one.as_secs_f64() / other.as_secs_f64().max(f64::EPSILON));
    let ratios: Vec<f64> = ratios.collect();
    let rounds = ratios.len();
    // Subjects that are measured once only, such as Docker, have no pairs.
    let Some(Comparison { ratio, accident }) = compare(ratios) else {
        return;
    };
    let is_slower = ratio > RATIO_MAX && accident < ACCIDENT_MAX;
    let p50 = |times: &[Duration]| percentile(times, 50).map_or(0.0, millis);
    report.verdict(
        !is_slower,
        &format!(
            "{row}: {ratio:.2} x {other} ({:.3} ms beside {:.3} ms, {rounds} rounds, p = {accident:.3}), at most {RATIO_MAX} x",
            p50(ours),
            p50(theirs),
        ),
    );
}

struct Comparison {
    /// The median ratio of the rounds.
    ratio: f64,
    /// The probability of so many slower rounds if nothing changed.
    accident: f64,
}

fn compare(mut ratios: Vec<f64>) -> Option<Comparison> {
    ratios.sort_unstable_by(f64::total_cmp);
    let ratio = *ratios.get(ratios.len() / 2)?;
    let slower = ratios.iter().filter(|ratio| **ratio > 1.0).count();
    Some(Comparison {
        ratio,
        accident: at_least_heads(slower, ratios.len()),
    })
}

/// The probability of at least `heads` heads in `tosses` of a fair coin.
pub(super) fn at_least_heads(heads: usize, tosses: usize) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52 rounds")]
    let as_float = |count: usize| count as f64;
    // The probability of exactly `count` heads, as a logarithm: 2^-1000 would underflow.
    let mut exactly = -as_float(tosses) * std::f64::consts::LN_2;
    let mut sum = 0.0;
    for count in 0..=tosses {
        if count >= heads {
            sum += exactly.exp();
        }
        exactly += (as_float(tosses - count) / as_float(count + 1)).ln();
    }
    sum.min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(times_us: impl IntoIterator<Item = u64>) -> Samples {
        let mut samples = Samples::default();
        for us in times_us {
            samples.add("row", Duration::from_micros(us));
        }
        samples
    }

    #[test]
    fn a_coin_is_fair() {
        for (heads, tosses, likely) in [(0, 8, 1.0), (8, 8, 1.0 / 256.0), (2, 3, 0.5)] {
            let said = at_least_heads(heads, tosses);
            assert!((said - likely).abs() < 1e-9, "{heads} of {tosses}: {said}");
        }
        assert!(at_least_heads(2000, 2000) < 1e-300);
    }

    #[test]
    fn a_row_that_is_slower_in_every_round_is_missed_and_an_equal_one_is_kept() {
        let before = samples([1000; 20]);
        let report = Report::default();
        verdicts(&samples([1090; 20]), &before, &report);
        verdicts(&samples([1000; 20]), &before, &report);
        report.check().expect("within a tenth");
        verdicts(&samples([1120; 20]), &before, &report);
        assert!(report.check().is_err());
    }

    #[test]
    fn noise_alone_is_no_miss() {
        let noisy = (0..20).map(|round| if round % 9 < 5 { 1500 } else { 600 });
        let report = Report::default();
        verdicts(&samples(noisy), &samples([1000; 20]), &report);
        report.check().expect("half of the rounds are faster");
        // Too few rounds to tell.
        verdicts(&samples([1500; 5]), &samples([1000; 5]), &report);
        report
            .check()
            .expect("five rounds are slower by accident once in 32 times");
    }

    #[test]
    fn the_sides_take_turns() {
        let mut seen = Vec::new();
        for round in 0..3 {
            let done = in_turns(round, &mut ["a", "b"], |side| {
                seen.push(*side);
                Ok::<_, ()>(())
            });
            done.expect("nothing fails");
        }
        assert_eq!(seen, ["a", "b", "b", "a", "a", "b"]);
    }
}
