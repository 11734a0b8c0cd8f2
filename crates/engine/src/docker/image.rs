//! Images that the engine has or pulls.

use std::sync::Arc;
use std::time::Duration;

use bollard::auth::DockerCredentials;
use bollard::models::{CreateImageInfo, ImageInspect};
use bollard::query_parameters::CreateImageOptionsBuilder;
use futures_util::StreamExt as _;
use hotcell_domain::{IMAGE_ENV_BYTES_MAX, IMAGE_VARIABLES_MAX, Reference, Source, Transport};
use hotcell_image::{Credentials, Login};

use super::client::{Client, Fault, FaultKind, optional};
use super::config::Flavor;
use super::create::DockerInner;
use crate::progress::LayerTotals;
use crate::pulls::pull_error;
use crate::{Abandonment, EngineError, ImageFault, Progress, Pull};

/// A pull fails after this long without progress.
const PULL_SILENCE_MAX: Duration = Duration::from_mins(2);

/// Most volumes that an image may declare.
const VOLUMES_MAX: usize = 32;

/// An image that the engine has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LocalImage {
    /// The engine's id of the image, which no tag can change.
    pub(super) id: String,
    /// The registry's digest, if it came from one.
    pub(super) digest: Option<String>,
}

impl LocalImage {
    /// The digest that callers see: the registry's or, for an image built on this host, its id.
    pub(super) fn identity(&self) -> String {
        let is_bare = self.id.len() == 64 && self.id.bytes().all(|byte| byte.is_ascii_hexdigit());
        match &self.digest {
            Some(digest) => digest.clone(),
            // Podman writes the id without its algorithm.
            None if is_bare => format!("sha256:{}", self.id),
            None => self.id.clone(),
        }
    }
}

/// Whether a reference is safe as part of a URL: no component is `..` or empty.
pub(super) fn is_plain(reference: &str) -> bool {
    reference
        .split('/')
        .all(|part| !part.is_empty() && part.chars().any(char::is_alphanumeric))
}

impl DockerInner {
    /// Finds the image, or pulls it if it is missing and that is allowed. Concurrent requests for
    /// one image share a pull. A present image is inspected once, a pulled one twice.
    pub(super) async fn image(
        self: &Arc<Self>,
        source: &Source,
        pull: Pull<'_>,
        abandonment: &Abandonment,
    ) -> Result<LocalImage, EngineError> {
        let reference = source.reference.to_string();
        if !is_plain(&reference) {
            let what = format!("image {reference}");
            return Err(EngineError::Unsupported { what });
        }
        let before = inspect(self.client(), &reference).await?;
        let usable = before.clone().filter(|found| is_usable(source, found));
        if let Some(found) = usable
            && self.is_of_its_registry(source, &reference, &found).await?
        {
            if matches!(pull, Pull::IfMissing(_)) {
                self.pulled().note_use(&found.id);
            }
            return Ok(found);
        }
        match pull {
            Pull::IfMissing(progress) if source.transport != Transport::Nowhere => {
                self.pull(source, before, progress, abandonment).await
            }
            Pull::IfMissing(_) | Pull::Never => Err(EngineError::NoImage { image: reference }),
        }
    }

    async fn pull(
        self: &Arc<Self>,
        source: &Source,
        before: Option<LocalImage>,
        progress: &Progress,
        abandonment: &Abandonment,
    ) -> Result<LocalImage, EngineError> {
        let reference = source.reference.to_string();
        let (inner, asked) = (Arc::clone(self), source.reference.clone());
        let work = |progress| async move { pull(&inner, asked, progress).await };
        let pulls = self.pulls();
        pulls.join(source, progress, abandonment, work).await?;
        let found = inspect(self.client(), &reference).await?;
        if let Some(found) = found.filter(|found| is_usable(source, found)) {
            let is_ours = before.is_none_or(|before| before.id != found.id);
            self.pulled().note(&reference, &found.id, is_ours);
            return Ok(found);
        }
        Err(EngineError::Image {
            image: reference,
            fault: ImageFault::Unusable,
            reason: "it was pulled and is not there".to_owned(),
            source: None,
        })
    }

    /// Whether an image came from the registry in its name, where policy demands that. Docker's
    /// own store records it. Podman and containerd's store also record a digest for images that
    /// were tagged or imported; there the reference must contain the digest, or we must have
    /// pulled the image.
    async fn is_of_its_registry(
        &self,
        source: &Source,
        reference: &str,
        found: &LocalImage,
    ) -> Result<bool, EngineError> {
        if source.local || reference.contains('@') || self.pulled().has(reference, &found.id) {
            return Ok(true);
        }
        let is_docker = self.flavor() == Flavor::Docker;
        Ok(is_docker && !self.daemon_info().await?.has_containerd_store)
    }
}

