//! Docker and Podman, asked what they are, and what `auto` makes of it all.

use anyhow::Result;
use hotcell_engine::Enforcement;
use hotcell_engine::docker::{About, Flavor};

use super::Finding;
use crate::cli::EngineArgs;
use crate::engines::{Choice, NoEngine, ReachableEngine, UnreachableEngine, choose, find};

/// Asks both, and decides as `--engine auto` would, which is the last finding. Neither is
/// needed for the embedded engine, whose own probe came before.
pub(super) fn probe(embedded: &Finding, access: &EngineArgs) -> Result<Vec<Finding>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let find = |flavor| find(flavor, access);
    let (docker, podman) =
        runtime.block_on(async { tokio::join!(find(Flavor::Docker), find(Flavor::Podman)) });
    let mut findings = vec![
        describe("Docker", Flavor::Docker, &docker),
        describe("Podman", Flavor::Podman, &podman),
    ];
    let embedded = embedded
        .ok
        .then_some(())
        .ok_or_else(|| embedded.found.clone());
    findings.push(decision(choose(embedded, docker, podman)));
    Ok(findings)
}

fn describe(
    name: &'static str,
    flavor: Flavor,
    found: &Result<ReachableEngine, UnreachableEngine>,
) -> Finding {
    let found = match found {
        Ok(found) => found,
        Err(absent) => {
            let follows = "not available as an engine (the embedded one does not need it)";
            let fix = format!("if you want it as an engine: {}", absent.fix(flavor));
            return Finding::bad(name, absent.to_string(), follows).fixed_by(fix);
        }
    };
    let said = said(found);
    let lacks = lacks(&found.about);
    if lacks.is_empty() {
        return Finding::good(name, said);
    }
    let follows = format!("its containers have no {}", lacks.join(", no "));
    let finding = Finding::bad(name, said, follows);
    if !found.about.is_rootless {
        return finding;
    }
    finding.fixed_by(
        "delegate cgroups to it: `systemctl edit user@.service`, `[Service]`, `Delegate=cpu memory pids`, and log in again",
    )
}

fn said(found: &ReachableEngine) -> String {
    let about = &found.about;
    let who = if about.is_rootless {
        "rootless"
    } else {
        "as root"
    };
    let runtimes = match &about.runtimes[..] {
        [] => about.default_runtime.clone(),
        names => names.join(", "),
    };
    format!(
        "{} (API {}) at {}, {who}, cgroup v{}, runtimes {runtimes}",
        about.version, about.api_version, found.host, about.cgroup_version
    )
}

/// What the profile asks for and this engine does not give.
fn lacks(about: &About) -> Vec<&'static str> {
    let enforced = about.enforced;
    [
        ("memory limit", enforced.memory == Enforcement::Cgroup),
        ("cpu limit", enforced.cpus == Enforcement::Cgroup),
        ("pids limit", enforced.pids == Enforcement::Cgroup),
        ("seccomp filter but ours", about.has_seccomp),
    ]
    .into_iter()
    .filter_map(|(what, is_there)| (!is_there).then_some(what))
    .collect()
}

fn decision(choice: Result<Choice, NoEngine>) -> Finding {
    let name = "--engine auto";
    match choice {
        Ok(choice) => {
            let chosen = choice.chosen.name();
            Finding::good(name, format!("takes {chosen}: {}", choice.reason))
        }
        Err(_) => Finding::bad(
            name,
            "no engine works here",
            "containers cannot be made here",
        )
        .fixed_by("mend one of the three above; the embedded engine needs nothing installed"),
    }
}
