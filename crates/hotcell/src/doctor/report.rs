//! The findings, for people and for programs.

use std::io::Write;

use anyhow::{Context, Result};
use serde::Serialize;

/// The result of one probe.
#[derive(Debug, Serialize)]
pub(super) struct Finding {
    /// A short name of the probe.
    pub(super) name: &'static str,
    pub(super) ok: bool,
    /// A description of the result.
    pub(super) found: String,
    /// The consequence for containers, if it does not work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) follows: Option<String>,
    /// How the operator can fix it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) fix: Option<String>,
}

impl Finding {
    pub(super) fn good(name: &'static str, found: impl Into<String>) -> Self {
        Self {
            name,
            ok: true,
            found: found.into(),
            follows: None,
            fix: None,
        }
    }

    pub(super) fn bad(
        name: &'static str,
        found: impl Into<String>,
        follows: impl Into<String>,
    ) -> Self {
        let follows = Some(follows.into());
        Self {
            name,
            ok: false,
            found: found.into(),
            follows,
            fix: None,
        }
    }

    pub(super) fn fixed_by(self, fix: impl Into<String>) -> Self {
        Self {
            fix: Some(fix.into()),
            ..self
        }
    }
}

/// All findings.
#[derive(Serialize)]
pub(super) struct Report {
    pub(super) findings: Vec<Finding>,
}

impl Report {
    /// One line per finding, followed by how to fix it.
    pub(super) fn print(&self) -> Result<()> {
        let mut out = std::io::stdout().lock();
        let colour = crate::terminal::has_colours(&out);
        write!(out, "{}", self.text(colour)).context("write to stdout")
    }

    fn text(&self, colour: bool) -> String {
        self.findings
            .iter()
            .map(|finding| finding.text(colour))
            .collect()
    }

    /// All findings as one JSON object.
    pub(super) fn print_json(&self) -> Result<()> {
        let mut out = std::io::stdout().lock();
        serde_json::to_writer_pretty(&mut out, self).context("write to stdout")?;
        writeln!(out).context("write to stdout")
    }
}

impl Finding {
    fn text(&self, colour: bool) -> String {
        let mark = match (self.ok, colour) {
            (true, true) => "\x1b[32m✓\x1b[0m",
            (true, false) => "✓",
            (false, true) => "\x1b[31m✗\x1b[0m",
            (false, false) => "✗",
        };
        let mut text = format!("{mark} {:<19} {}", self.name, self.found);
        if let Some(follows) = &self.follows {
            text.push_str(": ");
            text.push_str(follows);
        }
        text.push('\n');
        for line in self.fix.iter().flat_map(|fix| fix.lines()) {
            text.push_str("  → ");
            text.push_str(line);
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_is_a_line_and_its_fix_an_arrow_below() {
        let bad = Finding::bad("overlay", "EPERM", "images cannot be used").fixed_by("do this");
        assert_eq!(
            bad.text(false),
            "✗ overlay             EPERM: images cannot be used\n  → do this\n"
        );
        assert_eq!(
            Finding::good("seccomp", "works").text(false),
            "✓ seccomp             works\n"
        );
    }
}
