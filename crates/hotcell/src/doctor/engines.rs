//! Tries each engine in the list, and reports which one `auto` would choose.

use anyhow::Result;
use futures_util::future::join_all;
use hotcell_engine::{Diagnosis, EngineKind, EngineSetup};

use super::Finding;
use crate::engines::{Kinds, NoEngine};

/// Tries all engines. The last finding is the decision of `--engine auto`.
pub(super) fn probe(kinds: Kinds, setup: &EngineSetup) -> Result<Vec<Finding>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let trials = kinds.iter().map(|kind| kind.diagnose(setup));
    let diagnoses = runtime.block_on(join_all(trials));
    let tried: Vec<_> = kinds.iter().copied().zip(diagnoses).collect();
    let decision = decide(&tried);
    let mut findings: Vec<_> = tried.into_iter().map(finding).collect();
    findings.push(decision);
    Ok(findings)
}

fn finding((kind, diagnosis): (&dyn EngineKind, Diagnosis)) -> Finding {
    Finding {
        name: kind.title(),
        ok: diagnosis.follows.is_none(),
        found: diagnosis.found,
        follows: diagnosis.follows,
        fix: diagnosis.fix,
    }
}

fn decide(tried: &[(&'static dyn EngineKind, Diagnosis)]) -> Finding {
    let name = "--engine auto";
    let mut broken = NoEngine::default();
    for (kind, diagnosis) in tried {
        if diagnosis.works {
            let found = format!("takes {}: {}", kind.name(), broken.reason(*kind));
            return Finding::good(name, found);
        }
        broken.push(*kind, diagnosis.found.clone());
    }
    let follows = "containers cannot be made here";
    Finding::bad(name, "no engine works here", follows)
        .fixed_by("fix one of those above; the embedded engine needs nothing installed")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engines::setup;
    use crate::engines::tests::MadeUp;

    #[test]
    fn a_new_row_is_diagnosed_and_chosen_when_those_before_it_do_not_work() {
        static KINDS: Kinds = &[
            &MadeUp {
                name: "cold",
                works: false,
            },
            &MadeUp {
                name: "steam",
                works: true,
            },
        ];
        let setup = setup(std::path::Path::new("/nonexistent"));
        let findings = probe(KINDS, &setup).expect("findings");
        let told: Vec<_> = findings
            .iter()
            .map(|finding| (finding.name, finding.ok, finding.found.as_str()))
            .collect();
        let reason = "takes steam: cold (no coal) cannot be used; steam can";
        let wanted = [
            ("cold", false, "no coal"),
            ("steam", true, "under pressure"),
            ("--engine auto", true, reason),
        ];
        assert_eq!(told, wanted);
        assert_eq!(findings[0].fix.as_deref(), Some("buy some"));
        let findings = probe(&KINDS[..1], &setup).expect("findings");
        assert!(!findings[1].ok, "{:?}", findings[1]);
    }
}
