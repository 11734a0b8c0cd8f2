//! A profile from its settings and those that it includes.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::grant::Grant;
use super::lists::Redirect;
use super::settings::{ProfileName, ProfileSettings, RuleSettings, Tls};
use super::{Access, Entry, PolicyError, Profile, Sources, unknown};
use crate::pattern::Pattern;
use crate::secret::{Secret, SecretName};

/// Profiles that include each other, one in the next.
const INCLUDE_DEPTH_MAX: usize = 8;

/// The port of a rule with a secret that names none: a secret never goes over plain HTTP.
const HTTPS: u16 = 443;
const HTTP: u16 = 80;

type Secrets = BTreeMap<SecretName, Arc<Secret>>;

impl Profile {
    pub(super) fn compile(
        name: &ProfileName,
        sources: &Sources,
        secrets: &Secrets,
    ) -> Result<Self, PolicyError> {
        let own = sources.get(name);
        let mut profile = Self {
            name: name.clone(),
            exact: HashMap::new(),
            below: HashMap::new(),
            denied_exact: HashMap::new(),
            denied_below: HashMap::new(),
            is_open: false,
            open: Arc::new(Grant {
                rule: format!("{name}: open"),
                tls: strictness(own.is_some_and(|own| own.strict)),
                ..Grant::default()
            }),
            asked: Arc::new(Grant {
                rule: format!("{name}: asked"),
                ..own.map(plain_grant).unwrap_or_default()
            }),
            env: own.map(|own| own.env).unwrap_or_default(),
            limits: own.map(|own| own.limits).unwrap_or_default(),
        };
        let mut redirects = Vec::new();
        profile.add(name, sources, secrets, 0, &mut redirects)?;
        for (from, redirect) in redirects {
            profile.follow(&from, redirect)?;
        }
        profile.check()?;
        Ok(profile)
    }

    /// Adds the entries of `from`, then those of what it includes.
    fn add(
        &mut self,
        from: &ProfileName,
        sources: &Sources,
        secrets: &Secrets,
        depth: usize,
        redirects: &mut Vec<(ProfileName, Redirect)>,
    ) -> Result<(), PolicyError> {
        if depth > INCLUDE_DEPTH_MAX {
            return Err(PolicyError::Include(self.name.clone()));
        }
        let place = || format!("include of [egress.{}]", self.name);
        let source = sources
            .get(from)
            .ok_or_else(|| unknown(&place(), from, sources))?;
        self.is_open |= source.open;
        let grant = plain_grant(source);
        for host in source.lists.iter().flat_map(|list| list.hosts()) {
            self.allow(from, Pattern::parse(host)?, grant.clone());
        }
        for pattern in &source.allow {
            self.allow(from, pattern.clone(), grant.clone());
        }
        for rule in &source.rules {
            let (pattern, grant) = compile_rule(from, source, rule, secrets)?;
            self.allow(from, pattern, grant);
        }
        for pattern in &source.deny {
            self.deny(pattern.clone());
        }
        for included in &source.include {
            self.add(included, sources, secrets, depth + 1, redirects)?;
        }
        let ours = source.lists.iter().flat_map(|list| list.redirects());
        redirects.extend(ours.map(|redirect| (from.clone(), *redirect)));
        Ok(())
    }

    /// Allows what an index redirects to. What the profile itself says of that host comes first.
    fn follow(&mut self, from: &ProfileName, redirect: Redirect) -> Result<(), PolicyError> {
        let pattern = Pattern::parse(redirect.host)?;
        if self.is_open || self.entries(&pattern.name).next().is_some() {
            return Ok(());
        }
        let grant = Grant {
            access: Access::parse(redirect.request)?,
            ..Grant::default()
        };
        self.allow(from, pattern, grant);
        Ok(())
    }

    fn allow(&mut self, from: &ProfileName, pattern: Pattern, grant: Grant) {
        let grant = Arc::new(Grant {
            rule: format!("{from}: {pattern}"),
            ..grant
        });
        let entries = if pattern.is_wildcard {
            self.below.entry(pattern.name.as_str().into()).or_default()
        } else {
            self.exact.entry(pattern.name.clone()).or_default()
        };
        entries.push(Entry { pattern, grant });
    }

