//! Pictures for the manual: latency, throughput, memory and the cost of files, each beside what people use otherwise.
//! `bench pictures --write` draws them into `docs/pictures` and puts the figures into `docs/BENCHMARKS.md`.

mod callers;
mod containers;
mod latency;
mod page;
mod peer;
mod podman;
mod sizes;
pub(crate) mod svg;

use std::path::Path;

use anyhow::Result;

use self::svg::Line;
use super::docker::Docker;
use super::samples::Samples;

pub(super) use self::peer::PeerCommand;

/// What the command line asks of this area.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Pictures {
    /// Whether the manual is changed.
    pub(super) is_written: bool,
    pub(super) peers: Vec<PeerCommand>,
}

/// A picture with what is said about it.
struct Drawn {
    file: &'static str,
    heading: &'static str,
    text: String,
    svg: String,
    /// What is told as p50, p95 and p99.
    samples: Option<Samples>,
    /// The lines of a table otherwise.
    table: Vec<String>,
}

pub(super) fn run(program: &Path, docker: Option<&Docker>, wanted: &Pictures) -> Result<()> {
    let mut drawn = vec![
        latency::draw(program, docker, wanted)?,
        callers::draw(program, docker)?,
    ];
    drawn.extend(containers::draw(program, docker)?);
    drawn.push(sizes::draw(program, docker)?);
    for line in drawn.iter().flat_map(|one| &one.table) {
        eprintln!("{line}");
    }
    if wanted.is_written {
        page::write(&crate::workspace::root().join("docs"), program, &drawn)?;
    }
    Ok(())
}

/// A table with a row for each place and a column for each line.
fn table(place: &str, lines: &[Line], shown: fn(f64) -> String) -> Vec<String> {
    table_of(place, |value| format!("{value:.0}"), lines, shown)
}

fn table_of(
    place: &str,
    named: fn(f64) -> String,
    lines: &[Line],
    shown: fn(f64) -> String,
) -> Vec<String> {
    let mut places: Vec<f64> = lines
        .iter()
        .flat_map(|line| line.points.iter().map(|point| point.0))
        .collect();
    places.sort_by(f64::total_cmp);
    places.dedup();
    let columns: Vec<&str> = lines.iter().map(|line| line.name.as_str()).collect();
    let mut rows = vec![
        format!("| {place} | {} |", columns.join(" | ")),
        format!("|---|{}", "---|".repeat(columns.len())),
    ];
    rows.extend(places.into_iter().map(|place| {
        let at = |line: &Line| {
            let found = line
                .points
                .iter()
                .find(|point| point.0.total_cmp(&place).is_eq());
            found.map_or_else(|| " |".to_owned(), |point| format!(" {} |", shown(point.1)))
        };
        format!(
            "| {} |{}",
            named(place),
            lines.iter().map(at).collect::<String>()
        )
    }));
    rows
}

#[expect(clippy::cast_precision_loss, reason = "a count to draw")]
fn whole(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_a_column_for_each_line_and_leaves_out_what_was_not_measured() {
        let line = |name: &str, points: &[(f64, f64)]| Line {
            name: name.to_owned(),
            points: points.to_vec(),
        };
        let lines = [
            line("ours", &[(1.0, 5.0), (2.0, 6.0)]),
            line("theirs", &[(2.0, 7.0)]),
        ];
        assert_eq!(
            table("callers", &lines, |value| format!("{value:.0}/s")),
            [
                "| callers | ours | theirs |",
                "|---|---|---|",
                "| 1 | 5/s | |",
                "| 2 | 6/s | 7/s |"
            ]
        );
    }
}
