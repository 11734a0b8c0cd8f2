//! Whether an attacker with a clock could tell foreign from missing.
//!
//! No time is asserted, only an order: both are asked in turns, and if neither takes longer by
//! itself, each is the slower one of a random pair in about half of all cases. A difference that
//! matters shows as nearly always or nearly never.

use std::time::{Duration, Instant};

use hotcell_testkit::arguments::Handles;

use super::ask::{Ask, Person};

/// Pairs of one row. By chance alone the share deviates by about a twentieth.
const PAIRS: usize = 48;

/// Shares that are far from half by more than chance; looked at again with more pairs.
const SHARE_FAR: f64 = 0.3;

/// By how many there are more the second time.
const MORE: usize = 6;

#[derive(Default)]
pub(crate) struct Report(Vec<Row>);

struct Row {
    ask: String,
    share: f64,
    medians: [Duration; 2],
}

impl Report {
    /// Measures a row; fails if the two can be told apart.
    pub(crate) fn compare(
        &mut self,
        ask: &Ask,
        person: &mut Person,
        (foreign, missing): (&Handles, &Handles),
    ) {
        let name = format!(
            "{ask} ({})",
            if foreign.container.starts_with("c_") {
                "id"
            } else {
                "alias"
            }
        );
        let mut row = Row::measure(name, ask, person, (foreign, missing), PAIRS);
        if row.is_far() {
            let before = row.share;
            row = Row::measure(row.ask, ask, person, (foreign, missing), PAIRS * MORE);
            let is_same_side = (row.share > 0.5) == (before > 0.5);
            assert!(
                !(row.is_far() && is_same_side),
                "{}: a foreign handle takes longer in {:.2} of all cases ({:?}, missing {:?})",
                row.ask,
                row.share,
                row.medians[0],
                row.medians[1]
            );
        }
        self.0.push(row);
    }

    /// The rows that are farthest from half.
    pub(crate) fn print(&mut self) {
        self.0
            .sort_by(|one, other| other.distance().total_cmp(&one.distance()));
        eprintln!("foreign slower than missing in this share of pairs (0.50: no difference):");
        for row in self.0.iter().take(8) {
            let [foreign, missing] = row.medians;
            eprintln!(
                "{:.2}  foreign {foreign:?}, missing {missing:?}  {}",
                row.share, row.ask
            );
        }
        eprintln!("{} rows in all", self.0.len());
    }
}

impl Row {
    fn measure(
        name: String,
        ask: &Ask,
        person: &mut Person,
        (foreign, missing): (&Handles, &Handles),
        pairs: usize,
    ) -> Self {
        let mut times: [Vec<Duration>; 2] = Default::default();
        let mut time = |which: usize, on: &Handles| {
            let began = Instant::now();
            ask.answer(person, on);
            times[which].push(began.elapsed());
        };
        for pair in 0..pairs {
            if pair % 2 == 0 {
                time(0, foreign);
                time(1, missing);
            } else {
                time(1, missing);
                time(0, foreign);
            }
        }
        let share = share(&times[0], &times[1]);
        let medians = times.map(|mut times| {
            times.sort_unstable();
            times[times.len() / 2]
        });
        Self {
            ask: name,
            share,
            medians,
        }
    }

    fn distance(&self) -> f64 {
        (self.share - 0.5).abs()
    }

    fn is_far(&self) -> bool {
        self.distance() > SHARE_FAR
    }
}

/// In which share of all pairs the first is the longer one; ties count half.
fn share(one: &[Duration], other: &[Duration]) -> f64 {
    let halves = one.iter().flat_map(|a| {
        other.iter().map(move |b| match a.cmp(b) {
            std::cmp::Ordering::Less => 0.0,
            std::cmp::Ordering::Equal => 0.5,
            std::cmp::Ordering::Greater => 1.0,
        })
    });
    #[expect(clippy::cast_precision_loss, reason = "they are few")]
    let pairs = (one.len() * other.len()) as f64;
    halves.sum::<f64>() / pairs
}
