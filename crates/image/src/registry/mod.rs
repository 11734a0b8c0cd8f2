//! The registry client. A registry is someone else's machine, so every answer is bounded.

mod address;
mod auth;
mod client;
mod credentials;
mod fetch;
mod manifest;
mod resolve;

use std::time::Duration;

use bytes::Bytes;
use hotcell_domain::{Digest, Reference, Source, Transport};
use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderValue, RANGE};
use reqwest::{Client, Response, StatusCode, Url};
use tokio::sync::RwLock;
use tokio::time::timeout;

pub use self::credentials::{Credentials, Login};
pub(crate) use self::manifest::{Descriptor, Manifest, parse_config, parse_manifest};
use crate::ImageError;
use crate::bounds::{BACK_OFF, Bounds, SMALL_ANSWER_STALLS, TRIES_MAX};
use crate::hash::digest_of;

/// Docker Hub's name in references; its registry has another host name.
const HUB: &str = "docker.io";
const HUB_HOST: &str = "registry-1.docker.io";

/// The media types that we accept.
const MANIFESTS: &str = "application/vnd.oci.image.index.v1+json, \
    application/vnd.oci.image.manifest.v1+json, \
    application/vnd.docker.distribution.manifest.list.v2+json, \
    application/vnd.docker.distribution.manifest.v2+json";

/// One repository of a registry.
pub(crate) struct Registry {
    http: Client,
    reference: Reference,
    /// `https://host/`: only its challenges are answered.
    origin: Url,
    login: Option<Login>,
    authorization: RwLock<Option<HeaderValue>>,
    bounds: Bounds,
}

impl Registry {
    /// Finds out whether the registry uses TLS, within what policy allows.
    pub(crate) async fn connect(
        source: &Source,
        login: Option<Login>,
        bounds: Bounds,
    ) -> Result<Self, ImageError> {
        let reference = source.reference.clone();
        let host = match reference.registry() {
            HUB => HUB_HOST.to_owned(),
            other => other.to_owned(),
        };
        let is_plain_allowed = match source.transport {
            Transport::Nowhere => return Err(ImageError::NotHere { reference }),
            Transport::Tls => false,
            Transport::TlsOrPlain => true,
        };
        let has_tls = !is_plain_allowed || has_tls(&host, &bounds).await?;
        let scheme = if has_tls { "https" } else { "http" };
        let origin = Url::parse(&format!("{scheme}://{host}/"));
        let origin = origin.map_err(|_| {
            ImageError::invalid(
                "a registry's name",
                "it is no host name with or without a port",
            )
        })?;
        Ok(Self {
            http: client::following(&bounds, &origin)?,
            origin,
            reference,
            login,
            authorization: RwLock::default(),
            bounds,
        })
    }

    /// Fetches a manifest by digest, or by tag if there is no digest.
    pub(crate) async fn manifest(&self, digest: Option<&Digest>) -> Result<Bytes, ImageError> {
        let wanted = match (digest, self.reference.tag()) {
            (Some(digest), _) => digest.as_str(),
            (None, tag) => tag.unwrap_or("latest"),
        };
        let max = self.bounds.manifest_bytes_max;
        let bytes = self.small("manifests", wanted, "a manifest", max).await?;
        check(digest, &bytes, "a manifest")?;
        Ok(bytes)
    }

    /// Fetches a small blob into memory.
    pub(crate) async fn config(&self, digest: &Digest) -> Result<Bytes, ImageError> {
        let max = self.bounds.config_bytes_max;
        let what = "an image's configuration";
        let bytes = self.small("blobs", digest.as_str(), what, max).await?;
        check(Some(digest), &bytes, what)?;
        Ok(bytes)
    }

    async fn small(
        &self,
        kind: &str,
        name: &str,
        what: &'static str,
        max: u64,
    ) -> Result<Bytes, ImageError> {
        let mut tries = 1;
        loop {
            let answer = async {
                let response = self.get(kind, name, None).await?;
                self.body(response, what, max).await
            };
            match answer.await {
                Err(error) if error.is_passing() && tries < TRIES_MAX => {
                    tracing::debug!(%error, tries, "a registry is asked again");
                    tokio::time::sleep(back_off(tries)).await;
                    tries += 1;
                }
                other => return other,
            }
        }
    }

