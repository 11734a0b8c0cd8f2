//! The measurements of one run, and the bounds that they must meet.

use std::borrow::Cow;
use std::time::Duration;

use super::compare::at_least_heads;
use super::recorded;
use super::report::Report;

/// How often the true median may lie outside of its interval.
const OUTSIDE_MAX: f64 = 0.05;

/// Measurements by subject, in the order in which the subjects were first measured.
#[derive(Default)]
pub(super) struct Samples(Vec<(Cow<'static, str>, Vec<Duration>)>);

impl Samples {
    pub(super) fn add(&mut self, subject: impl Into<Cow<'static, str>>, time: Duration) {
        let subject = subject.into();
        match self.0.iter_mut().find(|(row, _)| *row == subject) {
            Some((_, times)) => times.push(time),
            None => self.0.push((subject, vec![time])),
        }
    }

    /// The subjects, in the order in which they were first measured.
    pub(super) fn rows(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(row, _)| row.as_ref())
    }

    /// The measurements of a subject, round by round.
    pub(super) fn times(&self, row: &str) -> &[Duration] {
        let found = self.0.iter().find(|(subject, _)| *subject == row);
        found.map_or(&[], |(_, times)| times)
    }

    /// Prints a line for each subject, and keeps it for `--json`.
    pub(super) fn print(&self) {
        eprintln!(
            "{:<42} {:>9} {:>19} {:>9} {:>9} {:>7}",
            "", "p50 ms", "95 % of p50", "p95 ms", "p99 ms", "rounds"
        );
        for (row, summary) in self.summaries() {
            let Summary { p50, p95, p99, .. } = summary;
            let interval = summary.median.map_or("–".to_owned(), |(low, high)| {
                format!("{:.3} – {:.3}", millis(low), millis(high))
            });
            eprintln!(
                "{row:<42} {:>9.3} {interval:>19} {:>9.3} {:>9.3} {:>7}",
                millis(p50),
                millis(p95),
                millis(p99),
                summary.rounds
            );
        }
        eprintln!();
        recorded::rows(self);
    }

    /// Each subject with what is told of it.
    pub(super) fn summaries(&self) -> impl Iterator<Item = (&str, Summary)> {
        let all = self.0.iter();
        all.filter_map(|(row, times)| Some((row.as_ref(), Summary::of(times)?)))
    }

    pub(super) fn within(&self, report: &Report, row: &'static str, limit_ms: f64) {
        self.percentile_within(report, row, 50, limit_ms);
    }

    /// Checks the 95th percentile of a row against a limit.
    pub(super) fn nearly_all_within(&self, report: &Report, row: &'static str, limit_ms: f64) {
        self.percentile_within(report, row, 95, limit_ms);
    }

    fn percentile_within(&self, report: &Report, row: &str, percent: usize, limit_ms: f64) {
        match self.percentile(row, percent).map(millis) {
            Some(time) => report.verdict(
                time <= limit_ms,
                &format!("{row}: p{percent} {time:.3} ms, at most {limit_ms} ms"),
            ),
            None => report.unmeasured(row),
        }
    }

    pub(super) fn at_most_times(
        &self,
        report: &Report,
        row: &'static str,
        times: f64,
        of: &'static str,
    ) {
        match self.ratio(row, of) {
            Some(ratio) => report.verdict(
                ratio <= times,
                &format!("{row}: {ratio:.1} x {of}, at most {times} x"),
            ),
            None => report.unmeasured(&format!("{row} beside {of}")),
        }
    }

    /// How much longer a row takes than another, in the median of the rounds.
    pub(super) fn adds_at_most(
        &self,
        report: &Report,
        row: &'static str,
        limit_ms: f64,
        than: &'static str,
    ) {
        match self.median_more(row, than).map(millis) {
            Some(more) => report.verdict(
                more <= limit_ms,
                &format!("{row}: {more:.3} ms more than {than}, at most {limit_ms} ms"),
            ),
            None => report.unmeasured(&format!("{row} beside {than}")),
        }
    }

    pub(super) fn times_faster(
        &self,
        report: &Report,
        row: &'static str,
        times: f64,
        than: &'static str,
    ) {
        match self.ratio(than, row) {
            Some(ratio) => report.verdict(
                ratio >= times,
                &format!("{row}: {ratio:.0} x faster than {than}, at least {times} x"),
            ),
            None => report.unmeasured(&format!("{row} beside {than}")),
        }
    }

    pub(super) fn ratio(&self, row: &'static str, of: &'static str) -> Option<f64> {
        let (row, of) = (self.percentile(row, 50)?, self.percentile(of, 50)?);
        Some(row.as_secs_f64() / of.as_secs_f64())
    }

    /// How much longer one row takes than another in the same round, in the median of the rounds.
    pub(super) fn median_more(&self, row: &str, than: &str) -> Option<Duration> {
        let pairs = self.times(row).iter().zip(self.times(than));
        let mut more: Vec<_> = pairs
            .map(|(one, other)| one.saturating_sub(*other))
            .collect();
        more.sort_unstable();
        more.get(more.len() / 2).copied()
    }

    pub(super) fn percentile(&self, row: &str, percent: usize) -> Option<Duration> {
        percentile(self.times(row), percent)
    }
}

/// What is told of the measurements of a subject.
pub(super) struct Summary {
    pub(super) p50: Duration,
    pub(super) p95: Duration,
    pub(super) p99: Duration,
    /// The interval that holds the true median 19 times in 20; `None` if there were too few rounds.
    pub(super) median: Option<(Duration, Duration)>,
    pub(super) rounds: usize,
}

impl Summary {
    pub(super) fn of(times: &[Duration]) -> Option<Self> {
        Some(Self {
            p50: percentile(times, 50)?,
            p95: percentile(times, 95)?,
            p99: percentile(times, 99)?,
            median: median_interval(times),
            rounds: times.len(),
        })
    }
}

/// The narrowest pair of measurements, equally far from both ends, that encloses the true median as often as is asked. Only
/// their order counts: each measurement is above the median as often as a fair coin shows heads.
fn median_interval(times: &[Duration]) -> Option<(Duration, Duration)> {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let rounds = sorted.len();
    let is_certain = |from: &usize| 2.0 * at_least_heads(rounds - from, rounds) <= OUTSIDE_MAX;
    let from = (0..rounds / 2).take_while(is_certain).last()?;
    Some((sorted[from], sorted[rounds - 1 - from]))
}

pub(super) fn percentile(times: &[Duration], percent: usize) -> Option<Duration> {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let at = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(at).copied()
}

pub(super) fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(times: impl IntoIterator<Item = u64>) -> Vec<Duration> {
        times.into_iter().map(Duration::from_millis).collect()
    }

    #[test]
    fn the_interval_of_a_median_is_that_of_order_statistics() {
        // Of ten measurements the second and the ninth, as tables of the sign test have it.
        let interval = median_interval(&ms((1..=10).rev()));
        assert_eq!(
            interval,
            Some((Duration::from_millis(2), Duration::from_millis(9)))
        );
        // Of a hundred the 40th and the 61st.
        let interval = median_interval(&ms(1..=100));
        assert_eq!(
            interval,
            Some((Duration::from_millis(40), Duration::from_millis(61)))
        );
    }

    #[test]
    fn five_measurements_tell_nothing_of_the_median() {
        assert_eq!(median_interval(&ms(1..=5)), None);
        assert!(median_interval(&ms(1..=6)).is_some());
        assert!(Summary::of(&[]).is_none());
    }
}
