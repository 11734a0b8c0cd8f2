//! Benchmarks of Hotcell, compared with a floor (fork and exec) and with Docker, interleaved in one
//! run.
//!
//! Machines are noisy, so every figure is taken in rounds: each round measures each subject once,
//! and only figures of the same rounds are compared.

mod client;
mod code;
mod codemode;
mod compare;
mod docker;
mod echo_server;
mod egress;
mod embedded;
mod engine_calls;
mod engines;
mod host;
mod images;
mod issuer;
mod ledger;
mod many;
mod memory;
mod operate;
mod pictures;
mod python;
mod readme;
mod recorded;
mod report;
mod run;
mod samples;
mod scale;
mod server;
mod server_process;
mod store;
mod stream;
mod throughput;
mod warm;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use self::compare::Binaries;
use self::docker::Docker;
use self::pictures::{PeerCommand, Pictures};
use self::readme::Readme;
use self::report::Report;
use crate::workspace;

pub(crate) use self::pictures::svg::escaped;

/// The areas that can be selected, in the order in which they run. `scale` runs only if it is selected.
const AREAS: [&str; 15] = [
    "embedded", "python", "server", "code", "codemode", "egress", "run", "many", "engines",
    "images", "store", "ledger", "operate", "pictures", SCALE,
];

const SCALE: &str = "scale";

/// Rounds for subjects that take milliseconds.
const ROUNDS: usize = 200;

/// Docker is measured once in this many rounds, because each of its commands takes a third of a second.
const DOCKER_EVERY: usize = 20;

const USAGE: &str = "usage: bench [--check] [--binary HOTCELL] [--against OLDER_HOTCELL] [--json FILE] [--write] [--peer \"NAME=COMMAND ARGUMENT…\"]… [embedded | python | server | code | codemode | egress | run | many | engines | images | store | ledger | operate | pictures | scale [--minutes N]]";

/// The command line.
#[derive(Debug, Default, PartialEq, Eq)]
struct Wanted {
    is_check: bool,
    ours: Option<PathBuf>,
    before: Option<PathBuf>,
    json: Option<PathBuf>,
    pictures: Pictures,
    area: Option<&'static str>,
    /// How long `scale` runs execs.
    minutes: Option<u64>,
}

/// Runs the benchmark of one area, or of all, and prints a table for each. `--binary` names the program to measure instead
/// of building it. `--against` also measures the server and `run` of an older binary. With `--check` the call fails if a bound
/// was missed or a row became slower. `--json` writes everything that was measured to a file. `--write` draws the area `pictures`
/// into `docs`, and `--peer` measures another MCP server in its rounds.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    if arguments
        .first()
        .is_some_and(|word| word == echo_server::WORD)
    {
        return echo_server::serve(arguments.get(1));
    }
    let wanted = Wanted::parse(arguments)?;
    let (report, mut readme) = (Report::default(), Readme::default());
    let ours = wanted.ours.clone();
    let ours = ours.map_or_else(|| workspace::build_release("hotcell"), Ok)?;
    let before = wanted.before.clone();
    let binaries = Binaries { ours, before };
    if wanted.area == Some(SCALE) {
        let minutes = wanted.minutes.unwrap_or(scale::MINUTES);
        scale::run(&binaries.ours, minutes, &report)?;
    } else {
        measure(&wanted, &binaries, &report, &mut readme)?;
        readme.print();
    }
    report.print();
    if let Some(path) = &wanted.json {
        recorded::write(path, &report)?;
    }
    if wanted.is_check {
        report.check()
    } else {
        Ok(())
    }
}

