//! The `vm` tier: boots a small Debian under software emulation and runs the tests in it, one
//! profile after the other in one boot. `tests/vm/init` defines the profiles.
//!
//! Only output with the token of this run is believed: a profile that does not end, or a machine
//! that does not report its end, has failed.

mod disk;
mod image;
mod machine;
mod verdict;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::programs::{self, Programs};
use verdict::Verdict;

const PROFILES: [&str; 7] = [
    "root",
    "delegated",
    "plain",
    "no-userns-clone",
    "no-userns-max",
    "apparmor-userns",
    "apparmor-caps",
];

/// The profile in which systemd runs the machine, and the Debian package is installed. It takes minutes, so it is only run
/// when it is asked for; and it is always the last one, because systemd keeps the machine.
const SYSTEMD: &str = "systemd";

/// The default deadline of a boot with all its profiles. Only a hanging machine reaches it: beside
/// other work it gets a small share of the CPUs.
const DEADLINE_DEFAULT: Duration = Duration::from_hours(1);

/// Boots in all, if the guest's kernel panics. With several threads the emulator at times executes
/// code that the guest's kernel is just patching (a static key of its scheduler, for one); a panic
/// that a test causes comes again.
const BOOTS_MAX: usize = 3;

/// The kernel's console message before it stops.
const PANIC: &str = "Kernel panic - not syncing";

/// Lines of the console that are shown after a failure.
const CONSOLE_TAIL_LINES: usize = 40;

#[derive(Debug, Default, PartialEq, Eq)]
struct Wish {
    profiles: Vec<String>,
    deadline: Option<Duration>,
    files: Option<Vec<PathBuf>>,
}

/// Boots the machine and runs the requested profiles; fails if any of them did.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let wish = parse(arguments)?;
    let image = image::ready()?;
    let programs = match wish.files {
        Some(files) => named(&files)?,
        None => programs::build()?,
    };
    let deadline = wish.deadline.unwrap_or(DEADLINE_DEFAULT);
    let scratch = crate::workspace::target().join(format!("vm/run-{}", std::process::id()));
    std::fs::create_dir_all(&scratch)?;
    let mut outcome = boot(&image, &scratch, &wish.profiles, &programs, deadline);
    for _ in 1..BOOTS_MAX {
        match &outcome {
            Err(error) if error.to_string().contains(PANIC) => eprintln!("{error}\nbooting again"),
            _ => break,
        }
        outcome = boot(&image, &scratch, &wish.profiles, &programs, deadline);
    }
    std::fs::remove_dir_all(&scratch)?;
    outcome
}

fn boot(
    image: &Path,
    scratch: &Path,
    profiles: &[String],
    programs: &Programs,
    deadline: Duration,
) -> Result<()> {
    let token = std::fs::read_to_string("/proc/sys/kernel/random/uuid")?;
    let mut verdict = Verdict::new(token.trim(), profiles);
    let disks = [
        disk::make(scratch, token.trim(), profiles, programs)?,
        disk::make_with_quotas(scratch)?,
    ];
    let console = scratch.join("console.log");
    let start = Instant::now();
    let ending = machine::boot(image, &disks, &console, deadline, |line| {
        if let Some(text) = verdict.hear(line) {
            // A closed pipe behind us is no reason to leave a machine running.
            let _ = writeln!(std::io::stdout().lock(), "{text}");
        }
    })?;
    let seconds = start.elapsed().as_secs();
    let mut complaints = verdict.complaints();
    if ending == machine::Ending::DeadlinePassed {
        complaints.push(format!("the machine was ended after {seconds} s"));
    }
    if complaints.is_empty() {
        return Ok(());
    }
    if !verdict.is_done() {
        complaints.push(tail(&console)?);
    }
    bail!(complaints.join("\n"))
}

fn parse(arguments: &[String]) -> Result<Wish> {
    let mut wish = Wish::default();
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--profile" => wish.profiles.push(profile(arguments.next())?),
            "--deadline-s" => {
                let seconds = arguments.next().context("--deadline-s wants a number")?;
                wish.deadline = Some(Duration::from_secs(seconds.parse()?));
            }
            "--" => wish.files = Some(arguments.by_ref().map(PathBuf::from).collect()),
            other => bail!("vm does not know {other}"),
        }
    }
    if wish.profiles.is_empty() {
        wish.profiles = PROFILES.map(String::from).to_vec();
    }
    wish.profiles.sort_by_key(|profile| profile == SYSTEMD);
    Ok(wish)
}

fn profile(name: Option<&String>) -> Result<String> {
    match name {
        Some(name) if name == SYSTEMD || PROFILES.contains(&name.as_str()) => Ok(name.clone()),
        _ => bail!("a profile is one of {}, {SYSTEMD}", PROFILES.join(", ")),
    }
}

/// Files given by hand: the one called `hotcell` is the binary, all others are test programs.
fn named(files: &[PathBuf]) -> Result<Programs> {
    let mut programs = Programs::default();
    for file in files {
        let name = file.file_name().and_then(|name| name.to_str());
        match name.context("a test program needs a plain name")? {
            "hotcell" => programs.binaries.push(("hotcell".to_owned(), file.clone())),
            name => programs.tests.push((name.to_owned(), file.clone())),
        }
    }
    Ok(programs)
}

fn tail(console: &Path) -> Result<String> {
    let text = std::fs::read(console).context("read the console")?;
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.len().saturating_sub(CONSOLE_TAIL_LINES);
    Ok(format!(
        "the console's last lines:\n{}",
        lines[from..].join("\n")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Result<Wish> {
        parse(&words.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn without_a_wish_every_profile_runs() {
        assert_eq!(parsed(&[]).unwrap().profiles, PROFILES);
    }

    #[test]
    fn an_unknown_profile_is_refused_by_name() {
        let error = parsed(&["--profile", "; reboot"]).unwrap_err().to_string();
        assert!(error.contains("delegated"), "{error}");
    }

    #[test]
    fn systemd_is_the_last_profile() {
        let wish = parsed(&["--profile", "systemd", "--profile", "plain"]).unwrap();
        assert_eq!(wish.profiles, ["plain", "systemd"]);
    }

    #[test]
    fn files_follow_two_dashes() {
        let wish = parsed(&["--profile", "plain", "--", "a", "--profile"]).unwrap();
        assert_eq!(wish.profiles, ["plain"]);
        assert_eq!(wish.files, Some(vec!["a".into(), "--profile".into()]));
    }
}