/// Whether policy allows the image. One without a registry digest was built on this host.
fn is_usable(source: &Source, found: &LocalImage) -> bool {
    source.local || found.digest.is_some()
}

async fn inspect(client: &Client, reference: &str) -> Result<Option<LocalImage>, EngineError> {
    let answer = client.call("look for the image", |api| api.inspect_image(reference));
    let Some(image) = optional(answer.await)? else {
        return Ok(None);
    };
    check_architecture(reference, &image)?;
    check_environment(reference, &image)?;
    check_volumes(reference, &image)?;
    let digest = digest(reference, image.repo_digests.as_deref().unwrap_or_default());
    let id = image.id.unwrap_or_else(|| reference.to_owned());
    Ok(Some(LocalImage { id, digest }))
}

/// Checks the image's architecture: the agent runs inside as PID 1.
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
            fault: ImageFault::Unusable,
            reason: "it is built for another architecture".to_owned(),
            source: None,
        }),
    }
}

/// Bounds the image's environment, which the agent is started with and reports.
fn check_environment(reference: &str, image: &ImageInspect) -> Result<(), EngineError> {
    let env = image.config.as_ref().and_then(|config| config.env.as_ref());
    let env = env.map(Vec::as_slice).unwrap_or_default();
    let bytes: usize = env.iter().map(|variable| variable.len() + 1).sum();
    if env.len() <= IMAGE_VARIABLES_MAX && bytes <= IMAGE_ENV_BYTES_MAX {
        return Ok(());
    }
    Err(EngineError::Image {
        image: reference.to_owned(),
        fault: ImageFault::Unusable,
        reason: format!("its environment is larger than {IMAGE_ENV_BYTES_MAX} bytes"),
        source: None,
    })
}

/// Bounds the volumes that the image declares: the engine creates each one for each container.
fn check_volumes(reference: &str, image: &ImageInspect) -> Result<(), EngineError> {
    let config = image.config.as_ref();
    let volumes = config.and_then(|config| config.volumes.as_ref());
    if volumes.map_or(0, Vec::len) <= VOLUMES_MAX {
        return Ok(());
    }
    Err(EngineError::Image {
        image: reference.to_owned(),
        fault: ImageFault::Unusable,
        reason: format!("it has more than {VOLUMES_MAX} volumes"),
        source: None,
    })
}

async fn pull(
    inner: &DockerInner,
    image: Reference,
    progress: Progress,
) -> Result<(), EngineError> {
    let reference = image.to_string();
    let credentials = inner.credentials().get_or_init(Credentials::of_user);
    let login = credentials.login(image.registry()).await;
    let login = login.map_err(|error| pull_error(&image, error))?;
    let mut totals = LayerTotals::new(image);
    let told = |message: &CreateImageInfo| {
        count(&mut totals, message);
        progress.send(totals.sum());
    };
    ask_for(inner.client(), &reference, login.map(shown), told)
        .await
        .map_err(|fault| unobtainable(&reference, fault))
}

/// The credentials in the engine's format; the engine sends them to the registry.
fn shown(login: Login) -> DockerCredentials {
    match login {
        Login::Password { user, password } => DockerCredentials {
            username: Some(user),
            password: Some(password),
            ..DockerCredentials::default()
        },
        Login::Token(token) => DockerCredentials {
            identitytoken: Some(token),
            ..DockerCredentials::default()
        },
    }
}

async fn ask_for(
    client: &Client,
    reference: &str,
    credentials: Option<DockerCredentials>,
    mut told: impl FnMut(&CreateImageInfo) + Send,
) -> Result<(), Fault> {
    let step = "pull the image";
    let (name, tag) = name_and_tag(reference);
    let options = CreateImageOptionsBuilder::default()
        .from_image(name)
        .tag(tag)
        .build();
    let api = client.api().await?;
    let mut messages = Box::pin(api.create_image(Some(options), None, credentials));
    loop {
        match tokio::time::timeout(PULL_SILENCE_MAX, messages.next()).await {
            Err(_) => return Err(client.cut(step)),
            Ok(None) => return Ok(()),
            Ok(Some(Err(error))) => return Err(client.fault(step, error)),
            Ok(Some(Ok(message))) => told(&message),
        }
    }
}

