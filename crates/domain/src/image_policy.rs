//! Which images may be used.
//!
//! The decision depends only on the name, so it is the same for every engine. An admitted image is
//! a [`Source`], which says how its registry may be contacted: an engine or a puller that has one
//! need not ask again.

use crate::reference::split_registry;
use crate::{Admitted, PolicyError, Reference};

/// The operator's rules about images.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImagePolicy {
    /// The allowed registries.
    pub registries: Vec<String>,
    /// Allowed names, as globs that are completed like a reference: `python`, `ghcr.io/acme/**`,
    /// `python:3.*`. If empty, all names of the allowed registries are.
    pub images: Vec<String>,
    /// Allow only references with a digest.
    pub require_digest: bool,
    /// Allow images that were loaded from a file or built on this host, and the names
    /// `localhost/NAME`, which only such images have.
    pub local_images: bool,
    /// Registries that may be contacted without TLS, besides those on this host.
    pub plain_http: Vec<String>,
}

/// An allowed image and where it may come from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Source {
    /// The name of the image.
    pub reference: Reference,
    /// How its registry may be contacted.
    pub transport: Transport,
    /// Whether an image loaded from a file may have this name.
    pub local: bool,
}

/// How a registry may be contacted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// Not at all: only images that are already on this host.
    Nowhere,
    /// Only with TLS.
    Tls,
    /// With TLS if the registry has it, else without.
    TlsOrPlain,
}

impl Default for ImagePolicy {
    /// Docker Hub, GitHub's registry, and images on this host.
    fn default() -> Self {
        Self {
            registries: vec!["docker.io".to_owned(), "ghcr.io".to_owned()],
            images: Vec::new(),
            require_digest: false,
            local_images: true,
            plain_http: Vec::new(),
        }
    }
}

impl ImagePolicy {
    /// Admits or refuses an image; a refusal names its rule.
    pub fn admit(&self, reference: Reference) -> Result<Admitted<Source>, PolicyError> {
        let rule = self.origin(&reference)?;
        if self.require_digest && reference.digest().is_none() {
            return Err(PolicyError::NoDigest { reference });
        }
        if !self.images.is_empty() && !self.images.iter().any(|glob| matches(glob, &reference)) {
            return Err(PolicyError::Image { reference });
        }
        let source = Source {
            transport: self.transport(&reference),
            local: self.local_images,
            reference,
        };
        Ok(Admitted::new(source, rule))
    }

    fn origin(&self, reference: &Reference) -> Result<&'static str, PolicyError> {
        let registry = reference.registry();
        if reference.is_local() {
            return if self.local_images {
                Ok("local_images")
            } else {
                let reference = reference.clone();
                Err(PolicyError::LocalImage { reference })
            };
        }
        if self.registries.iter().any(|allowed| allowed == registry) {
            return Ok("allowed_registries");
        }
        Err(PolicyError::Registry {
            registry: registry.to_owned(),
            allowed: self.registries.join(", "),
        })
    }

    fn transport(&self, reference: &Reference) -> Transport {
        let is_plain = || {
            self.plain_http
                .iter()
                .any(|one| one == reference.registry())
        };
        if reference.is_local() {
            Transport::Nowhere
        } else if reference.is_loopback() || is_plain() {
            Transport::TlsOrPlain
        } else {
            Transport::Tls
        }
    }
}

/// A glob without a version matches every version. If the reference has a digest, its tag is
/// ignored: the digest decides what runs, and the tag may not belong to it.
fn matches(glob: &str, reference: &Reference) -> bool {
    let glob = complete(glob);
    let name = reference.name();
    let version = match (reference.digest(), reference.tag()) {
        (Some(digest), _) => Some(format!("{name}@{digest}")),
        (None, Some(tag)) => Some(format!("{name}:{tag}")),
        (None, None) => None,
    };
    [Some(name), version]
        .into_iter()
        .flatten()
        .any(|text| fast_glob::glob_match(&glob, &text))
}

