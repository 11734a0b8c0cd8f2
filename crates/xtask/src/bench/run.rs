//! `hotcell run -- true`: the cost of a container beyond starting the program.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::compare::{self, Binaries};
use super::readme::{Readme, p50, shown};
use super::report::Report;
use super::samples::{Samples, millis};
use super::timed;

const FLOOR: &str = "true";
const VERSION: &str = "hotcell --version";
const RUN: &str = "hotcell run -- true";

const ROUNDS: usize = 100;

/// How much longer than `--version` it may take.
const MORE_MS_MAX: f64 = 8.0;

/// One binary: its state directory and its measurements.
struct Side {
    program: PathBuf,
    directory: PathBuf,
    samples: Samples,
}

pub(super) fn run(binaries: &Binaries, report: &Report, readme: &mut Readme) -> Result<()> {
    let mut sides = Vec::new();
    for (number, program) in binaries.all().enumerate() {
        let name = format!("hotcell-run-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory)?;
        sides.push(Side {
            program: program.clone(),
            directory,
            samples: Samples::default(),
        });
    }
    let measured = measure(&mut sides);
    for side in &sides {
        std::fs::remove_dir_all(&side.directory)?;
    }
    measured?;
    verdicts(&sides, report, readme);
    Ok(())
}

fn measure(sides: &mut [Side]) -> Result<()> {
    for round in 0..ROUNDS {
        compare::in_turns(round, sides, |side| {
            let state = side.directory.as_path();
            let floor = timed(|| succeeds(Command::new("true")))?;
            let version = timed(|| succeeds(hotcell(&side.program, state, &["--version"])))?;
            let run = timed(|| succeeds(hotcell(&side.program, state, &["run", "--", "true"])))?;
            side.samples.add(FLOOR, floor);
            side.samples.add(VERSION, version);
            side.samples.add(RUN, run);
            anyhow::Ok(())
        })?;
    }
    Ok(())
}

fn verdicts(sides: &[Side], report: &Report, readme: &mut Readme) {
    let ours = &sides[0].samples;
    ours.print();
    if let Some(more) = ours.median_more(RUN, VERSION) {
        let more_ms = millis(more);
        report.verdict(
            more_ms <= MORE_MS_MAX,
            &format!("{RUN}: {more_ms:.1} ms more than --version, at most {MORE_MS_MAX} ms"),
        );
        readme.table();
        readme.row(
            "`hotcell run -- true`",
            &p50(ours, RUN),
            &format!("{} more than `hotcell --version`", shown(more)),
        );
    }
    if let [ours, before] = sides {
        compare::verdicts(&ours.samples, &before.samples, report);
    }
}

fn hotcell(program: &Path, state: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.env("HOTCELL_STATE_DIR", state).args(arguments);
    command
}

fn succeeds(mut command: Command) -> Result<()> {
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status();
    let status = status.with_context(|| format!("run {command:?}"))?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}
