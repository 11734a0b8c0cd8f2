//! References of images: registry, repository, tag and digest.
//!
//! Short names are completed as usual: `python:3.12-slim` is `docker.io/library/python:3.12-slim`,
//! and without tag or digest the tag is `latest`.

use std::fmt;

use crate::{Digest, ImageError};

/// The longest accepted reference.
const REFERENCE_BYTES_MAX: usize = 512;

/// The OCI limit on a tag.
const TAG_BYTES_MAX: usize = 128;

/// The OCI limit on a repository name.
const REPOSITORY_BYTES_MAX: usize = 255;

const DEFAULT_REGISTRY: &str = "docker.io";
const DEFAULT_TAG: &str = "latest";

/// The registry part of images that come from no registry: those that were loaded from a file.
const LOCAL_REGISTRY: &str = "localhost";

/// A complete reference of an image.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reference {
    registry: String,
    repository: String,
    tag: Option<String>,
    digest: Option<Digest>,
}

impl Reference {
    /// Parses a reference as users write it.
    pub fn parse(text: &str) -> Result<Self, ImageError> {
        let wrong = ImageError::NotAReference;
        if text.len() > REFERENCE_BYTES_MAX {
            return Err(wrong);
        }
        let (rest, digest) = match text.split_once('@') {
            Some((rest, digest)) => {
                let digest = Digest::parse(digest).map_err(|_| wrong.clone())?;
                (rest, Some(digest))
            }
            None => (text, None),
        };
        let (name, tag) = split_tag(rest);
        let (registry, repository) = split_registry(name);
        let tag = match (tag, &digest) {
            (None, None) => Some(DEFAULT_TAG),
            (tag, _) => tag,
        };
        let legal = is_registry(&registry) && is_repository(&repository) && tag.is_none_or(is_tag);
        if !legal {
            return Err(wrong);
        }
        Ok(Self {
            registry,
            repository,
            tag: tag.map(str::to_owned),
            digest,
        })
    }

    /// Such as `docker.io` or `localhost:5000`.
    pub fn registry(&self) -> &str {
        &self.registry
    }

    /// Such as `library/python`.
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// The publisher may move a tag to other content.
    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    /// Identifies the content for good.
    pub fn digest(&self) -> Option<&Digest> {
        self.digest.as_ref()
    }

    /// `registry/repository`, without tag and digest.
    pub fn name(&self) -> String {
        format!("{}/{}", self.registry, self.repository)
    }

    /// The same name with the digest to which it resolved.
    #[must_use]
    pub fn pinned(&self, digest: Digest) -> Self {
        Self {
            digest: Some(digest),
            ..self.clone()
        }
    }

    /// Whether the image comes from no registry: `localhost/NAME`, the usual name of images built
    /// on this host.
    pub fn is_local(&self) -> bool {
        self.registry == LOCAL_REGISTRY
    }

    /// Whether its registry is on this host.
    pub fn is_loopback(&self) -> bool {
        let host = match self.registry.rsplit_once(':') {
            Some((host, _)) => host,
            None => &self.registry,
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let address: Option<std::net::IpAddr> = host.parse().ok();
        host == LOCAL_REGISTRY || address.is_some_and(|address| address.is_loopback())
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.registry, self.repository)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        if let Some(digest) = &self.digest {
            write!(f, "@{digest}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A colon before the last slash belongs to a port.
fn split_tag(text: &str) -> (&str, Option<&str>) {
    match text.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
        _ => (text, None),
    }
}

/// The first component is a registry if it looks like a host name: with a dot or a port.
pub(crate) fn split_registry(name: &str) -> (String, String) {
    let hub = |repository: &str| {
        let library = if repository.contains('/') {
            ""
        } else {
            "library/"
        };
        (
            DEFAULT_REGISTRY.to_owned(),
            format!("{library}{repository}"),
        )
    };
    match name.split_once('/') {
        Some((first, rest)) if is_host(first) => match first {
            // Other names of Docker Hub.
            "index.docker.io" | "registry-1.docker.io" | DEFAULT_REGISTRY => hub(rest),
            _ => (first.to_owned(), rest.to_owned()),
        },
        _ => hub(name),
    }
}

fn is_host(part: &str) -> bool {
    part.contains(['.', ':', '[']) || part == LOCAL_REGISTRY
}

fn is_registry(text: &str) -> bool {
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, rest)) => {
            if address.parse::<std::net::Ipv6Addr>().is_err() {
                return false;
            }
            ("ipv6", (!rest.is_empty()).then_some(rest))
        }
        None => match text.find(':') {
            Some(colon) => (&text[..colon], Some(&text[colon..])),
            None => (text, None),
        },
    };
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    let labels = host
        .split('.')
        .all(|label| !label.is_empty() && label.bytes().all(legal));
    let port = port.is_none_or(|port| {
        let digits = port.strip_prefix(':').unwrap_or_default();
        digits.bytes().all(|byte| byte.is_ascii_digit()) && digits.parse::<u16>().is_ok()
    });
    labels && port && host.len() <= REPOSITORY_BYTES_MAX
}