/// Completes `python` to Docker Hub's name; `*` alone matches everything.
fn complete(glob: &str) -> String {
    if matches!(glob, "*" | "**") {
        return "**".to_owned();
    }
    let first = glob.split('/').next().unwrap_or_default();
    if glob.contains('/') && first.contains(['*', '?', '{']) {
        return glob.to_owned();
    }
    // The colon of a tag, not of a port.
    let (name, tag) = match glob.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => (name, format!(":{tag}")),
        _ => (glob, String::new()),
    };
    let (registry, repository) = split_registry(name);
    format!("{registry}/{repository}{tag}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(policy: &ImagePolicy, text: &str) -> Result<Source, PolicyError> {
        let reference = Reference::parse(text).unwrap();
        policy
            .admit(reference)
            .map(|admitted| admitted.value().clone())
    }

    #[test]
    fn the_two_usual_registries_are_allowed_and_no_other() {
        let policy = ImagePolicy::default();
        assert!(ask(&policy, "python:3.12-slim").is_ok());
        assert!(ask(&policy, "ghcr.io/a/b").is_ok());
        let said = ask(&policy, "quay.io/a/b").unwrap_err();
        assert_eq!(said.rule(), "allowed_registries");
        assert_eq!(
            said.to_string(),
            "registry quay.io is not one of docker.io, ghcr.io (rule `allowed_registries`)"
        );
        // A registry on this host is a registry like any other.
        assert!(ask(&policy, "localhost:5000/x").is_err());
    }

    #[test]
    fn globs_choose_among_names() {
        let globs = |globs: &[&str]| ImagePolicy {
            images: globs.iter().map(|glob| (*glob).to_owned()).collect(),
            ..ImagePolicy::default()
        };
        let said = ask(&globs(&["python", "ghcr.io/acme/**"]), "node").unwrap_err();
        assert_eq!(said.rule(), "allowed_images");
        for (glob, text) in [
            ("python", "python:3.12"),
            ("python:3.*", "python:3.12-slim"),
            ("ghcr.io/acme/**", "ghcr.io/acme/a/b"),
            ("*/acme/*", "ghcr.io/acme/a"),
            ("*", "ann/tool"),
            ("ann/*", "ann/tool"),
        ] {
            assert!(ask(&globs(&[glob]), text).is_ok(), "{glob} {text}");
        }
        for (glob, text) in [
            ("python", "python-evil"),
            ("python:3.*", "python:2.7"),
            ("ghcr.io/acme/*", "ghcr.io/acme/a/b"),
            ("ghcr.io/acme/**", "ghcr.io/acmeevil/a"),
            ("python", "ann/python"),
        ] {
            assert!(ask(&globs(&[glob]), text).is_err(), "{glob} {text}");
        }
    }

    #[test]
    fn a_tag_beside_a_digest_gets_nothing_past_a_glob() {
        let [one, other] = ["a", "b"].map(|digit| format!("sha256:{}", digit.repeat(64)));
        let policy = |glob: &str| ImagePolicy {
            images: vec![glob.to_owned()],
            ..ImagePolicy::default()
        };
        for (glob, text, is_allowed) in [
            ("acme/app:good-*", format!("acme/app:good-1@{one}"), false),
            ("acme/app", format!("acme/app:good-1@{one}"), true),
            (&format!("acme/app@{one}"), format!("acme/app@{one}"), true),
            (
                &format!("acme/app@{one}"),
                format!("acme/app:x@{one}"),
                true,
            ),
            (
                &format!("acme/app@{one}"),
                format!("acme/app@{other}"),
                false,
            ),
        ] {
            let asked = ask(&policy(glob), &text);
            assert_eq!(asked.is_ok(), is_allowed, "{glob} {text}");
        }
    }

    #[test]
    fn a_tag_is_not_enough_where_a_digest_is_required() {
        let policy = ImagePolicy {
            require_digest: true,
            ..ImagePolicy::default()
        };
        assert_eq!(ask(&policy, "python").unwrap_err().rule(), "require_digest");
        let digest = format!("python@sha256:{}", "a".repeat(64));
        assert!(ask(&policy, &digest).is_ok());
    }

    #[test]
    fn local_images_are_allowed_or_not() {
        let mut policy = ImagePolicy::default();
        let source = ask(&policy, "localhost/mine").unwrap();
        assert_eq!((source.transport, source.local), (Transport::Nowhere, true));
        policy.local_images = false;
        assert_eq!(
            ask(&policy, "localhost/mine").unwrap_err().rule(),
            "local_images"
        );
        assert!(!ask(&policy, "python").unwrap().local);
    }

    #[test]
    fn plain_http_is_for_this_host_and_where_the_operator_says_so() {
        let policy = ImagePolicy {
            registries: ["127.0.0.1:5000", "a.lan:80", "b.lan:80"]
                .map(str::to_owned)
                .to_vec(),
            plain_http: vec!["a.lan:80".to_owned()],
            ..ImagePolicy::default()
        };
        let transport = |text| ask(&policy, text).map(|source| source.transport);
        assert_eq!(transport("127.0.0.1:5000/x"), Ok(Transport::TlsOrPlain));
        assert_eq!(transport("a.lan:80/x"), Ok(Transport::TlsOrPlain));
        assert_eq!(transport("b.lan:80/x"), Ok(Transport::Tls));
    }
}
