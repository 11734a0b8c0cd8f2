//! Packages that a snippet needs: installed into its session before it runs.
//!
//! They come through the session's egress profile, like whatever else the session fetches. A list that
//! was installed is remembered for as long as snippets succeed; after a failure the installer looks
//! again, which takes it a moment and needs no network if nothing is missing.

use std::sync::Arc;
use std::time::Duration;

use hotcell_domain::{
    Caller, Command, ExecEnd, ExecId, ExecStatus, Installer, NotStarted, Package,
};

use super::CodeRequest;
use crate::container::LiveContainer;
use crate::exec::Start;
use crate::{EgressReport, Inner, ServiceError};

/// How long an installation may take.
const INSTALL_TIMEOUT: Duration = Duration::from_mins(10);

/// What is shown of an installer's last words.
const REASON_CHARS_MAX: usize = 2000;

/// Denials that an error lists.
const DENIALS_MAX: usize = 5;

/// Without a way out, the installer only looks whether everything is there already.
const PIP: [&str; 6] = ["python3", "-m", "pip", "install", "--no-input", "--quiet"];
const PIP_OFFLINE: [&str; 1] = ["--no-index"];
const NPM: [&str; 4] = ["npm", "install", "--no-progress", "--loglevel=error"];
const NPM_OFFLINE: [&str; 1] = ["--offline"];

impl Inner {
    /// Installs what is missing of the request's packages.
    pub(super) async fn install_packages(
        self: &Arc<Self>,
        caller: &Caller,
        container: &Arc<LiveContainer>,
        request: &CodeRequest,
    ) -> Result<(), ServiceError> {
        if request.packages.is_empty() {
            return Ok(());
        }
        let installer = Installer::of(request.language).ok_or_else(no_installer)?;
        if container.has_packages(installer, &request.packages) {
            return Ok(());
        }
        let has_egress = container.egress().is_some();
        let mut command = command(installer, &request.packages, has_egress)?;
        command.set_timeout_s(INSTALL_TIMEOUT.as_secs_f64())?;
        command.ends_background = true;
        request.step.send_replace(installing(&request.packages));
        let start = Start {
            command,
            key: None,
            abandonment: request.abandonment.clone(),
        };
        let exec = container.execs().start(caller, start).await?;
        let end = self.environment.exec_end(caller, &exec).await?;
        request.step.send_replace(String::new());
        if end.status == ExecStatus::Succeeded {
            container.set_packages(installer, &request.packages);
            return Ok(());
        }
        if !has_egress {
            return Err(no_way_out(&request.packages));
        }
        Err(self.not_installed(container, (&exec, &end)).await)
    }

    /// Why an installation failed, in the installer's words and the broker's.
    async fn not_installed(
        &self,
        container: &LiveContainer,
        (exec, end): (&ExecId, &ExecEnd),
    ) -> ServiceError {
        if end.not_started == Some(NotStarted::NoProgram) {
            return ServiceError::Halted {
                reason:
                    "packages cannot be installed: the session's image has no installer for them"
                        .to_owned(),
                hint: "ask the operator for an image with pip or npm, or write the package's files to /workspace with `files`",
            };
        }
        let said = match self.code_output(exec, end).await {
            Ok(output) => output.stderr.tail.unwrap_or(output.stderr.head),
            Err(error) => return error,
        };
        let report = container.egress().and_then(|egress| egress.report(exec));
        let denied = report.as_ref().map(denials).unwrap_or_default();
        let reason = if end.status == ExecStatus::TimedOut {
            "packages could not be installed in time".to_owned()
        } else {
            format!("packages could not be installed: {}", last_words(&said))
        };
        ServiceError::Halted {
            hint: if denied.is_empty() {
                "check the names and versions; calling again tries again"
            } else {
                "ask the operator to allow these hosts in the session's egress profile, or do without the package"
            },
            reason: reason + &denied,
        }
    }
}

fn command(
    installer: Installer,
    packages: &[Package],
    has_egress: bool,
) -> Result<Command, ServiceError> {
    let (program, offline) = match installer {
        Installer::Pip => (&PIP[..], &PIP_OFFLINE[..]),
        Installer::Npm => (&NPM[..], &NPM_OFFLINE[..]),
    };
    let offline = if has_egress { &[] } else { offline };
    let words = program.iter().chain(offline).copied();
    // Nothing behind this is an option.
    let words = words.chain(["--"]);
    let words = words.chain(packages.iter().map(Package::as_str));
    Ok(Command::new(words.map(ToOwned::to_owned).collect())?)
}

fn installing(packages: &[Package]) -> String {
    let names: Vec<&str> = packages.iter().map(Package::as_str).take(8).collect();
    format!("installing {}", names.join(", "))
}

/// The end of what an installer said: that is where the reason stands.
fn last_words(said: &str) -> String {
    let lines: Vec<&str> = said.lines().map(str::trim).collect();
    let said = lines.join(" ");
    let said = said.trim();
    let count = said.chars().count();
    said.chars()
        .skip(count.saturating_sub(REASON_CHARS_MAX))
        .collect()
}

fn denials(report: &EgressReport) -> String {
    let shown = report.denied.iter().take(DENIALS_MAX).map(|denial| {
        let (host, port, reason) = (&denial.host, denial.port, &denial.reason);
        format!("; refused: {host}:{port}: {reason}; {}", denial.hint)
    });
    shown.collect()
}

fn no_installer() -> ServiceError {
    ServiceError::Invalid {
        reason: "`packages` can be installed for python, javascript and typescript".to_owned(),
    }
}

fn no_way_out(packages: &[Package]) -> ServiceError {
    let names: Vec<&str> = packages.iter().map(Package::as_str).collect();
    ServiceError::Halted {
        reason: format!(
            "the session lacks some of {}, and has no way to a package index",
            names.join(", ")
        ),
        hint: "ask the operator to set `code_egress = \"packages\"` in [code] (--code-egress packages); until then use what the image has, or write the package's files to /workspace with `files`",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_the_end_of_what_was_said() {
        let long = format!("{}ERROR: no such version\n", "noise ".repeat(1000));
        let words = last_words(&long);
        assert!(words.ends_with("ERROR: no such version"));
        assert_eq!(words.chars().count(), REASON_CHARS_MAX);
    }

    #[test]
    fn an_installer_takes_packages_for_nothing_else() {
        let packages = Package::parse_all(&["a==1".into()], Installer::Pip).unwrap();
        let command = command(Installer::Pip, &packages, false).unwrap();
        let words: Vec<&str> = command.argv().iter().map(String::as_str).collect();
        assert_eq!(words[words.len() - 3..], ["--no-index", "--", "a==1"]);
    }
}
