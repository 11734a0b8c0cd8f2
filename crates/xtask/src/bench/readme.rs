//! Generates the tables of "How fast" in docs/BENCHMARKS.md from the measurements, to be pasted there.

use std::time::Duration;

use super::samples::{Samples, millis};

/// The tables, one for each area, printed at the end of a run.
#[derive(Default)]
pub(super) struct Readme(Vec<String>);

impl Readme {
    /// Begins the table of an area.
    pub(super) fn table(&mut self) {
        self.0
            .push("\n| | ours | beside it |\n|---|---|---|".to_owned());
    }

    /// Adds a row to the table that was begun last.
    pub(super) fn row(&mut self, what: &str, ours: &str, beside: &str) {
        let beside = if beside.is_empty() {
            String::new()
        } else {
            format!(" {beside}")
        };
        self.0.push(format!("| {what} | {ours} |{beside} |"));
    }

    /// Prints the tables to stderr, like all output of a benchmark.
    pub(super) fn print(&self) {
        for line in &self.0 {
            eprintln!("{line}");
        }
        eprintln!();
    }
}

/// The median of a row in the format of the tables; a dash if it was not measured.
pub(super) fn p50(samples: &Samples, row: &str) -> String {
    samples.percentile(row, 50).map_or("–".to_owned(), shown)
}

/// Rounded to two significant digits.
pub(super) fn shown(time: Duration) -> String {
    match millis(time) {
        ms if ms < 1.0 => format!("{ms:.2} ms"),
        ms if ms < 10.0 => format!("{ms:.1} ms"),
        ms if ms < 1000.0 => format!("{ms:.0} ms"),
        ms => format!("{:.1} s", ms / 1000.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_two_digits_that_matter() {
        let said = [690, 5040, 19_100, 317_000, 1_700_000].map(Duration::from_micros);
        let said = said.map(shown);
        assert_eq!(said, ["0.69 ms", "5.0 ms", "19 ms", "317 ms", "1.7 s"]);
    }

    #[test]
    fn what_was_not_measured_is_a_dash() {
        assert_eq!(p50(&Samples::default(), "absent"), "–");
    }
}
