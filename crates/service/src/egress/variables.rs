//! The variables of execs that a container's profile decides. They follow the policy: an exec that
//! begins after a reload has those of the new one.

use hotcell_domain::Env;
use hotcell_egress::{INSIDE_WORD, Profile};

/// The variables of an exec: those of the profile, together with those that let programs trust the
/// server. The latter win, so that no secret can hide them.
pub(super) fn of_exec(profile: Option<&Profile>, trust: &Env) -> Env {
    let mut env = Env::default();
    for name in profile
        .iter()
        .flat_map(|profile| profile.variables_inside())
    {
        if let Err(error) = env.set(name.as_str(), INSIDE_WORD) {
            tracing::warn!(%name, %error, "a variable of a secret is not set");
        }
    }
    env.extend(trust);
    env
}

#[cfg(test)]
mod tests {
    use hotcell_egress::{
        Access, InsideName, Pattern, Policy, ProfileName, ProfileSettings, RuleSettings,
        SecretHeader, SecretName, SecretSettings, Settings,
    };

    use super::*;

    fn settings(inside: &str) -> Settings {
        let name = SecretName::parse("example").unwrap();
        let secret = SecretSettings {
            from: "env:HOTCELL_TEST_IS_NOT_SET".parse().unwrap(),
            header: SecretHeader::preset("npm").unwrap(),
            inside: Some(InsideName::parse(inside).unwrap()),
        };
        let host = Pattern::parse("api.example.com").unwrap();
        let rule = RuleSettings {
            secret: Some(name.clone()),
            ..RuleSettings::new(host, Access::Full)
        };
        let with_secret = ProfileSettings {
            rules: vec![rule],
            ..ProfileSettings::default()
        };
        let profile = |text| ProfileName::parse(text).unwrap();
        let including = ProfileSettings {
            include: vec![profile("work")],
            ..ProfileSettings::default()
        };
        Settings {
            profiles: [
                (profile("work"), with_secret),
                (profile("more"), including),
                (profile("other"), ProfileSettings::default()),
            ]
            .into(),
            secrets: [(name, secret)].into(),
            ..Settings::default()
        }
    }

    fn variables(settings: &Settings, profile: &str) -> Env {
        let policy = Policy::compile(settings).unwrap();
        let profile = policy.profile(&ProfileName::parse(profile).unwrap());
        let mut trust = Env::default();
        trust.set("SSL_CERT_FILE", "/bundle").unwrap();
        of_exec(profile.map(|profile| &**profile), &trust)
    }

    #[test]
    fn a_profile_with_the_secret_has_its_variable_and_others_have_not() {
        let settings = settings("EXAMPLE_TOKEN");
        for profile in ["work", "more"] {
            let env = variables(&settings, profile);
            assert_eq!(env.get("EXAMPLE_TOKEN"), Some(INSIDE_WORD), "{profile}");
        }
        for profile in ["other", "gone"] {
            let env = variables(&settings, profile);
            assert_eq!(env.get("EXAMPLE_TOKEN"), None, "{profile}");
            assert_eq!(env.get("SSL_CERT_FILE"), Some("/bundle"), "{profile}");
        }
    }

    #[test]
    fn a_secret_does_not_hide_the_certificates() {
        let env = variables(&settings("SSL_CERT_FILE"), "work");
        assert_eq!(env.get("SSL_CERT_FILE"), Some("/bundle"));
    }
}
