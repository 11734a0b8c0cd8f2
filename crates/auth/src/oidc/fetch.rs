//! Fetches an issuer's documents, with limits on time and size, and without redirects.

use std::time::Duration;

use reqwest::Client;
use reqwest::redirect::Policy;
use serde::Deserialize;

use super::key::Key;
use super::settings::{IssuerUrl, OidcSettings};

/// The largest document.
const DOCUMENT_BYTES_MAX: usize = 256 << 10;

/// Timeout for connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Timeout for the whole request.
const FETCH_TIMEOUT: Duration = Duration::from_secs(5);

/// Why the keys of an issuer could not be fetched.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// It cannot be reached, or does not answer.
    #[error("could not fetch {what} of the issuer")]
    Http {
        /// The name of the document.
        what: &'static str,
        /// The error of the HTTP client.
        source: reqwest::Error,
    },
    /// The answer is invalid.
    #[error("{what} of the issuer: {reason}")]
    Document {
        /// The name of the document.
        what: &'static str,
        /// Describes the problem.
        reason: String,
    },
}

#[derive(Deserialize)]
struct Configuration {
    issuer: String,
    jwks_uri: String,
}

/// Fetches the documents of one issuer.
pub(super) struct Fetcher {
    client: Client,
}

impl Fetcher {
    pub(super) fn new() -> Result<Self, reqwest::Error> {
        // The first provider in the process is used; any of them would do.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder()
            .user_agent(concat!("hotcell/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(FETCH_TIMEOUT)
            .redirect(Policy::none())
            .build()?;
        Ok(Self { client })
    }

    /// The keys that the issuer currently signs with.
    pub(super) async fn keys(&self, settings: &OidcSettings) -> Result<Vec<Key>, FetchError> {
        let what = "the configuration";
        let url = match &settings.config_url {
            Some(url) => url.clone(),
            None => settings
                .issuer
                .usual_config_url()
                .map_err(|error| wrong(what, &error))?,
        };
        let document = self.document(what, &url).await?;
        let found: Configuration =
            serde_json::from_slice(&document).map_err(|error| wrong(what, &error))?;
        if found.issuer != settings.issuer.as_str() {
            let reason = "it is about another issuer than --oidc-issuer".to_owned();
            return Err(FetchError::Document { what, reason });
        }
        let what = "the keys";
        let url = IssuerUrl::parse(&found.jwks_uri).map_err(|error| wrong(what, &error))?;
        let document = self.document(what, &url).await?;
        let keys = Key::parse_set(&document).map_err(|error| wrong(what, &error))?;
        if keys.is_empty() {
            let reason = "none is for RS256, PS256, ES256, ES384 or EdDSA".to_owned();
            return Err(FetchError::Document { what, reason });
        }
        Ok(keys)
    }

    async fn document(&self, what: &'static str, url: &IssuerUrl) -> Result<Vec<u8>, FetchError> {
        let http = |source| FetchError::Http { what, source };
        let asked = self.client.get(url.url().clone()).send().await;
        let mut answer = asked
            .and_then(reqwest::Response::error_for_status)
            .map_err(http)?;
        if !answer.status().is_success() {
            let reason = format!("it answers {}", answer.status());
            return Err(FetchError::Document { what, reason });
        }
        let mut document = Vec::new();
        while let Some(piece) = answer.chunk().await.map_err(http)? {
            if document.len() + piece.len() > DOCUMENT_BYTES_MAX {
                let reason = format!("longer than {DOCUMENT_BYTES_MAX} bytes");
                return Err(FetchError::Document { what, reason });
            }
            document.extend_from_slice(&piece);
        }
        Ok(document)
    }
}

fn wrong(what: &'static str, error: &dyn std::error::Error) -> FetchError {
    FetchError::Document {
        what,
        reason: error.to_string(),
    }
}
