//! Figures of one run, and what they must reach.

use std::collections::BTreeMap;
use std::time::Duration;

/// The subjects, by the names they are printed under.
pub(super) mod rows {
    pub(in super::super) const FLOOR: &str = "fork+exec true";
    pub(in super::super) const READY: &str = "create + agent ready";
    pub(in super::super) const READY_BARE: &str = "create + agent ready, without cgroups";
    pub(in super::super) const LIFE: &str = "create + true + destroy";
    pub(in super::super) const LIFE_BARE: &str = "create + true + destroy, without cgroups";
    pub(in super::super) const EXEC: &str = "exec true in a live container";
    pub(in super::super) const WRITE: &str = "write 1 KB";
    pub(in super::super) const READ: &str = "read 1 KB";
    pub(in super::super) const DOCKER_RUN: &str = "docker run true";
    pub(in super::super) const DOCKER_RUN_ALONE: &str = "docker run --network=none true";
    pub(in super::super) const DOCKER_EXEC: &str = "docker exec true";
}

const ORDER: [&str; 11] = [
    rows::FLOOR,
    rows::READY,
    rows::READY_BARE,
    rows::LIFE,
    rows::LIFE_BARE,
    rows::EXEC,
    rows::WRITE,
    rows::READ,
    rows::DOCKER_RUN,
    rows::DOCKER_RUN_ALONE,
    rows::DOCKER_EXEC,
];

/// What was measured, by subject.
#[derive(Default)]
pub(super) struct Samples(BTreeMap<&'static str, Vec<Duration>>);

impl Samples {
    pub(super) fn add(&mut self, subject: &'static str, time: Duration) {
        self.0.entry(subject).or_default().push(time);
    }

    /// Prints a line for each subject, then one for each promise.
    pub(super) fn print(&self) {
        eprintln!("{:<42} {:>9} {:>9} {:>8}", "", "p50 ms", "p95 ms", "rounds");
        for row in ORDER {
            if let (Some(p50), Some(p95)) = (self.percentile(row, 50), self.percentile(row, 95)) {
                let rounds = self.0.get(row).map_or(0, Vec::len);
                eprintln!(
                    "{row:<42} {:>9.3} {:>9.3} {rounds:>8}",
                    millis(p50),
                    millis(p95)
                );
            }
        }
        eprintln!();
        self.within(rows::READY, 8.0);
        self.within(rows::READY_BARE, 8.0);
        self.at_most_times(rows::LIFE, 8.0, rows::FLOOR);
        self.at_most_times(rows::LIFE_BARE, 8.0, rows::FLOOR);
        self.times_faster(rows::LIFE, 40.0, rows::DOCKER_RUN);
        self.times_faster(rows::LIFE_BARE, 40.0, rows::DOCKER_RUN);
        self.within(rows::EXEC, 2.0);
        self.times_faster(rows::EXEC, 30.0, rows::DOCKER_EXEC);
        self.within(rows::WRITE, 0.5);
        self.within(rows::READ, 0.5);
    }

    fn within(&self, row: &'static str, limit_ms: f64) {
        if let Some(p50) = self.percentile(row, 50).map(millis) {
            verdict(
                p50 <= limit_ms,
                &format!("{row}: {p50:.3} ms, at most {limit_ms} ms"),
            );
        }
    }

    fn at_most_times(&self, row: &'static str, times: f64, of: &'static str) {
        if let Some(ratio) = self.ratio(row, of) {
            verdict(
                ratio <= times,
                &format!("{row}: {ratio:.1} x {of}, at most {times} x"),
            );
        }
    }

    fn times_faster(&self, row: &'static str, times: f64, than: &'static str) {
        if let Some(ratio) = self.ratio(than, row) {
            verdict(
                ratio >= times,
                &format!("{row}: {ratio:.0} x faster than {than}, at least {times} x"),
            );
        }
    }

    fn ratio(&self, row: &'static str, of: &'static str) -> Option<f64> {
        let (row, of) = (self.percentile(row, 50)?, self.percentile(of, 50)?);
        Some(row.as_secs_f64() / of.as_secs_f64())
    }

    fn percentile(&self, row: &str, percent: usize) -> Option<Duration> {
        let mut sorted = self.0.get(row)?.clone();
        sorted.sort_unstable();
        sorted
            .get((sorted.len() * percent / 100).min(sorted.len() - 1))
            .copied()
    }
}

/// One promise, kept or not.
pub(super) fn verdict(kept: bool, sentence: &str) {
    eprintln!("{} {sentence}", if kept { "✓" } else { "✗" });
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
