//! Images: there already, or pulled by the engine.

use std::time::Duration;

use bollard::models::{CreateImageInfo, ImageInspect};
use bollard::query_parameters::CreateImageOptionsBuilder;
use futures_util::StreamExt as _;

use super::client::{Client, Fault, FaultKind, optional};
use crate::EngineError;

/// How long a pull may be silent.
const PULL_SILENCE_MAX: Duration = Duration::from_mins(2);

/// An image that the engine has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    /// The engine's own name of it, which no tag can change.
    pub(super) id: String,
    /// The registry's digest, if it came from one.
    pub(super) digest: Option<String>,
}

/// What an engine says while it pulls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// Which layer, if it is about one.
    pub layer: Option<String>,
    /// What happens, in the engine's words.
    pub status: String,
    /// Bytes so far, and of how many.
    pub bytes: Option<(u64, u64)>,
}

/// Whether a reference is safe to be a part of an address: no component of it is a step
/// up or empty.
pub(super) fn is_plain(reference: &str) -> bool {
    reference
        .split('/')
        .all(|part| !part.is_empty() && part.chars().any(char::is_alphanumeric))
}

/// Makes sure that the engine has the image.
pub(super) async fn ensure(
    client: &Client,
    reference: &str,
    told: impl FnMut(Progress) + Send,
) -> Result<Found, EngineError> {
    if !is_plain(reference) {
        return Err(EngineError::Unsupported {
            what: format!("image {reference}"),
        });
    }
    if let Some(found) = inspect(client, reference).await? {
        return Ok(found);
    }
    // No registry has images of this host.
    if reference.starts_with("localhost/") {
        return Err(EngineError::NoImage {
            image: reference.to_owned(),
        });
    }
    pull(client, reference, told)
        .await
        .map_err(|fault| unobtainable(reference, fault))?;
    let found = inspect(client, reference).await?;
    found.ok_or_else(|| EngineError::Image {
        image: reference.to_owned(),
        reason: "it was pulled and is not there".to_owned(),
        source: None,
    })
}

async fn inspect(client: &Client, reference: &str) -> Result<Option<Found>, EngineError> {
    let answer = client.call("look for the image", |api| api.inspect_image(reference));
    let Some(image) = optional(answer.await)? else {
        return Ok(None);
    };
    check_architecture(reference, &image)?;
    let digest = digest(reference, image.repo_digests.as_deref().unwrap_or_default());
    let id = image.id.unwrap_or_else(|| reference.to_owned());
    Ok(Some(Found { id, digest }))
}

/// Our agent is for one architecture, and it is PID 1 in there.
fn check_architecture(reference: &str, image: &ImageInspect) -> Result<(), EngineError> {
    let ours = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    match image.architecture.as_deref() {
        None | Some("") => Ok(()),
        Some(theirs) if theirs == ours => Ok(()),
        Some(_) => Err(EngineError::Image {
            image: reference.to_owned(),
            reason: "it is built for another architecture".to_owned(),
            source: None,
        }),
    }
}

async fn pull(
    client: &Client,
    reference: &str,
    mut told: impl FnMut(Progress) + Send,
) -> Result<(), Fault> {
    let step = "pull the image";
    let (name, tag) = name_and_tag(reference);
    let options = CreateImageOptionsBuilder::default()
        .from_image(name)
        .tag(tag)
        .build();
    let api = client.api().await?;
    let mut messages = Box::pin(api.create_image(Some(options), None, None));
    loop {
        match tokio::time::timeout(PULL_SILENCE_MAX, messages.next()).await {
            Err(_) => return Err(client.cut(step)),
            Ok(None) => return Ok(()),
            Ok(Some(Err(error))) => return Err(client.fault(step, error)),
            Ok(Some(Ok(message))) => told(progress(message)),
        }
    }
}

fn progress(message: CreateImageInfo) -> Progress {
    let bytes = message.progress_detail.and_then(|detail| {
        let current = u64::try_from(detail.current?).ok()?;
        Some((current, u64::try_from(detail.total?).ok()?))
    });
    Progress {
        layer: message.id,
        status: message.status.unwrap_or_default(),
        bytes,
    }
}

fn unobtainable(reference: &str, fault: Fault) -> EngineError {
    if fault.kind == FaultKind::Away {
        return fault.into();
    }
    EngineError::Image {
        image: reference.to_owned(),
        reason: "the engine does not have it and could not pull it".to_owned(),
        source: Some(EngineError::from(fault).into()),
    }
}

/// A name without its tag or digest, and that. Without either it is the tag `latest`,
/// because an engine would take a missing one for all of them.
fn name_and_tag(reference: &str) -> (&str, &str) {
    if let Some((name, digest)) = reference.split_once('@') {
        let (name, _) = split_tag(name);
        return (name, digest);
    }
    let (name, tag) = split_tag(reference);
    (name, tag.unwrap_or("latest"))
}

/// A colon before the last slash belongs to a port.
fn split_tag(reference: &str) -> (&str, Option<&str>) {
    match reference.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
        _ => (reference, None),
    }
}

/// The digest under which the engine got the image from this reference's repository.
fn digest(reference: &str, known: &[String]) -> Option<String> {
    if let Some((_, digest)) = reference.split_once('@') {
        return Some(digest.to_owned());
    }
    let (name, _) = split_tag(reference);
    let found = known.iter().filter_map(|known| known.split_once('@'));
    found
        .filter(|(repository, _)| full(repository) == full(name))
        .map(|(_, digest)| digest.to_owned())
        .next()
}

/// A repository's whole name: short ones are Docker's own.
fn full(repository: &str) -> String {
    let is_host = |part: &str| part.contains(['.', ':']) || part == "localhost";
    match repository.split_once('/') {
        Some((first, _)) if is_host(first) => repository.to_owned(),
        Some(_) => format!("docker.io/{repository}"),
        None => format!("docker.io/library/{repository}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_digests_and_ports_are_told_apart() {
        for (reference, name, tag) in [
            ("python", "python", "latest"),
            ("python:3.12-slim", "python", "3.12-slim"),
            ("127.0.0.1:5000/a/b", "127.0.0.1:5000/a/b", "latest"),
            ("127.0.0.1:5000/a/b:c", "127.0.0.1:5000/a/b", "c"),
            ("a/b@sha256:00", "a/b", "sha256:00"),
            ("a/b:c@sha256:00", "a/b", "sha256:00"),
        ] {
            assert_eq!(name_and_tag(reference), (name, tag), "{reference}");
        }
    }

    #[test]
    fn a_digest_is_its_own_repositorys() {
        let known = ["other@sha256:1", "docker.io/library/box@sha256:2"].map(str::to_owned);
        assert_eq!(digest("box:1", &known).as_deref(), Some("sha256:2"));
        assert_eq!(digest("other", &known).as_deref(), Some("sha256:1"));
        assert_eq!(digest("third", &known), None);
        assert_eq!(digest("box@sha256:3", &known).as_deref(), Some("sha256:3"));
    }

    #[test]
    fn a_reference_with_a_step_up_is_not_plain() {
        for bad in ["../containers", "a/../b", "a//b", "/a", "a/", ".", "a/./b"] {
            assert!(!is_plain(bad), "{bad}");
        }
        assert!(is_plain("127.0.0.1:5000/a/b:c@sha256:00"));
    }
}
