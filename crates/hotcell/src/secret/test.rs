//! `hotcell secret test`: whether a value can be read, and where it would be sent. Nothing here ever
//! has the value: `Secret::test` keeps it to itself.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use hotcell_egress::{Policy, SecretLength, SecretName, Settings};
use serde_json::{Value, json};

use crate::cli::SecretTestArgs;

pub(super) fn run(arguments: &SecretTestArgs, settings: &Settings) -> Result<ExitCode> {
    let tested = Tested::of(&arguments.name, settings)?;
    let text = if arguments.json {
        tested.json().to_string()
    } else {
        tested.text()
    };
    writeln!(std::io::stdout(), "{}", text.trim_end()).context("write to stdout")?;
    Ok(match tested.length {
        Ok(_) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    })
}

/// What is known about a secret.
struct Tested {
    name: SecretName,
    /// How long the value is, or why there is none.
    length: Result<SecretLength, String>,
    /// The header, with a mark in place of the value.
    header: String,
    inside: Option<String>,
    /// Profiles, and the host of each rule with this secret.
    uses: Vec<(String, String)>,
}

impl Tested {
    fn of(name: &SecretName, settings: &Settings) -> Result<Self> {
        let policy = Policy::compile(settings)?;
        let Some(secret) = policy.secret(name) else {
            let known: Vec<&str> = policy.secrets().map(SecretName::as_str).collect();
            match known.join(", ") {
                known if known.is_empty() => bail!("there is no [secret.{name}]"),
                known => bail!("there is no [secret.{name}]; there are: {known}"),
            }
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("start a runtime")?;
        let read = runtime.block_on(secret.test());
        Ok(Self {
            name: name.clone(),
            length: read.map_err(|error| format!("{:#}", anyhow::Error::new(error))),
            header: secret.header().masked(),
            inside: secret.inside().map(ToString::to_string),
            uses: uses(&policy, name),
        })
    }

    fn text(&self) -> String {
        let mut text = match &self.length {
            Ok(length) => format!("{}: the value can be read and sent ({length})\n", self.name),
            Err(error) => format!("{}: there is no usable value: {error}\n", self.name),
        };
        let _ = writeln!(text, "header: {}", self.header);
        if let Some(inside) = &self.inside {
            let _ = writeln!(text, "inside: {inside}, with a word that opens nothing");
        }
        if self.uses.is_empty() {
            text += "used by: no rule of any profile\n";
        }
        for (profile, host) in &self.uses {
            let _ = writeln!(text, "used by: [egress.{profile}] for {host}");
        }
        text
    }

    fn json(&self) -> Value {
        let uses = self.uses.iter();
        let uses = uses.map(|(profile, host)| json!({ "profile": profile, "host": host }));
        json!({
            "secret": self.name.as_str(),
            "readable": self.length.is_ok(),
            "length": self.length.as_ref().ok().map(ToString::to_string),
            "error": self.length.as_ref().err(),
            "header": self.header,
            "inside": self.inside,
            "uses": uses.collect::<Vec<_>>(),
        })
    }
}

fn uses(policy: &Policy, name: &SecretName) -> Vec<(String, String)> {
    let mut uses = Vec::new();
    for profile in policy.profiles() {
        for (pattern, grant) in profile.allowed() {
            if grant.secret.as_ref().is_some_and(|own| own.name() == name) {
                uses.push((profile.name().to_string(), pattern.to_string()));
            }
        }
    }
    uses
}

#[cfg(test)]
mod tests {
    use hotcell_egress::{
        Access, InsideName, Pattern, ProfileName, ProfileSettings, RuleSettings, SecretHeader,
        SecretSettings,
    };

    use super::*;

    const VALUE: &str = "tok_s3cret_value";

    fn tested(name: &str, from: &str) -> Result<Tested> {
        let secret = |header, inside| SecretSettings {
            from: from.parse().unwrap(),
            header,
            inside,
        };
        let (git, unused) = (SecretName::parse("git"), SecretName::parse("unused"));
        let (git, unused) = (git.unwrap(), unused.unwrap());
        let host = Pattern::parse("api.example.com").unwrap();
        let rule = RuleSettings {
            secret: Some(git.clone()),
            ..RuleSettings::new(host, Access::Full)
        };
        let work = ProfileSettings {
            rules: vec![rule],
            ..ProfileSettings::default()
        };
        let profile = |text| ProfileName::parse(text).unwrap();
        let more = ProfileSettings {
            include: vec![profile("work")],
            ..ProfileSettings::default()
        };
        let inside = InsideName::parse("GIT_TOKEN").unwrap();
        let basic = SecretHeader::preset("git").unwrap();
        let plain = SecretHeader::header("X-Key: k={}").unwrap();
        let settings = Settings {
            profiles: [(profile("work"), work), (profile("more"), more)].into(),
            secrets: [
                (git, secret(basic, Some(inside))),
                (unused, secret(plain, None)),
            ]
            .into(),
            ..Settings::default()
        };
        Tested::of(&SecretName::parse(name).unwrap(), &settings)
    }

    #[test]
    fn a_readable_secret_is_told_with_its_header_and_hosts_but_not_itself() {
        let tested = tested("git", &format!("command:echo {VALUE}")).unwrap();
        let said = tested.text();
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(
            lines,
            [
                "git: the value can be read and sent (8 to 31 characters)",
                "header: authorization: Basic base64(x-access-token:***)",
                "inside: GIT_TOKEN, with a word that opens nothing",
                "used by: [egress.more] for api.example.com:443",
                "used by: [egress.work] for api.example.com:443",
            ]
        );
        assert!(!tested.json().to_string().contains(VALUE));
        assert_eq!(tested.json()["readable"], true);
    }

    #[test]
    fn a_secret_that_cannot_be_read_is_told_with_the_cause() {
        let tested = tested("unused", "file:/nonexistent/token").unwrap();
        let said = tested.text();
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(
            lines,
            [
                "unused: there is no usable value: could not read /nonexistent/token: No such file or directory (os error 2)",
                "header: x-key: k=***",
                "used by: no rule of any profile",
            ]
        );
        let json = tested.json();
        assert_eq!(
            (&json["readable"], &json["length"]),
            (&json!(false), &Value::Null)
        );
    }

    #[test]
    fn a_secret_that_is_not_there_is_told_with_those_that_are() {
        let error = tested("gti", "env:A").err().expect("it is not there");
        let said = error.to_string();
        assert_eq!(said, "there is no [secret.gti]; there are: git, unused");
    }
}