fn is_repository(text: &str) -> bool {
    (1..=REPOSITORY_BYTES_MAX).contains(&text.len()) && text.split('/').all(is_component)
}

/// Lower-case letters and digits, with `.`, `_`, `__` or dashes between them.
fn is_component(text: &str) -> bool {
    let letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let between =
        |run: &str| matches!(run, "" | "." | "_" | "__") || run.bytes().all(|byte| byte == b'-');
    text.starts_with(letter) && text.ends_with(letter) && text.split(letter).all(between)
}

fn is_tag(text: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    (1..=TAG_BYTES_MAX).contains(&text.len())
        && text.starts_with(word)
        && text.chars().all(|c| word(c) || c == '.' || c == '-')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn full(text: &str) -> String {
        Reference::parse(text).unwrap().to_string()
    }

    #[test]
    fn names_are_completed_as_people_expect() {
        for (short, long) in [
            ("python:3.12-slim", "docker.io/library/python:3.12-slim"),
            ("python", "docker.io/library/python:latest"),
            ("ann/tool", "docker.io/ann/tool:latest"),
            ("docker.io/python", "docker.io/library/python:latest"),
            ("index.docker.io/ann/tool", "docker.io/ann/tool:latest"),
            ("ghcr.io/a/b/c:1", "ghcr.io/a/b/c:1"),
            ("localhost:5000/x", "localhost:5000/x:latest"),
            ("127.0.0.1:5000/x:y", "127.0.0.1:5000/x:y"),
            ("[::1]:5000/x", "[::1]:5000/x:latest"),
            ("localhost/x", "localhost/x:latest"),
        ] {
            assert_eq!(full(short), long);
        }
    }

    #[test]
    fn a_digest_needs_no_tag_and_may_have_one() {
        let digest = format!("sha256:{}", "a".repeat(64));
        let bare = Reference::parse(&format!("python@{digest}")).unwrap();
        assert_eq!((bare.tag(), bare.digest().is_some()), (None, true));
        let both = format!("docker.io/library/python:3@{digest}");
        assert_eq!(full(&both), both);
    }

    #[test]
    fn what_no_reference_looks_like_is_refused() {
        let long = "a".repeat(600);
        for text in [
            "",
            "a b",
            "a\n",
            "ä",
            "$(x)",
            "A",
            "a//b",
            "../a",
            "a/../b",
            ":tag",
            "a:",
            "a@b",
            "a:-x",
            "/a",
            "a/",
            "-a",
            "a.b:x/c",
            "a.b:99999/c",
            ".../x",
            "[::g]/x",
            "[::1]x/y",
            "a___b",
            &long,
        ] {
            assert!(Reference::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn loopback_is_told_by_the_registry() {
        for text in [
            "localhost:1/x",
            "127.0.0.1:5000/x",
            "127.9.9.9/x",
            "[::1]:5/x",
        ] {
            assert!(Reference::parse(text).unwrap().is_loopback(), "{text}");
        }
        for text in [
            "x",
            "128.0.0.1/x",
            "localhost.evil.com/x",
            "127.0.0.1.nip.io/x",
        ] {
            assert!(!Reference::parse(text).unwrap().is_loopback(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_parse_panic(text in "\\PC*") {
            let _ = Reference::parse(&text);
        }

        #[test]
        fn what_was_completed_stays_as_it_is(text in "[a-z0-9.:/@_-]{1,40}") {
            if let Ok(reference) = Reference::parse(&text) {
                prop_assert_eq!(Reference::parse(&reference.to_string()), Ok(reference));
            }
        }
    }
}
