//! What the operator says about the issuer.

use reqwest::Url;

/// The scope that everybody needs unless the operator names others.
pub const USE_SCOPE: &str = "hotcell:use";

/// The scope of the admin tools and the metrics.
pub const ADMIN_SCOPE: &str = "hotcell:admin";

/// The longest URL of an issuer.
const URL_BYTES_MAX: usize = 512;

/// Where access tokens come from, and which ones are for us.
#[derive(Debug, Clone)]
pub struct OidcSettings {
    /// Who signs them.
    pub issuer: IssuerUrl,
    /// Where its configuration is, if not at the usual place.
    pub config_url: Option<IssuerUrl>,
    /// A token must be for one of these.
    pub audiences: Vec<String>,
    /// A token must have all of these scopes.
    pub required_scopes: Vec<String>,
}

/// The address of an issuer or of one of its documents: with TLS, unless it is on this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuerUrl {
    /// As it was written: an issuer's name is compared byte by byte.
    text: String,
    url: Url,
}

/// A text that cannot be such an address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "must be an https URL without user, query or fragment; http is accepted for loopback addresses only"
)]
pub struct IssuerUrlError;

impl IssuerUrl {
    /// Reads an address that an operator or an issuer wrote.
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

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub(super) fn url(&self) -> &Url {
        &self.url
    }

    /// Where the configuration of this issuer usually is.
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
