//! The measurements of one run, and the bounds that they must meet.

use std::time::Duration;

use super::report::Report;

/// Measurements by subject, in the order in which the subjects were first measured.
#[derive(Default)]
pub(super) struct Samples(Vec<(&'static str, Vec<Duration>)>);

impl Samples {
    pub(super) fn add(&mut self, subject: &'static str, time: Duration) {
        match self.0.iter_mut().find(|(row, _)| *row == subject) {
            Some((_, times)) => times.push(time),
            None => self.0.push((subject, vec![time])),
        }
    }

    /// The subjects, in the order in which they were first measured.
    pub(super) fn rows(&self) -> impl Iterator<Item = &'static str> {
        self.0.iter().map(|(row, _)| *row)
    }

    /// The measurements of a subject, round by round.
    pub(super) fn times(&self, row: &str) -> &[Duration] {
        let found = self.0.iter().find(|(subject, _)| *subject == row);
        found.map_or(&[], |(_, times)| times)
    }

    /// Prints a line for each subject.
    pub(super) fn print(&self) {
        eprintln!("{:<42} {:>9} {:>9} {:>8}", "", "p50 ms", "p95 ms", "rounds");
        for (row, times) in &self.0 {
            if let (Some(p50), Some(p95)) = (self.percentile(row, 50), self.percentile(row, 95)) {
                let (p50, p95, rounds) = (millis(p50), millis(p95), times.len());
                eprintln!("{row:<42} {p50:>9.3} {p95:>9.3} {rounds:>8}");
            }
        }
        eprintln!();
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

pub(super) fn percentile(times: &[Duration], percent: usize) -> Option<Duration> {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let at = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(at).copied()
}

pub(super) fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
