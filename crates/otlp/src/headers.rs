//! Headers that a collector wants with every request, usually a key.

use std::fmt;

use reqwest::header::{CONTENT_LENGTH, CONTENT_TYPE, HOST, TRANSFER_ENCODING};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

/// The most headers, and their length as text.
const HEADERS_MAX: usize = 16;
const TEXT_BYTES_MAX: usize = 8 << 10;

/// Headers to send to a collector. Their values are secret and never shown.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Headers(HeaderMap);

/// The text is not a list of headers. It is not repeated, because it may be a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "must be at most 16 headers as name=value, separated by commas, with other characters as %XX, and none that describes the body"
)]
pub struct HeadersError;

impl Headers {
    /// Parses `name=value,name=value`, as OpenTelemetry's `OTEL_EXPORTER_OTLP_HEADERS` has it.
    pub fn parse(text: &str) -> Result<Self, HeadersError> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(HeadersError);
        }
        let mut headers = HeaderMap::new();
        for pair in text.split(',').map(str::trim).filter(|it| !it.is_empty()) {
            let (name, value) = pair.split_once('=').ok_or(HeadersError)?;
            let name: HeaderName = name.trim().parse().map_err(|_| HeadersError)?;
            let is_ours = [CONTENT_TYPE, CONTENT_LENGTH, TRANSFER_ENCODING, HOST].contains(&name);
            let value = decode(value.trim()).ok_or(HeadersError)?;
            let mut value = HeaderValue::from_bytes(&value).map_err(|_| HeadersError)?;
            value.set_sensitive(true);
            if is_ours || headers.insert(name, value).is_some() || headers.len() > HEADERS_MAX {
                return Err(HeadersError);
            }
        }
        Ok(Self(headers))
    }

    pub(crate) fn map(&self) -> HeaderMap {
        self.0.clone()
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.keys()).finish()
    }
}

/// Replaces each `%XX` by its byte.
fn decode(text: &str) -> Option<Vec<u8>> {
    let mut parts = text.split('%');
    let mut decoded = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2)?;
        let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        decoded.push(u8::from_str_radix(digits, 16).ok().filter(|_| is_hex)?);
        decoded.extend_from_slice(rest.as_bytes());
    }
    Some(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str, name: &str) -> Option<String> {
        let headers = Headers::parse(text).ok()?;
        let value = headers.0.get(name)?.to_str().ok()?;
        Some(value.to_owned())
    }

    #[test]
    fn headers_are_pairs_with_escaped_values() {
        let text = "authorization=Bearer%20a%2Cb=, x-tenant=one";
        assert_eq!(value(text, "authorization").as_deref(), Some("Bearer a,b="));
        assert_eq!(value(text, "x-tenant").as_deref(), Some("one"));
        assert_eq!(Headers::parse(""), Ok(Headers::default()));
    }

    #[test]
    fn what_is_no_header_or_describes_the_body_is_refused_without_its_value() {
        let many: Vec<_> = (0..=HEADERS_MAX).map(|it| format!("h{it}=1")).collect();
        let many = many.join(",");
        let long = format!("a={}", "x".repeat(TEXT_BYTES_MAX));
        for text in [
            "secret",
            "=secret",
            "a b=secret",
            "a=se%cret",
            "a=secret%0d%0Ab:c",
            "a=secret%",
            "a=secret%+1",
            "a=secret,A=other",
            "Content-Type=secret",
            "host=secret",
            &many,
            &long,
        ] {
            let refused = Headers::parse(text).expect_err(text);
            assert!(!refused.to_string().contains("secret"), "{refused}");
        }
    }

    #[test]
    fn values_are_not_shown() {
        let headers = Headers::parse("authorization=secret").expect("a header");
        let shown = format!("{headers:?} {:?}", headers.map());
        assert!(shown.contains("authorization") && !shown.contains("secret"));
    }
}
