//! Everything that a run measured, for `bench --json FILE`. Tables and bounds are kept as they are printed, so that no area
//! can forget to.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::host::Host;
use super::report::Report;
use super::samples::{Samples, Summary, millis};

/// What was printed so far.
#[derive(Default)]
struct Recorded {
    area: &'static str,
    rows: Vec<Value>,
    bounds: Vec<Value>,
}

static RECORDED: Mutex<Recorded> = Mutex::new(Recorded {
    area: "",
    rows: Vec::new(),
    bounds: Vec::new(),
});

/// Names the area to which all that follows belongs.
pub(super) fn begin(area: &'static str) {
    with(|recorded| recorded.area = area);
}

pub(super) fn rows(samples: &Samples) {
    let summaries = samples.summaries();
    let rows: Vec<Value> = summaries.map(|(name, one)| row(name, &one)).collect();
    with(|recorded| {
        let area = recorded.area;
        recorded.rows.extend(rows.into_iter().map(|mut row| {
            row["area"] = area.into();
            row
        }));
    });
}

pub(super) fn bound(kept: bool, sentence: &str) {
    with(|recorded| {
        let bound = json!({ "area": recorded.area, "kept": kept, "sentence": sentence });
        recorded.bounds.push(bound);
    });
}

/// Writes all of it. Times are in milliseconds; `median_ms` holds the true median 19 times in 20.
pub(super) fn write(path: &Path, report: &Report) -> Result<()> {
    let document = with(|recorded| {
        json!({
            "host": Host::look().as_json(),
            "rows": recorded.rows,
            "bounds": recorded.bounds,
            "not_measured": report.not_measured(),
        })
    });
    let text = serde_json::to_vec_pretty(&document)?;
    std::fs::write(path, text).with_context(|| format!("write {}", path.display()))
}

fn row(name: &str, summary: &Summary) -> Value {
    json!({
        "row": name,
        "rounds": summary.rounds,
        "p50_ms": millis(summary.p50),
        "p95_ms": millis(summary.p95),
        "p99_ms": millis(summary.p99),
        "median_ms": summary.median.map(|(low, high)| [millis(low), millis(high)]),
    })
}

fn with<T>(work: impl FnOnce(&mut Recorded) -> T) -> T {
    work(&mut RECORDED.lock().unwrap_or_else(PoisonError::into_inner))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_was_printed_is_in_the_file() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("figures.json");
        begin("an area of this test");
        let mut samples = Samples::default();
        for ms in 1..=10 {
            samples.add("a subject", Duration::from_millis(ms));
        }
        samples.print();
        let report = Report::default();
        samples.within(&report, "a subject", 100.0);
        samples.within(&report, "absent", 1.0);
        write(&path, &report).expect("written");
        let text = std::fs::read(&path).expect("it is there");
        let found: Value = serde_json::from_slice(&text).expect("JSON");
        let of = |list: &str| {
            let all = found[list].as_array().cloned().unwrap_or_default();
            let ours = all.into_iter().find(|one| {
                one["row"] == "a subject"
                    || one["sentence"] == "a subject: p50 6.000 ms, at most 100 ms"
            });
            ours.unwrap_or_default()
        };
        assert_eq!(of("rows")["median_ms"], json!([2.0, 9.0]));
        assert_eq!(of("rows")["p99_ms"], json!(10.0));
        assert_eq!(of("bounds")["kept"], json!(true));
        assert_eq!(found["not_measured"], json!(["absent"]));
        assert!(found["host"]["processors"].as_u64() > Some(0), "{found}");
    }
}
