use super::*;

fn name(text: &str) -> HostName {
    HostName::parse(text).unwrap()
}

fn profile_name(text: &str) -> ProfileName {
    ProfileName::parse(text).unwrap()
}

fn patterns(texts: &[&str]) -> Vec<Pattern> {
    texts
        .iter()
        .map(|text| Pattern::parse(text).unwrap())
        .collect()
}

fn settings(profiles: &[(&str, ProfileSettings)]) -> Settings {
    let profiles = profiles.iter().cloned();
    Settings {
        profiles: profiles
            .map(|(name, profile)| (profile_name(name), profile))
            .collect(),
        ..Settings::default()
    }
}

fn work(settings: &Settings) -> Arc<Profile> {
    let policy = Policy::compile(settings).unwrap();
    Arc::clone(policy.profile(&profile_name("work")).unwrap())
}

fn decided(profile: &Profile, host: &str, port: u16) -> String {
    match profile.decide(&name(host), port) {
        Ok(grant) => format!("{} ({})", grant.rule, grant.access),
        Err(refusal) => refusal.to_string(),
    }
}

#[test]
fn a_profile_allows_what_it_lists_and_nothing_else() {
    let profile = work(&settings(&[(
        "work",
        ProfileSettings {
            allow: patterns(&["docs.example.com", "*.example.org", "db.example.com:5432"]),
            deny: patterns(&["paste.example.org"]),
            ..ProfileSettings::default()
        },
    )]));
    for (host, port, expected) in [
        ("docs.example.com", 443, "work: docs.example.com (full)"),
        ("docs.example.com", 80, "work: docs.example.com (full)"),
        ("docs.example.com", 22, "listed with other ports: 80 443"),
        ("a.docs.example.com", 443, "not listed"),
        ("example.com", 443, "not listed"),
        ("a.example.org", 443, "work: *.example.org (full)"),
        ("a.b.example.org", 443, "work: *.example.org (full)"),
        ("example.org", 443, "not listed"),
        ("notexample.org", 443, "not listed"),
        ("paste.example.org", 443, "denied by paste.example.org"),
        ("db.example.com", 5432, "work: db.example.com:5432 (full)"),
        ("db.example.com", 443, "listed with other ports: 5432"),
    ] {
        assert_eq!(decided(&profile, host, port), expected, "{host}:{port}");
    }
    let ports: Vec<u16> = profile
        .ports(&name("docs.example.com"))
        .into_iter()
        .collect();
    assert_eq!(ports, [80, 443]);
    assert!(profile.ports(&name("paste.example.org")).is_empty());
}

#[test]
fn packages_is_built_in_for_reading_and_can_be_included() {
    let include = vec![ProfileName::packages()];
    let profile = work(&settings(&[(
        "work",
        ProfileSettings {
            include,
            ..ProfileSettings::default()
        },
    )]));
    let host = List::parse("python").unwrap().hosts()[0];
    assert_eq!(
        decided(&profile, host, 443),
        format!("packages: {host} (read)")
    );
    assert_eq!(decided(&profile, "example.com", 443), "not listed");
}

#[test]
fn what_an_index_redirects_to_is_allowed_for_its_path_unless_the_profile_says_otherwise() {
    let redirect = List::parse("go").unwrap().redirects()[0];
    let host = redirect.host.strip_suffix(":443").unwrap();
    let path = redirect
        .request
        .trim_start_matches("GET ")
        .replace("**", "a.zip");
    let including = |allow: &[&str], open| {
        work(&settings(&[(
            "work",
            ProfileSettings {
                include: vec![ProfileName::packages()],
                allow: patterns(allow),
                open,
                ..ProfileSettings::default()
            },
        )]))
    };
    let grant = including(&[], false).decide(&name(host), 443).unwrap();
    assert!(
        grant
            .access
            .allows("GET", &path, Some("Signature=x"), false)
    );
    assert!(!grant.access.allows("GET", "/others/a.zip", None, false));
    assert!(!grant.access.allows("PUT", &path, None, true));
    assert!(including(&[], false).decide(&name(host), 80).is_err());
    let own = including(&[host], false);
    assert_eq!(decided(&own, host, 443), format!("work: {host} (full)"));
    let open = including(&[], true);
    assert_eq!(decided(&open, host, 443), "work: open (full)");
}

#[test]
fn an_open_profile_allows_all_but_what_is_denied() {
    let profile = work(&settings(&[(
        "work",
        ProfileSettings {
            open: true,
            deny: patterns(&["*.example.org"]),
            ..ProfileSettings::default()
        },
    )]));
    assert_eq!(decided(&profile, "example.com", 443), "work: open (full)");
    assert_eq!(
        decided(&profile, "a.example.org", 443),
        "denied by *.example.org"
    );
}

#[test]
fn entries_that_disagree_do_not_load() {
    let rule =
        |host: &str, access: Access| RuleSettings::new(Pattern::parse(host).unwrap(), access);
    let conflict = |first: RuleSettings, second: RuleSettings| {
        let rules = vec![first, second];
        let profile = ProfileSettings {
            rules,
            ..ProfileSettings::default()
        };
        Policy::compile(&settings(&[("work", profile)])).is_err()
    };
    assert!(conflict(
        rule("a.example.com", Access::Read),
        rule("a.example.com", Access::Full)
    ));
    assert!(conflict(
        rule("a.example.com", Access::Read),
        rule("*.example.com", Access::Full)
    ));
    assert!(conflict(
        rule("*.b.example.com", Access::Read),
        rule("*.example.com", Access::Full)
    ));
    assert!(!conflict(
        rule("a.example.com", Access::Read),
        rule("*.example.com", Access::Read)
    ));
    assert!(!conflict(
        rule("a.example.com:8443", Access::Read),
        rule("*.example.com", Access::Full)
    ));
    assert!(!conflict(
        rule("a.example.com", Access::Read),
        rule("b.example.com", Access::Full)
    ));
}

#[test]
fn unknown_and_circular_profiles_do_not_load() {
    let including = |name: &str| ProfileSettings {
        include: vec![profile_name(name)],
        ..ProfileSettings::default()
    };
    let circle = settings(&[("a", including("b")), ("b", including("a"))]);
    assert_eq!(
        Policy::compile(&circle).unwrap_err().to_string(),
        "[egress.a] includes itself, or more than 8 profiles one in the next"
    );
    assert_eq!(
        Policy::compile(&settings(&[("a", including("nope"))]))
            .unwrap_err()
            .to_string(),
        "include of [egress.a] names the profile `nope`, which does not exist; there are none, a, packages"
    );
    let default = Settings {
        default: profile_name("nope"),
        ..Settings::default()
    };
    assert!(Policy::compile(&default).is_err());
    let none = settings(&[("none", ProfileSettings::default())]);
    assert_eq!(Policy::compile(&none).unwrap_err(), PolicyError::None);
}

#[test]
fn callers_may_name_what_is_granted() {
    let policy = Policy::compile(&Settings {
        granted: vec![ProfileName::packages()],
        ..Settings::default()
    })
    .unwrap();
    assert!(policy.is_granted(&ProfileName::none()));
    assert!(policy.is_granted(&ProfileName::packages()));
    assert!(!policy.is_granted(&profile_name("work")));
    assert!(
        !Policy::compile(&Settings::default())
            .unwrap()
            .is_granted(&ProfileName::packages())
    );
}