    /// Sends a request; if the registry asks for credentials, sends it again with them.
    async fn get(
        &self,
        kind: &str,
        name: &str,
        offset: Option<u64>,
    ) -> Result<Response, ImageError> {
        let repository = self.reference.repository();
        let url = format!("{}v2/{repository}/{kind}/{name}", self.origin);
        let known = self.authorization.read().await.clone();
        let response = self.send(&url, known, offset).await?;
        if response.status() != StatusCode::UNAUTHORIZED {
            return self.accepted(response);
        }
        let fresh = self.authorize(&response).await?;
        *self.authorization.write().await = Some(fresh.clone());
        let response = self.send(&url, Some(fresh), offset).await?;
        self.accepted(response)
    }

    async fn send(
        &self,
        url: &str,
        authorization: Option<HeaderValue>,
        offset: Option<u64>,
    ) -> Result<Response, ImageError> {
        let mut request = self.http.get(url).header(ACCEPT, MANIFESTS);
        if let Some(authorization) = authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        if let Some(offset) = offset.filter(|offset| *offset > 0) {
            request = request.header(RANGE, format!("bytes={offset}-"));
        }
        self.within(request.send()).await
    }

    fn accepted(&self, response: Response) -> Result<Response, ImageError> {
        match response.status() {
            StatusCode::OK | StatusCode::PARTIAL_CONTENT | StatusCode::RANGE_NOT_SATISFIABLE => {
                Ok(response)
            }
            StatusCode::NOT_FOUND => Err(ImageError::NotFound {
                reference: self.reference.clone(),
            }),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(self.denied()),
            status => Err(ImageError::Status {
                registry: self.reference.registry().to_owned(),
                status: status.as_u16(),
            }),
        }
    }

    fn denied(&self) -> ImageError {
        ImageError::Denied {
            registry: self.reference.registry().to_owned(),
            repository: self.reference.repository().to_owned(),
        }
    }

    /// Reads a body that must be small.
    async fn body(
        &self,
        mut response: Response,
        what: &'static str,
        max: u64,
    ) -> Result<Bytes, ImageError> {
        let whole = async {
            let mut body = Vec::new();
            while let Some(piece) = self.within(response.chunk()).await? {
                if (body.len() + piece.len()) as u64 > max {
                    return Err(ImageError::TooLarge { what, max });
                }
                body.extend_from_slice(&piece);
            }
            Ok(body.into())
        };
        let limit = self.bounds.stall_timeout * SMALL_ANSWER_STALLS;
        let slow = |_| self.too_slow(&format!("{what} took more than {} s", limit.as_secs_f32()));
        timeout(limit, whole).await.map_err(slow)?
    }

    /// Adds a timeout to a future that waits for the registry.
    async fn within<T>(
        &self,
        answer: impl Future<Output = reqwest::Result<T>>,
    ) -> Result<T, ImageError> {
        let stall = self.bounds.stall_timeout;
        match timeout(stall, answer).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(self.unreachable(&cause(&error))),
            Err(_) => {
                Err(self.unreachable(&format!("it said nothing for {} s", stall.as_secs_f32())))
            }
        }
    }

    fn too_slow(&self, reason: &str) -> ImageError {
        ImageError::TooSlow {
            registry: self.reference.registry().to_owned(),
            reason: reason.to_owned(),
        }
    }

    fn unreachable(&self, reason: &str) -> ImageError {
        ImageError::Unreachable {
            registry: self.reference.registry().to_owned(),
            reason: reason.to_owned(),
        }
    }
}

/// Whether the registry itself uses TLS; redirects are not followed.
async fn has_tls(host: &str, bounds: &Bounds) -> Result<bool, ImageError> {
    let http = client::staying(bounds)?;
    let asked = http.get(format!("https://{host}/v2/")).send();
    let answer = timeout(bounds.connect_timeout, asked).await;
    Ok(matches!(answer, Ok(Ok(_))))
}

/// The innermost cause; the outer ones only repeat the URL.
fn cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

fn check(digest: Option<&Digest>, bytes: &[u8], what: &'static str) -> Result<(), ImageError> {
    let found = digest_of(bytes);
    match digest {
        Some(expected) if *expected != found => Err(ImageError::WrongDigest {
            what,
            expected: expected.clone(),
            found,
        }),
        _ => Ok(()),
    }
}

/// The delay before the next attempt, with jitter.
fn back_off(tries: u32) -> Duration {
    let mut chance = [0_u8; 1];
    // Without randomness there is still a delay.
    let _ = getrandom::fill(&mut chance);
    let jitter = BACK_OFF.mul_f32(f32::from(chance[0]) / 512.0);
    BACK_OFF * 2_u32.pow(tries.saturating_sub(1).min(5)) + jitter
}
