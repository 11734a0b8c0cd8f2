//! The address of a collector.

use reqwest::Url;

/// The longest URL.
const URL_BYTES_MAX: usize = 2048;

/// The path for traces, below the collector's base URL.
const PATH: &str = "v1/traces";

/// The URL of a collector that accepts OTLP over HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint(Url);

/// The text is not a valid collector URL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "must be the URL of an OTLP/HTTP collector, such as http://127.0.0.1:4318, without user, query or fragment"
)]
pub struct EndpointError;

impl Endpoint {
    /// Parses the base URL of a collector, or the URL for traces.
    pub fn parse(text: &str) -> Result<Self, EndpointError> {
        if text.len() > URL_BYTES_MAX {
            return Err(EndpointError);
        }
        let mut url = Url::parse(text).map_err(|_| EndpointError)?;
        let is_plain = url.username().is_empty()
            && url.password().is_none()
            && url.query().is_none()
            && url.fragment().is_none();
        let is_http = matches!(url.scheme(), "http" | "https") && url.has_host();
        if !is_plain || !is_http {
            return Err(EndpointError);
        }
        let base = url.path().trim_end_matches('/');
        if !base.ends_with(&format!("/{PATH}")) {
            let path = format!("{base}/{PATH}");
            url.set_path(&path);
        }
        Ok(Self(url))
    }

    pub(crate) fn url(&self) -> &Url {
        &self.0
    }

    pub(crate) fn is_plain_http(&self) -> bool {
        self.0.scheme() == "http"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traces_go_below_the_address_unless_it_says_so_itself() {
        for (text, url) in [
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
            ("http://127.0.0.1:4318/", "http://127.0.0.1:4318/v1/traces"),
            ("https://otel.example/a", "https://otel.example/a/v1/traces"),
            (
                "https://otel.example/v1/traces",
                "https://otel.example/v1/traces",
            ),
        ] {
            assert_eq!(
                Endpoint::parse(text).map(|it| it.0.to_string()).as_deref(),
                Ok(url)
            );
        }
    }

    #[test]
    fn what_is_no_address_or_holds_a_secret_is_refused() {
        let long = format!("http://x/{}", "a".repeat(URL_BYTES_MAX));
        for text in [
            "",
            "127.0.0.1:4318",
            "grpc://127.0.0.1:4317",
            "http://",
            "http://u:p@otel.example",
            "http://otel.example/?key=secret",
            "http://otel.example/#x",
            &long,
        ] {
            assert_eq!(Endpoint::parse(text), Err(EndpointError), "{text}");
        }
    }
}
