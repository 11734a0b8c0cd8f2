//! Settings of the issuer.

use reqwest::Url;

/// The scope that every client needs by default.
pub const USE_SCOPE: &str = "hotcell:use";

/// The scope for the admin tools and the metrics.
pub const ADMIN_SCOPE: &str = "hotcell:admin";

/// The longest URL of an issuer.
const URL_BYTES_MAX: usize = 512;

/// The issuer of access tokens, and the requirements on tokens.
#[derive(Debug, Clone)]
pub struct OidcSettings {
    /// The URL that identifies the issuer.
    pub issuer: IssuerUrl,
    /// The URL of its configuration, if not the default.
    pub config_url: Option<IssuerUrl>,
    /// The accepted audiences; a token must have one of these.
    pub audiences: Vec<String>,
    /// The scopes that a token must have, all of them.
    pub required_scopes: Vec<String>,
}

/// The URL of an issuer or of one of its documents: with TLS, unless it is on this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuerUrl {
    /// The original spelling: an issuer is compared byte by byte.
    text: String,
    url: Url,
}

/// The text is not a valid issuer URL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "must be an https URL without user, query or fragment; http is accepted for loopback addresses only"
)]
pub struct IssuerUrlError;

impl IssuerUrl {
    /// Parses a URL from an operator or an issuer.
    pub fn parse(text: &str) -> Result<Self, IssuerUrlError> {
        if text.len() > URL_BYTES_MAX {
            return Err(IssuerUrlError);
        }
        let url = Url::parse(text).map_err(|_| IssuerUrlError)?;
        let is_plain = url.username().is_empty()
            && url.password().is_none()
            && url.query().is_none()
            && url.fragment().is_none();
        let is_safe = match url.scheme() {
            "https" => url.host_str().is_some(),
            "http" => is_loopback(&url),
            _ => false,
        };
        let text = text.to_owned();
        (is_plain && is_safe)
            .then_some(Self { text, url })
            .ok_or(IssuerUrlError)
    }

    /// The original spelling.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub(super) fn url(&self) -> &Url {
        &self.url
    }

    /// The default URL of this issuer's configuration.
    pub(super) fn usual_config_url(&self) -> Result<Self, IssuerUrlError> {
        let issuer = self.text.trim_end_matches('/');
        Self::parse(&format!("{issuer}/.well-known/openid-configuration"))
    }
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']');
    let is_here = |address: std::net::IpAddr| address.to_canonical().is_loopback();
    host == "localhost" || address.parse().is_ok_and(is_here)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_issuer_needs_tls_unless_it_is_here() {
        for text in [
            "https://id.example",
            "https://id.example/realms/a/",
            "http://127.0.0.1:9000",
            "http://localhost:1/x",
            "http://[::1]:2",
        ] {
            assert_eq!(IssuerUrl::parse(text).unwrap().as_str(), text);
        }
        for text in [
            "http://id.example",
            "http://10.0.0.1",
            "http://localhost.evil.example",
            "ftp://id.example",
            "id.example",
            "",
            "https://",
            "https://u:p@id.example",
            "https://id.example/?a=b",
            "https://id.example/#x",
        ] {
            assert_eq!(IssuerUrl::parse(text), Err(IssuerUrlError), "{text}");
        }
    }

    #[test]
    fn the_configuration_is_below_the_issuer() {
        for text in [
            "https://id.example/realms/a",
            "https://id.example/realms/a/",
        ] {
            let url = IssuerUrl::parse(text).unwrap().usual_config_url().unwrap();
            assert_eq!(
                url.as_str(),
                "https://id.example/realms/a/.well-known/openid-configuration"
            );
        }
    }
}