impl Wanted {
    fn parse(arguments: &[String]) -> Result<Self> {
        let mut wanted = Self::default();
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--check" => wanted.is_check = true,
                "--binary" => wanted.ours = Some(program(words.next())?),
                "--minutes" => wanted.minutes = Some(minutes(words.next())?),
                "--against" => wanted.before = Some(program(words.next())?),
                "--json" => wanted.json = Some(words.next().context(USAGE)?.into()),
                "--write" => wanted.pictures.is_written = true,
                "--peer" => {
                    let peer = PeerCommand::parse(words.next().context(USAGE)?)?;
                    wanted.pictures.peers.push(peer);
                }
                word => match AREAS.into_iter().find(|area| *area == word) {
                    Some(area) if wanted.area.is_none() => wanted.area = Some(area),
                    _ => bail!(USAGE),
                },
            }
        }
        Ok(wanted)
    }
}

fn minutes(word: Option<&String>) -> Result<u64> {
    let number = word.and_then(|word| word.parse().ok());
    number.filter(|number| *number > 0).context(USAGE)
}

/// Makes the path absolute: a relative one would be searched for in PATH.
fn program(path: Option<&String>) -> Result<PathBuf> {
    let path = path.context(USAGE)?;
    PathBuf::from(path)
        .canonicalize()
        .with_context(|| format!("there is no {path}"))
}

fn measure(
    wanted: &Wanted,
    binaries: &Binaries,
    report: &Report,
    readme: &mut Readme,
) -> Result<()> {
    let area = wanted.area;
    let is_wanted = |name: &&str| area.map_or(*name != SCALE, |area| area == *name);
    let docker = match area {
        None | Some("embedded" | "server" | "egress" | "engines" | "pictures") => {
            Docker::start().context("start Docker")?
        }
        Some(_) => None,
    };
    let docker = docker.as_ref();
    if docker.is_none() {
        eprintln!(
            "without Docker (not root, not installed or not needed): compared with the floor only"
        );
    }
    for name in AREAS.into_iter().filter(is_wanted) {
        let start = Instant::now();
        recorded::begin(name);
        match name {
            "embedded" => embedded::run(docker, report, readme)?,
            "python" => python::run(report, readme)?,
            "server" => server::run(docker, binaries, report, readme)?,
            "code" => code::run(&binaries.ours, report, readme)?,
            "codemode" => codemode::run(&binaries.ours, report, readme)?,
            "egress" => egress::run(&binaries.ours, docker, report, readme)?,
            "run" => run::run(binaries, report, readme)?,
            "many" => many::run(&binaries.ours, report, readme)?,
            "engines" => engines::run(&binaries.ours, docker, report, readme)?,
            "images" => images::run(&binaries.ours, report, readme)?,
            "store" => store::run(report)?,
            "ledger" => ledger::run(report)?,
            "operate" => operate::run(&binaries.ours, report)?,
            _ => pictures::run(&binaries.ours, docker, &wanted.pictures)?,
        }
        eprintln!("{name} took {:.0} s\n", start.elapsed().as_secs_f64());
    }
    Ok(())
}

fn timed<T>(work: impl FnOnce() -> Result<T>) -> Result<Duration> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Wanted> {
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        Wanted::parse(&words)
    }

    #[test]
    fn an_unknown_area_is_refused_before_anything_is_measured() {
        for words in [
            &["speed"][..],
            &["--chek"],
            &["embedded", "server"],
            &["--against"],
            &["--json"],
            &["--peer"],
            &["scale", "--minutes", "0"],
        ] {
            let said = parse(words).expect_err("it is unknown").to_string();
            assert_eq!(said, USAGE);
        }
    }

    #[test]
    fn an_older_binary_must_be_there() {
        assert!(parse(&["--against", "/does/not/exist"]).is_err());
        let wanted = parse(&["--against", "/bin/sh", "server", "--check"]).expect("all is known");
        assert_eq!(wanted.area, Some("server"));
        assert!(wanted.is_check && wanted.before.is_some());
        let wanted = parse(&["pictures", "--write", "--peer", "a=b", "--peer", "c=d e"]);
        let pictures = wanted.expect("all is known").pictures;
        assert!(pictures.is_written && pictures.peers.len() == 2);
    }
}
