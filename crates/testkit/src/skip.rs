//! How a test reports that it could not run, or only partly.

use std::ffi::OsStr;
use std::io::Write as _;
use std::path::Path;

/// The variable with the path of the file that gets a line for each skipped test: outcome, name and
/// reason, separated by tabs. Without it the line goes to stderr.
const SKIPS: &str = "HOTCELL_SKIPS";

/// The variable with the names of what this tier lacks by design, separated by spaces. See
/// [`Need::name`].
pub const TIER_LACKS: &str = "HOTCELL_TIER_LACKS";

/// What a test needs to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// The test itself runs as root.
    Root,
    /// Containers can have a root user: we are root, or have subordinate ids.
    ContainerRoot,
    /// Cgroups in which we may set limits.
    Cgroups,
    /// We may mount filesystems.
    Mounts,
    /// A private Docker or Podman can be started.
    Engines,
    /// The program `docker-registry`.
    Registry,
    /// What `tests/clients/install` installs.
    Clients,
    /// A static busybox.
    Busybox,
    /// A filesystem that reports extents (FIEMAP).
    Extents,
    /// A profile of the virtual machine.
    Machine,
    /// A non-loopback address of this host.
    Address,
    /// Debian's `prometheus`.
    Prometheus,
    /// Programs in various languages, to be run in a container.
    Programs,
}

impl Need {
    /// Its name in [`TIER_LACKS`].
    pub fn name(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::ContainerRoot => "container-root",
            Self::Cgroups => "cgroups",
            Self::Mounts => "mounts",
            Self::Engines => "engines",
            Self::Registry => "registry",
            Self::Clients => "clients",
            Self::Busybox => "busybox",
            Self::Extents => "extents",
            Self::Machine => "machine",
            Self::Address => "address",
            Self::Prometheus => "prometheus",
            Self::Programs => "programs",
        }
    }
}

/// Reports that the calling test returns now without having tested anything.
///
/// # Panics
///
/// With `CI=true`, unless the tier lacks `need` by design.
pub fn skip(need: Need, reason: &str) {
    let verdict = if is_lacking(need) {
        Verdict::Excluded
    } else {
        Verdict::Skipped
    };
    say(verdict, reason);
}

/// Reports that the calling test leaves out a part and tests the rest. Unless that is by design of
/// the tier, it counts as a skipped test.
///
/// # Panics
///
/// With `CI=true`, unless the tier lacks `need` by design.
pub fn skip_part(need: Need, reason: &str) {
    let verdict = if is_lacking(need) {
        Verdict::ExcludedPart
    } else {
        Verdict::Skipped
    };
    say(verdict, reason);
}

/// Reports that the calling test is about something that the engine under test does not claim to
/// support. It is excluded in every tier.
pub fn not_claimed(reason: &str) {
    say(Verdict::Excluded, reason);
}

/// The outcome of a test that did not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Skipped,
    Excluded,
    ExcludedPart,
}

impl Verdict {
    fn word(self) -> &'static str {
        match self {
            Self::Skipped => "skipped",
            Self::Excluded => "excluded",
            Self::ExcludedPart => "excluded-part",
        }
    }
}

fn is_lacking(need: Need) -> bool {
    let lacks = std::env::var(TIER_LACKS).unwrap_or_default();
    lacks.split_whitespace().any(|name| name == need.name())
}

fn say(verdict: Verdict, reason: &str) {
    let must_run = std::env::var_os("CI").is_some_and(|ci| ci == "true");
    assert!(
        verdict != Verdict::Skipped || !must_run,
        "cannot run, and CI=true: {reason}"
    );
    let line = line(verdict, &test_name(), reason);
    let Some(file) = std::env::var_os(SKIPS) else {
        eprint!("{line}");
        return;
    };
    append(Path::new(&file), &line);
}

/// Always one line, whatever the reason contains.
fn line(verdict: Verdict, test: &str, reason: &str) -> String {
    let reason = reason.replace(['\n', '\t'], " ");
    format!("{}\t{test}\t{reason}\n", verdict.word())
}

/// Many test programs write concurrently: a single write in append mode is atomic.
fn append(file: &Path, line: &str) {
    std::fs::File::options()
        .append(true)
        .create(true)
        .open(file)
        .and_then(|mut file| file.write_all(line.as_bytes()))
        .unwrap_or_else(|error| panic!("a skip cannot be written to {}: {error}", file.display()));
}

