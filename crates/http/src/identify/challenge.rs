//! The `WWW-Authenticate` challenge for clients that were refused: RFC 6750, and RFC 9728 if
//! clients can log in.

use hotcell_auth::{ADMIN_SCOPE, Failure};
use http::header::{RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};

use super::ResourceMetadata;
use super::failures::RETRY_AFTER_S;
use crate::error::HttpError;

/// The challenge of a server.
#[derive(Debug, Clone)]
pub struct Challenge {
    /// The beginning of the header value.
    start: String,
    /// The scopes that a client should request.
    scopes: Option<String>,
    /// The next step for a person or a model.
    hint: &'static str,
    admin_scope: Option<&'static str>,
}

impl Challenge {
    /// For a server with tokens that an operator hands out.
    pub fn of_tokens() -> Self {
        Self {
            start: "Bearer realm=\"hotcell\"".to_owned(),
            scopes: None,
            hint: "send a valid token as `Authorization: Bearer TOKEN`; the operator makes one with `hotcell token add NAME`",
            admin_scope: None,
        }
    }

    /// For a server whose clients log in with an issuer. `scopes` are those that every client
    /// needs; the metadata says where to log in.
    pub fn of_issuer(metadata: &ResourceMetadata, scopes: &str) -> Self {
        Self {
            start: format!(
                "Bearer realm=\"hotcell\", resource_metadata=\"{}\"",
                metadata.url()
            ),
            scopes: Some(scopes.to_owned()),
            hint: "log in with the issuer that resource_metadata names, and send its access token as `Authorization: Bearer TOKEN`",
            admin_scope: Some(ADMIN_SCOPE),
        }
    }

    /// The answer to a failed attempt. It does not say why a token is invalid.
    pub(super) fn answer(&self, failure: Failure) -> HttpError {
        let (status, error, message) = match failure {
            Failure::Missing => (
                StatusCode::UNAUTHORIZED,
                None,
                "this server needs a bearer token",
            ),
            Failure::Malformed | Failure::TooLong => {
                let message = "the Authorization header is not one bearer token";
                (StatusCode::UNAUTHORIZED, Some("invalid_request"), message)
            }
            Failure::InQuery => {
                let message = "a token must be in the Authorization header, not in the URL";
                (StatusCode::UNAUTHORIZED, Some("invalid_request"), message)
            }
            Failure::Unknown
            | Failure::Expired
            | Failure::NotYetValid
            | Failure::Algorithm
            | Failure::UnknownKey
            | Failure::Signature
            | Failure::Issuer
            | Failure::Audience => {
                let message = "the token is not valid";
                (StatusCode::UNAUTHORIZED, Some("invalid_token"), message)
            }
            Failure::Scope => {
                let message = "the token lacks a scope that this server needs";
                (StatusCode::FORBIDDEN, Some("insufficient_scope"), message)
            }
            Failure::Unavailable => {
                return HttpError::busy("the issuer of tokens cannot be reached");
            }
        };
        HttpError::new(status, "unauthenticated", message, self.hint)
            .with_header(WWW_AUTHENTICATE, self.header(error, self.scopes.as_deref()))
    }

    /// The answer to an address that failed too often.
    pub(super) fn slow_down(&self) -> HttpError {
        let message = "too many invalid tokens from this address";
        let status = StatusCode::TOO_MANY_REQUESTS;
        HttpError::new(status, "unauthenticated", message, self.hint)
            .with_header(RETRY_AFTER, HeaderValue::from(RETRY_AFTER_S))
    }

    /// The challenge on endpoints for admins only.
    pub(super) fn for_admins(&self) -> HeaderValue {
        self.header(Some("insufficient_scope"), self.admin_scope)
    }

    fn header(&self, error: Option<&str>, scope: Option<&str>) -> HeaderValue {
        let field = |name: &str, value: Option<&str>| {
            value.map_or_else(String::new, |value| format!(", {name}=\"{value}\""))
        };
        let (error, scope) = (field("error", error), field("scope", scope));
        let text = format!("{}{error}{scope}", self.start);
        HeaderValue::from_str(&text).expect("all its parts are printable")
    }
}

#[cfg(test)]
mod tests {
    use axum::response::IntoResponse;

    use super::*;

    fn challenged(failure: Failure) -> (u16, String) {
        let response = Challenge::of_tokens().answer(failure).into_response();
        let header = response
            .headers()
            .get(WWW_AUTHENTICATE)
            .expect("a challenge");
        (
            response.status().as_u16(),
            header.to_str().expect("text").to_owned(),
        )
    }

    #[test]
    fn a_request_without_a_token_hears_no_error_code() {
        let expected = (401, r#"Bearer realm="hotcell""#.to_owned());
        assert_eq!(challenged(Failure::Missing), expected);
    }

    #[test]
    fn whether_a_token_ever_existed_is_not_told() {
        let unknown = challenged(Failure::Unknown);
        assert_eq!(unknown, challenged(Failure::Expired));
        assert_eq!(
            unknown.1,
            r#"Bearer realm="hotcell", error="invalid_token""#
        );
    }
}
