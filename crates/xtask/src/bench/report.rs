//! Which bounds of a run were kept, missed, or could not be measured.

use std::cell::RefCell;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::recorded;

/// The results of a run.
#[derive(Debug, Default)]
pub(super) struct Report(RefCell<Tally>);

#[derive(Debug, Default)]
struct Tally {
    kept: usize,
    missed: Vec<String>,
    unmeasured: Vec<String>,
}

impl Report {
    /// Records whether a bound was kept.
    pub(super) fn verdict(&self, kept: bool, sentence: &str) {
        eprintln!("{} {sentence}", if kept { "✓" } else { "✗" });
        recorded::bound(kept, sentence);
        let mut tally = self.0.borrow_mut();
        if kept {
            tally.kept += 1;
        } else {
            tally.missed.push(sentence.to_owned());
        }
    }

    /// Records a bound, or a whole area, that could not be measured here.
    pub(super) fn unmeasured(&self, what: &str) {
        self.0.borrow_mut().unmeasured.push(what.to_owned());
    }

    /// Prints the bounds that were missed or not measured.
    pub(super) fn print(&self) {
        let tally = self.0.borrow();
        for (word, names) in [
            ("missed", &tally.missed),
            ("not measured", &tally.unmeasured),
        ] {
            for name in names {
                eprintln!("{word}: {name}");
            }
        }
        eprintln!(
            "{} bounds kept, {} missed, {} not measured",
            tally.kept,
            tally.missed.len(),
            tally.unmeasured.len()
        );
    }

    /// What could not be measured, for `--json`.
    pub(super) fn not_measured(&self) -> Value {
        json!(self.0.borrow().unmeasured)
    }

    /// Fails if a bound was missed, or if none was measured.
    pub(super) fn check(&self) -> Result<()> {
        let tally = self.0.borrow();
        let missed = tally.missed.len();
        ensure!(missed == 0, "{missed} bounds were missed");
        ensure!(tally.kept > 0, "nothing was measured");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::Samples;
    use super::*;
    use std::time::Duration;

    fn samples() -> Samples {
        let mut samples = Samples::default();
        for ms in 1..=100 {
            samples.add("ours", Duration::from_millis(ms));
            samples.add("theirs", Duration::from_millis(2 * ms));
        }
        samples
    }

    #[test]
    fn a_bound_that_is_kept_passes_and_one_that_is_missed_fails() {
        let report = Report::default();
        samples().within(&report, "ours", 51.0);
        samples().nearly_all_within(&report, "ours", 96.0);
        samples().times_faster(&report, "ours", 2.0, "theirs");
        report.check().expect("all are kept");
        samples().at_most_times(&report, "theirs", 1.9, "ours");
        let said = report.check().expect_err("one is missed").to_string();
        assert_eq!(said, "1 bounds were missed");
        let report = Report::default();
        samples().nearly_all_within(&report, "ours", 51.0);
        assert!(report.check().is_err());
    }

    #[test]
    fn what_was_not_measured_is_told_and_alone_is_no_pass() {
        let report = Report::default();
        samples().times_faster(&report, "ours", 2.0, "docker run");
        samples().within(&report, "absent", 1.0);
        assert_eq!(
            report.0.borrow().unmeasured,
            ["ours beside docker run", "absent"]
        );
        assert!(report.check().is_err());
        samples().within(&report, "ours", 1000.0);
        assert!(report.check().is_ok());
    }
}