    fn deny(&mut self, pattern: Pattern) {
        let patterns = if pattern.is_wildcard {
            let name = pattern.name.as_str().into();
            self.denied_below.entry(name).or_default()
        } else {
            self.denied_exact.entry(pattern.name.clone()).or_default()
        };
        patterns.push(pattern);
    }

    /// Finds entries that could match the same request and treat it differently.
    fn check(&self) -> Result<(), PolicyError> {
        let groups = self.exact.values().chain(self.below.values());
        for entry in groups.flatten() {
            let own = if entry.pattern.is_wildcard {
                self.below.get(entry.pattern.name.as_str())
            } else {
                self.exact.get(&entry.pattern.name)
            };
            let above = entry.pattern.name.parents();
            let above = above.filter_map(|name| self.below.get(name));
            for other in own.into_iter().chain(above).flatten() {
                self.check_pair(entry, other)?;
            }
        }
        Ok(())
    }

    fn check_pair(&self, first: &Entry, second: &Entry) -> Result<(), PolicyError> {
        let shares_port = first
            .pattern
            .ports()
            .any(|port| second.pattern.ports().any(|other| other == port));
        if !shares_port || first.grant.treats_like(&second.grant) {
            return Ok(());
        }
        Err(PolicyError::Ambiguous {
            profile: self.name.clone(),
            first: first.pattern.clone(),
            first_treatment: first.grant.treatment(),
            second: second.pattern.clone(),
            second_treatment: second.grant.treatment(),
        })
    }
}

/// What a profile gives to the hosts of `lists` and `allow`.
fn plain_grant(source: &ProfileSettings) -> Grant {
    Grant {
        access: source.access.clone(),
        tls: strictness(source.strict),
        cache: source.cache,
        ..Grant::default()
    }
}

fn strictness(is_strict: bool) -> Tls {
    if is_strict { Tls::Open } else { Tls::Auto }
}

fn compile_rule(
    profile: &ProfileName,
    source: &ProfileSettings,
    rule: &RuleSettings,
    secrets: &Secrets,
) -> Result<(Pattern, Grant), PolicyError> {
    let is_spliced = rule.tls == Tls::Splice;
    let tls = match rule.tls {
        Tls::Auto => strictness(source.strict),
        chosen @ (Tls::Open | Tls::Splice) => chosen,
    };
    let mut pattern = rule.host.clone();
    let secret = match &rule.secret {
        Some(name) => Some(find_secret(profile, name, secrets)?),
        None => None,
    };
    if secret.is_some() {
        check_secret_rule(profile, rule)?;
        pattern.port = pattern.port.or(Some(HTTPS));
    }
    let grant = Grant {
        rule: String::new(),
        access: rule.access.clone(),
        tls,
        // What is fetched with a secret is for those who have it, and not for all containers.
        cache: source.cache && secret.is_none() && !is_spliced,
        secret,
    };
    if is_spliced && grant.needs_requests() {
        return Err(PolicyError::Splice {
            profile: profile.clone(),
            host: rule.host.clone(),
        });
    }
    Ok((pattern, grant))
}

fn find_secret(
    profile: &ProfileName,
    name: &SecretName,
    secrets: &Secrets,
) -> Result<Arc<Secret>, PolicyError> {
    let unknown = || PolicyError::UnknownSecret {
        profile: profile.clone(),
        secret: name.clone(),
    };
    secrets.get(name).cloned().ok_or_else(unknown)
}

fn check_secret_rule(profile: &ProfileName, rule: &RuleSettings) -> Result<(), PolicyError> {
    let problem = if rule.host.is_wildcard {
        "name the exact host, because every name below a wildcard would get it"
    } else if rule.host.port == Some(HTTP) {
        "port 80 is plain HTTP, where everybody on the way can read it"
    } else if rule.tls == Tls::Splice {
        "with tls = \"splice\" it cannot be set"
    } else {
        return Ok(());
    };
    Err(PolicyError::SecretRule {
        profile: profile.clone(),
        host: rule.host.clone(),
        problem,
    })
}