/// Adds a progress message. Docker reports bytes while it downloads and extracts; Podman reports
/// none.
fn count(totals: &mut LayerTotals, message: &CreateImageInfo) {
    let Some(layer) = message.id.as_deref() else {
        return;
    };
    let detail = message.progress_detail.as_ref();
    let bytes = |value: Option<i64>| u64::try_from(value?).ok();
    let total = detail.and_then(|detail| bytes(detail.total));
    match message.status.as_deref() {
        Some("Downloading") => {
            let done = detail.and_then(|detail| bytes(detail.current));
            totals.set(layer, Some(done.unwrap_or(0)), total);
        }
        Some("Download complete" | "Pull complete" | "Already exists") => {
            totals.set(layer, None, None);
        }
        Some(_) | None => {}
    }
}

fn unobtainable(reference: &str, fault: Fault) -> EngineError {
    let kind = match fault.kind {
        FaultKind::Away | FaultKind::Full => return fault.into(),
        FaultKind::Missing => ImageFault::Unknown,
        FaultKind::Conflict | FaultKind::Refused => sort(&fault.text()),
    };
    let reason = match kind {
        ImageFault::Unknown => "its registry does not have it, or needs credentials to show it",
        ImageFault::Unreachable => "its registry cannot be reached",
        ImageFault::Forbidden => "its registry denies access to it",
        ImageFault::Unusable => "the engine does not have it and could not pull it",
    };
    EngineError::Image {
        image: reference.to_owned(),
        fault: kind,
        reason: reason.to_owned(),
        source: Some(EngineError::from(fault).into()),
    }
}

/// Classifies a failed pull by the engine's message: there are no codes for it.
fn sort(text: &str) -> ImageFault {
    let says = |words: &[&str]| words.iter().any(|word| text.contains(word));
    let unreachable = [
        "dial tcp",
        "connection refused",
        "no such host",
        "network is unreachable",
        "no route to host",
        "failure in name resolution",
        "server misbehaving",
        "timeout",
        "deadline exceeded",
        "EOF",
        "server gave HTTP response",
    ];
    let unknown = [
        "manifest unknown",
        "name unknown",
        "not found",
        "does not exist",
    ];
    let forbidden = ["unauthorized", "denied", "authentication", "no basic auth"];
    match () {
        () if says(&unreachable) => ImageFault::Unreachable,
        () if says(&unknown) => ImageFault::Unknown,
        () if says(&forbidden) => ImageFault::Forbidden,
        () => ImageFault::Unusable,
    }
}

/// Splits a reference into its name and its tag or digest. Without either the tag is `latest`,
/// because an engine would pull all tags.
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

/// The digest under which the engine pulled the image from this reference's repository.
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

/// A repository's full name: short ones are on Docker Hub.
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
    fn failed_pulls_are_sorted_by_the_engines_words() {
        for (text, fault) in [
            (
                "manifest for a:b not found: manifest unknown",
                ImageFault::Unknown,
            ),
            (
                "pull access denied for a, repository does not exist",
                ImageFault::Unknown,
            ),
            (
                "Get \"http://a/v2/\": dial tcp: connect: connection refused",
                ImageFault::Unreachable,
            ),
            (
                "unauthorized: authentication required",
                ImageFault::Forbidden,
            ),
            ("filesystem layer verification failed", ImageFault::Unusable),
        ] {
            assert_eq!(sort(text), fault, "{text}");
        }
    }

    #[test]
    fn what_a_registry_does_not_have_is_told_with_the_engines_words() {
        let client = Client::new(
            Flavor::Docker,
            super::super::config::Host::Unix("/s".into()),
        );
        let message = "pull access denied for a, may require 'docker login'".to_owned();
        let denied = bollard::errors::Error::DockerResponseServerError {
            status_code: 404,
            message,
        };
        let error = unobtainable("a:b", client.fault("pull the image", denied));
        let EngineError::Image {
            fault,
            source: Some(source),
            ..
        } = error
        else {
            panic!("{error:?}");
        };
        assert_eq!(fault, ImageFault::Unknown);
        let cause = std::error::Error::source(&*source).expect("the engine's own");
        assert!(cause.to_string().contains("docker login"), "{cause}");
    }

    #[test]
    fn an_image_that_no_registry_knows_is_told_by_its_id() {
        let found = |id: &str, digest: Option<&str>| LocalImage {
            id: id.to_owned(),
            digest: digest.map(str::to_owned),
        };
        let bare = "a".repeat(64);
        assert_eq!(found("sha256:1", Some("sha256:2")).identity(), "sha256:2");
        assert_eq!(found("sha256:1", None).identity(), "sha256:1");
        assert_eq!(found(&bare, None).identity(), format!("sha256:{bare}"));
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
