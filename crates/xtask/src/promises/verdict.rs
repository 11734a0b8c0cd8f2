//! What came of each proof.

use std::collections::BTreeMap;

use super::page::{Promise, Proof};

/// What came of a proof, the worse the later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Outcome {
    Kept,
    /// It could not be run here, or was not asked for.
    NotRun,
    Broken,
}

impl Outcome {
    pub(super) fn sign(self) -> char {
        match self {
            Self::Kept => '✓',
            Self::NotRun => '–',
            Self::Broken => '✗',
        }
    }
}

/// Verdicts by proof. A name may stand for several tests, such as one on each engine.
#[derive(Debug, Default)]
pub(super) struct Verdicts(BTreeMap<Proof, Vec<(Outcome, String)>>);

impl Verdicts {
    pub(super) fn say(&mut self, proof: &Proof, outcome: Outcome, line: &str) {
        let said = self.0.entry(proof.clone()).or_default();
        said.push((outcome, line.to_owned()));
    }

    /// The worst of a promise's proofs.
    pub(super) fn of(&self, promise: &Promise) -> Outcome {
        let worst = promise.proofs.iter().map(|proof| self.of_proof(proof));
        worst.max().unwrap_or(Outcome::NotRun)
    }

    fn of_proof(&self, proof: &Proof) -> Outcome {
        let said = self.0.get(proof).into_iter().flatten();
        let outcomes: Vec<Outcome> = said.map(|(outcome, _)| *outcome).collect();
        // What runs on one engine and is left out on another was run.
        let ran = outcomes
            .iter()
            .filter(|outcome| **outcome != Outcome::NotRun);
        ran.max().copied().unwrap_or(Outcome::NotRun)
    }

    /// What was said of a proof.
    pub(super) fn lines(&self, proof: &Proof) -> impl Iterator<Item = String> {
        let said = self.0.get(proof).into_iter().flatten();
        said.map(|(outcome, line)| format!("{} {line}", outcome.sign()))
    }
}
