//! `hotcell egress check`: the decision of the configuration about one URL.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use hotcell_egress::{HostName, Policy, Settings};

use crate::cli::EgressCheckArgs;

const HTTPS: u16 = 443;
const HTTP: u16 = 80;

pub(super) fn run(arguments: &EgressCheckArgs, settings: &Settings) -> Result<ExitCode> {
    let (is_allowed, text) = decide(arguments, settings)?;
    writeln!(std::io::stdout(), "{text}").context("write to stdout")?;
    Ok(if is_allowed {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn decide(arguments: &EgressCheckArgs, settings: &Settings) -> Result<(bool, String)> {
    let policy = Policy::compile(settings)?;
    let (url, profile) = (Url::parse(&arguments.url)?, &arguments.profile);
    let Url { host, port, .. } = &url;
    if profile.is_none() {
        return Ok((false, "denied: the profile none allows nothing".to_owned()));
    }
    let Some(compiled) = policy.profile(profile) else {
        bail!("there is no profile {profile}; [egress.{profile}] would define it");
    };
    let grant = match compiled.decide(host, *port) {
        Ok(grant) => grant,
        Err(refusal) => return Ok((false, format!("denied: {host}:{port} ({refusal})"))),
    };
    let method = &arguments.method;
    let (path, query) = match url.path.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (url.path.as_str(), None),
    };
    if !grant.access.allows(method, path, query, false) {
        let (rule, access) = (&grant.rule, &grant.access);
        let text = format!("denied: {method} {path} ({rule} allows {access})");
        return Ok((false, text));
    }
    Ok((
        true,
        format!("allowed by {} ({})", grant.rule, grant.access),
    ))
}

/// The parts of a URL that are decided about.
struct Url {
    host: HostName,
    port: u16,
    path: String,
}

impl Url {
    fn parse(text: &str) -> Result<Self> {
        let (default_port, rest) = match text.split_once("://") {
            Some(("https", rest)) => (HTTPS, rest),
            Some(("http", rest)) => (HTTP, rest),
            Some((scheme, _)) => bail!("{scheme}: write https://, http:// or HOST:PORT"),
            None => (HTTPS, text),
        };
        let at = rest.find('/').unwrap_or(rest.len());
        let (authority, path) = rest.split_at(at);
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) => (host, port.parse().context("the port is not a number")?),
            None => (authority, default_port),
        };
        Ok(Self {
            host: HostName::parse(host).with_context(|| format!("`{host}`"))?,
            port,
            path: if path.is_empty() { "/" } else { path }.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use hotcell_egress::{List, ProfileName};

    use super::*;

    fn said(profile: &str, url: &str, method: &str) -> String {
        let arguments = EgressCheckArgs {
            profile: ProfileName::parse(profile).unwrap(),
            url: url.to_owned(),
            method: method.to_owned(),
        };
        match decide(&arguments, &Settings::default()) {
            Ok((_, text)) => text,
            Err(error) => format!("{error:#}"),
        }
    }

    #[test]
    fn a_url_is_allowed_or_denied_with_the_reason() {
        let host = List::parse("debian").unwrap().hosts()[0];
        let deb = &format!("https://{host}/debian/pool/x");
        let allowed = said("packages", deb, "GET");
        assert_eq!(allowed, format!("allowed by packages: {host} (read)"));
        let denied = said("packages", deb, "POST");
        assert!(
            denied.starts_with("denied: POST /debian/pool/x"),
            "{denied}"
        );
        let port = said("packages", &format!("{host}:22"), "GET");
        assert!(port.starts_with(&format!("denied: {host}:22")), "{port}");
        let other = said("packages", "https://api.example.com", "GET");
        assert_eq!(other, "denied: api.example.com:443 (not listed)");
        assert!(said("none", deb, "GET").starts_with("denied"));
        assert!(said("work", deb, "GET").contains("no profile work"));
        assert!(said("packages", "https://127.0.0.1/", "GET").contains("127.0.0.1"));
    }
}