/// The name of the program, without Cargo's hash, and of the test: the harness names each test's
/// thread after it.
fn test_name() -> String {
    let program = std::env::current_exe().unwrap_or_default();
    let program = program.file_stem().map(OsStr::to_string_lossy);
    let program = program.unwrap_or_default();
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a thread of a test");
    format!("{}::{test}", without_hash(&program))
}

fn without_hash(program: &str) -> &str {
    match program.rsplit_once('-') {
        Some((name, hash)) if hash.len() == 16 && hash.bytes().all(|b| b.is_ascii_hexdigit()) => {
            name
        }
        _ => program,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Output};

    /// Tells a test that it runs as its own child, and what to do.
    const ACT: &str = "HOTCELL_TESTKIT_ACT";

    /// Whether this is such a child, which has then done its part.
    fn acted() -> bool {
        match std::env::var(ACT).as_deref() {
            Ok("skip") => skip(Need::Engines, "no Docker\nhere"),
            Ok("part") => skip_part(Need::Engines, "no Docker"),
            Ok("claim") => not_claimed("to fly"),
            Ok("nothing") => {}
            _ => return false,
        }
        true
    }

    fn this_test() -> String {
        let thread = std::thread::current();
        thread.name().expect("the harness names it").to_owned()
    }

    /// Runs the calling test again, as a child that skips, in this environment.
    fn skipping(act: &str, variables: &[(&str, &str)]) -> Output {
        let this = std::env::current_exe().expect("this program");
        Command::new(this)
            // With one thread, the harness would not name it.
            .args(["--exact", &this_test(), "--test-threads=2"])
            .env_remove("CI")
            .env_remove(TIER_LACKS)
            .env(ACT, act)
            .envs(variables.iter().copied())
            .output()
            .expect("it runs")
    }

    /// The same; returns the line in the skip file: outcome and reason.
    fn told(act: &str, variables: &[(&str, &str)]) -> String {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("skips");
        let path = file.to_str().expect("text").to_owned();
        let output = skipping(act, &[&[(SKIPS, path.as_str())], variables].concat());
        assert!(output.status.success(), "{output:?}");
        let told = std::fs::read_to_string(file).unwrap_or_default();
        told.replace(&format!("hotcell_testkit::{}", this_test()), "TEST")
    }

    #[test]
    fn a_skip_is_one_line_with_the_test_and_the_reason() {
        if acted() {
            return;
        }
        assert_eq!(told("skip", &[]), "skipped\tTEST\tno Docker here\n");
        assert_eq!(told("part", &[]), "skipped\tTEST\tno Docker\n");
        assert_eq!(told("nothing", &[]), "");
    }

    #[test]
    fn what_the_tier_lacks_by_design_is_excluded() {
        if acted() {
            return;
        }
        let lacks = [(TIER_LACKS, "root engines"), ("CI", "true")];
        assert_eq!(told("skip", &lacks), "excluded\tTEST\tno Docker here\n");
        assert_eq!(told("part", &lacks), "excluded-part\tTEST\tno Docker\n");
    }

    #[test]
    fn what_a_subject_does_not_claim_is_excluded_everywhere() {
        if acted() {
            return;
        }
        let said = told("claim", &[("CI", "true")]);
        assert_eq!(said, "excluded\tTEST\tto fly\n");
    }

    #[test]
    fn in_ci_a_skip_fails_unless_the_tier_lacks_it_by_design() {
        if acted() {
            return;
        }
        for act in ["skip", "part"] {
            let other = [("CI", "true"), (TIER_LACKS, "root engine")];
            let output = skipping(act, &other);
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(!output.status.success(), "{said}");
            assert!(
                said.contains("cannot run, and CI=true: no Docker"),
                "{said}"
            );
        }
        assert!(skipping("nothing", &[("CI", "true")]).status.success());
    }

    #[test]
    fn only_the_hash_that_cargo_adds_is_cut() {
        assert_eq!(without_hash("pull-0123456789abcdef"), "pull");
        assert_eq!(without_hash("my-tests"), "my-tests");
        assert_eq!(without_hash("pull"), "pull");
    }
}
