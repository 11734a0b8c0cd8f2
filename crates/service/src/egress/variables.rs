//! The variables of execs that a container's profile decides. They follow the policy: an exec that
//! begins after a reload has those of the new one.

use hotcell_domain::Env;
use hotcell_egress::{INSIDE_WORD, PROXY, Profile, ProfileEnv};

/// Variables that name the proxy. Not `ALL_PROXY`: some libraries fail to load a SOCKS client that
/// they do not need.
const PROXY_VARIABLES: [&str; 4] = ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"];

/// Servers inside the container are not behind the proxy.
const DIRECT: &str = "localhost,127.0.0.1,::1";
const DIRECT_OF_JAVA: &str = "localhost|127.0.0.1|[::1]";

const JAVA_OPTIONS: &str = "JAVA_TOOL_OPTIONS";

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
    if profile.is_some_and(|profile| profile.env() == ProfileEnv::Proxy) {
        point_at_proxy(&mut env);
    }
    env
}

fn point_at_proxy(env: &mut Env) {
    let java = java_options(env.get(JAVA_OPTIONS));
    // Cannot fail: all names are ours, and all values short.
    let mut set = |name: &str, value: &str| {
        let _ = env.set(name, value);
    };
    let proxy = format!("http://{PROXY}");
    for name in PROXY_VARIABLES {
        set(name, &proxy);
    }
    for name in ["NO_PROXY", "no_proxy"] {
        set(name, DIRECT);
    }
    // Without it Node reads none of the others.
    set("NODE_USE_ENV_PROXY", "1");
    set(JAVA_OPTIONS, &java);
}

/// The JVM reads properties, and keeps those that it had.
fn java_options(own: Option<&str>) -> String {
    let (host, port) = (PROXY.ip(), PROXY.port());
    let own = own.map(|own| format!("{own} ")).unwrap_or_default();
    format!(
        "{own}-Dhttp.proxyHost={host} -Dhttp.proxyPort={port} -Dhttps.proxyHost={host} \
         -Dhttps.proxyPort={port} -Dhttp.nonProxyHosts={DIRECT_OF_JAVA}"
    )
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
        trust.set(JAVA_OPTIONS, "-Dtrust").unwrap();
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
    fn a_profile_that_wants_it_points_programs_at_the_proxy_and_keeps_their_trust() {
        let mut settings = settings("EXAMPLE_TOKEN");
        let work = ProfileName::parse("work").unwrap();
        assert_eq!(variables(&settings, "work").get("HTTPS_PROXY"), None);
        settings.profiles.get_mut(&work).unwrap().env = ProfileEnv::Proxy;
        let env = variables(&settings, "work");
        for name in PROXY_VARIABLES {
            assert_eq!(env.get(name), Some("http://127.77.255.254:3128"), "{name}");
        }
        assert_eq!(env.get("NO_PROXY"), Some("localhost,127.0.0.1,::1"));
        assert_eq!(env.get("NODE_USE_ENV_PROXY"), Some("1"));
        let java = env.get("JAVA_TOOL_OPTIONS").unwrap();
        assert!(java.starts_with("-Dtrust -Dhttp.proxyHost="), "{java}");
        assert_eq!(env.get("SSL_CERT_FILE"), Some("/bundle"));
        assert!(
            env.iter()
                .all(|(name, _)| !name.eq_ignore_ascii_case("all_proxy"))
        );
        // Included entries come without it.
        assert_eq!(variables(&settings, "more").get("HTTPS_PROXY"), None);
    }

    #[test]
    fn a_secret_does_not_hide_the_certificates() {
        let env = variables(&settings("SSL_CERT_FILE"), "work");
        assert_eq!(env.get("SSL_CERT_FILE"), Some("/bundle"));
    }
}
