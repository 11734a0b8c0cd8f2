//! `hotcell state check`: checks that rows, output logs, audit log and engine agree.
//!
//! Everything is read from the files, so it works with and without a server. A running server
//! changes things meanwhile: only a difference that is found in each of several passes is reported.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use hotcell_auth::TokenFile;
use hotcell_domain::{ContainerId, EngineId, Lifetime, Phase};
use hotcell_engine::{Container, ENGINES, EngineSetup, EngineView};
use hotcell_store::{ContainerState, StoreCheck};

use super::difference::{Difference, Kind};
use super::report::Report;
use crate::audit;
use crate::cli::StateCheckArgs;
use crate::serve::anchor_of;

/// Passes until a difference is reported.
const LOOKS_MAX: usize = 4;

/// The pause between two passes: longer than anything takes that a server settles by itself.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// Checks and reports; exits with 1 if something disagrees.
pub(super) fn run(arguments: &StateCheckArgs) -> Result<ExitCode> {
    let directory = super::directory(arguments.place.state.state_dir.clone())?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("start the async runtime")?;
    let report = runtime.block_on(settled(arguments, &directory))?;
    report.print(arguments.json)?;
    Ok(if report.differences.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Repeats the check until nothing disagrees, or the same difference persists.
async fn settled(arguments: &StateCheckArgs, directory: &Path) -> Result<Report> {
    let mut report = look(arguments, directory).await?;
    for _ in 1..LOOKS_MAX {
        if report.differences.is_empty() {
            break;
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
        let mut again = look(arguments, directory).await?;
        let was_there = |one: &Difference| report.differences.iter().any(|other| one.is(other));
        again.differences.retain(was_there);
        report = again;
    }
    Ok(report)
}

/// One pass over everything.
async fn look(arguments: &StateCheckArgs, directory: &Path) -> Result<Report> {
    let Some(store) = hotcell_store::check(directory)? else {
        bail!(
            "there is no database in {}; name its server's --state-dir",
            directory.display()
        );
    };
    let mut report = Report::new(&store);
    if !store.is_current {
        report.note(format!(
            "the database has schema {}, and this program writes {}: the next server migrates it, \
             and its rows were not checked",
            store.schema,
            hotcell_store::SCHEMA
        ));
    }
    let faults = store.faults.iter().map(Difference::of_store);
    report.differences.extend(faults);
    compare_with_engines(arguments, directory, &store, &mut report).await;
    check_audit_log(arguments, &store, &mut report)?;
    check_tokens(directory, &mut report);
    Ok(report)
}

/// Asks every engine: one that no row names may have containers without a row.
async fn compare_with_engines(
    arguments: &StateCheckArgs,
    directory: &Path,
    store: &StoreCheck,
    report: &mut Report,
) {
    if !store.is_current {
        return;
    }
    let setup = EngineSetup {
        allow_plain_tcp: arguments.engines.allow_plain_tcp,
        ..crate::engines::setup(directory)
    };
    let containers = store.containers.iter().map(|one| &one.engine);
    let warm = store.warm.iter().map(|one| &one.engine);
    let named: BTreeSet<&EngineId> = containers.chain(warm).collect();
    for kind in ENGINES {
        let is_named = named.iter().any(|engine| engine.name == kind.name());
        match kind.look(&setup).await {
            Ok(view) => compare_with(&view, store, report),
            Err(missing) if is_named => {
                report.note(format!("{} was not asked: {missing}", kind.name()));
            }
            Err(_) => {}
        }
    }
}

fn compare_with(view: &EngineView, store: &StoreCheck, report: &mut Report) {
    let identity = &view.identity;
    let is_elsewhere =
        |one: &ContainerState| one.engine.name == identity.name && !one.engine.may_be(identity);
    if store.containers.iter().any(is_elsewhere) {
        report.note(format!(
            "only {identity} was asked: some containers are at another address"
        ));
    }
    report.differences.extend(compare(store, view));
}

/// Compares the rows of an engine with its containers.
fn compare(store: &StoreCheck, view: &EngineView) -> Vec<Difference> {
    let held: BTreeMap<&ContainerId, &Container> =
        view.containers.iter().map(|one| (&one.id, one)).collect();
    let is_here = |engine: &EngineId| engine.may_be(&view.identity);
    let mut differences = Vec::new();
    for row in store.containers.iter().filter(|row| is_here(&row.engine)) {
        let is_made = matches!(row.phase, Phase::Running | Phase::Halted);
        match held.get(&row.id).map(|one| one.phase) {
            None if is_made => differences.push(Difference::new(
                Kind::ContainerMissing,
                &row.id,
                format!(
                    "its row says {}, and its engine has none",
                    row.phase.as_str()
                ),
            )),
            Some(Phase::Stopped | Phase::Failed) if row.phase == Phase::Running => {
                let found = "its row says running, and its agent has ended";
                differences.push(Difference::new(Kind::ContainerStopped, &row.id, found));
            }
            _ => {}
        }
    }
    let rows = store.containers.iter().map(|row| &row.id);
    let rows: BTreeSet<_> = rows.chain(store.warm.iter().map(|row| &row.id)).collect();
    let strangers = held.values().filter(|one| !rows.contains(&one.id));
    differences.extend(strangers.filter_map(|one| stranger(one)));
    differences.extend(view.workspaces_unowned.iter().map(|node| {
        let found = "a workspace belongs to no container";
        Difference::new(Kind::WorkspaceUnowned, node, found)
    }));
    differences
}

/// The difference for a container without a row. A running container that ends with its owner
/// belongs to `hotcell run`, and is none.
fn stranger(container: &Container) -> Option<Difference> {
    let found = match (container.lifetime, container.phase) {
        (Lifetime::WithOwner, Phase::Running) => return None,
        (Lifetime::WithOwner, _) => "something is left of a container that was never finished",
        (Lifetime::UntilDestroyed, _) => "its engine has it, and it has no row",
    };
    Some(Difference::new(
        Kind::ContainerUnknown,
        &container.id,
        found,
    ))
}

fn check_audit_log(
    arguments: &StateCheckArgs,
    store: &StoreCheck,
    report: &mut Report,
) -> Result<()> {
    let anchor = store.anchor.as_ref().map(anchor_of).transpose();
    let anchor = anchor.unwrap_or_else(|error| {
        report.note(format!("{error:#}"));
        None
    });
    let directory = audit::place(&arguments.place)?;
    if !directory.is_dir() {
        if anchor.is_some() {
            let found = format!("there is no audit log at {}", directory.display());
            let difference = Difference::new(Kind::AuditLog, "audit log", found);
            report.differences.push(difference);
        }
        return Ok(());
    }
    // The anchor was read before the files, so it cannot be ahead of them.
    let verdict = hotcell_ledger::verify(&directory, anchor).context("read the audit log")?;
    report.audit_events = verdict.events;
    let faults = verdict.faults.iter();
    report
        .differences
        .extend(faults.map(|fault| Difference::new(Kind::AuditLog, "audit log", fault)));
    Ok(())
}

fn check_tokens(directory: &Path, report: &mut Report) {
    match TokenFile::in_directory(directory).read() {
        Ok(tokens) => report.tokens = tokens.len(),
        Err(error) => {
            let difference = Difference::new(Kind::Tokens, "tokens.json", error);
            report.differences.push(difference);
        }
    }
}
