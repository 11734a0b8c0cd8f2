use hotcell_domain::ImageRef;
use hotcell_egress::ProfileSettings;

use super::*;

fn profile(name: &str) -> ProfileName {
    ProfileName::parse(name).unwrap()
}

fn principal(name: &str) -> Principal {
    Principal::new(Name::parse(name).unwrap())
}

fn settings(granted: &[&str]) -> EgressSettings {
    let profiles = ["work", "docs", "lab"].map(|name| (profile(name), ProfileSettings::default()));
    EgressSettings {
        egress: Settings {
            granted: granted.iter().map(|name| profile(name)).collect(),
            profiles: profiles.into(),
            ..Settings::default()
        },
        assigned: AssignedEgress::default(),
    }
}

fn egress(granted: &[&str]) -> Egress {
    Egress::new(settings(granted), None).unwrap()
}

fn asked(name: &str) -> EgressChoice {
    EgressChoice::Asked(Name::parse(name).unwrap())
}

/// The profile of a container, or why there is none.
fn admitted(egress: &Egress, choice: &EgressChoice, who: &str, image: &str) -> String {
    let spec = ContainerSpec::new(ImageRef::parse(image).unwrap());
    match egress.admit(choice, &principal(who), &spec) {
        Ok(profile) => profile.map_or("none".to_owned(), |name| name.to_string()),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_profile_that_is_not_granted_is_denied_with_those_that_are() {
    let egress = egress(&[]);
    assert_eq!(
        admitted(&egress, &asked("packages"), "ann", "host"),
        "egress profile packages is not one of none (rule `egress.profiles`)"
    );
    assert_eq!(admitted(&egress, &asked("none"), "ann", "host"), "none");
    let set = EgressChoice::Set(ProfileName::packages());
    assert_eq!(admitted(&egress, &set, "ann", "host"), "packages");
}

#[test]
fn an_argument_comes_before_the_principal_the_image_and_the_server() {
    let mut settings = settings(&["docs"]);
    settings.egress.default = profile("lab");
    let ann = PrincipalEgress {
        default: Some(profile("work")),
        granted: Some(vec![profile("packages")]),
    };
    settings.assigned.principals.insert(principal("ann"), ann);
    let python = ImageRef::parse("python:3.12").unwrap();
    settings.assigned.images.insert(python, profile("docs"));
    let egress = Egress::new(settings, None).unwrap();
    let default = EgressChoice::Default;
    for (choice, who, image, expected) in [
        (&default, "bob", "host", "lab"),
        (&default, "bob", "python:3.12", "docs"),
        (&default, "ann", "python:3.12", "work"),
        (&asked("packages"), "ann", "python:3.12", "packages"),
        (&asked("none"), "ann", "python:3.12", "none"),
        (&asked("docs"), "bob", "host", "docs"),
    ] {
        assert_eq!(
            admitted(&egress, choice, who, image),
            expected,
            "{who} {image}"
        );
    }
    assert_eq!(
        admitted(&egress, &asked("docs"), "ann", "host"),
        "egress profile docs is not one of none, packages, work (rule `egress.profiles`)"
    );
    let names = |who| {
        let profiles = egress.describe(&principal(who)).profiles;
        let names: Vec<String> = profiles.into_iter().map(|profile| profile.name).collect();
        names.join(" ")
    };
    assert_eq!(names("ann"), "none packages work");
    assert_eq!(names("bob"), "docs lab none");
}

#[test]
fn a_profile_of_an_image_may_be_named_for_that_image_only() {
    let mut settings = settings(&[]);
    let python = ImageRef::parse("python:3.12").unwrap();
    settings.assigned.images.insert(python, profile("docs"));
    let egress = Egress::new(settings, None).unwrap();
    assert_eq!(
        admitted(&egress, &asked("docs"), "ann", "python:3.12"),
        "docs"
    );
    assert!(admitted(&egress, &asked("docs"), "ann", "host").contains("is not one of none"));
}

#[test]
fn a_container_with_a_network_has_no_profile() {
    let egress = egress(&["packages"]);
    assert_eq!(
        admitted(&egress, &asked("packages"), "ann", "host"),
        "packages"
    );
    let spec = ContainerSpec {
        network: Network::Full,
        ..ContainerSpec::new(ImageRef::Host)
    };
    let ann = principal("ann");
    assert!(egress.admit(&asked("packages"), &ann, &spec).is_err());
    let set = EgressChoice::Set(ProfileName::packages());
    assert_eq!(egress.admit(&set, &ann, &spec).unwrap(), None);
}

#[test]
fn settings_that_do_not_compile_change_nothing() {
    let egress = egress(&["packages"]);
    let mut unknown = settings(&[]);
    unknown.egress.default = profile("missing");
    assert!(Egress::prepare(unknown).is_err());
    let mut unknown = settings(&[]);
    let image = (ImageRef::Host, profile("missing"));
    unknown.assigned.images.extend([image]);
    assert!(Egress::prepare(unknown).is_err());
    assert_eq!(
        admitted(&egress, &asked("packages"), "ann", "host"),
        "packages"
    );
    egress.replace(Egress::prepare(settings(&[])).unwrap());
    assert!(admitted(&egress, &asked("packages"), "ann", "host").contains("is not one of"));
}
