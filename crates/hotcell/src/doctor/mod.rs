//! `hotcell doctor`: what this host can isolate and limit, found out by doing it.

mod engines;
mod host;
mod report;

use std::process::ExitCode;

use anyhow::Result;
use hotcell_engine::{ENGINES, EngineSetup};

use self::report::{Finding, Report};
use crate::cli::DoctorArgs;

/// Probes, prints, and exits with 0 if containers work here with some engine, else with 1.
pub(crate) fn run(arguments: &DoctorArgs) -> Result<ExitCode> {
    let state = crate::state::directory(arguments.state.state_dir.clone())?;
    let mut findings = host::probe(&state);
    let setup = EngineSetup {
        allow_plain_tcp: arguments.engines.allow_plain_tcp,
        ..crate::engines::setup(&state)
    };
    let engines = engines::probe(ENGINES, &setup)?;
    let works = engines.last().is_some_and(|decision| decision.ok);
    findings.extend(engines);
    let report = Report { findings };
    if arguments.json {
        report.print_json()?;
    } else {
        report.print()?;
    }
    Ok(ExitCode::from(u8::from(!works)))
}
