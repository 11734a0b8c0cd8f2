//! Errors of HTTP requests that MCP never sees: a small JSON body with a stable code, a sentence
//! and the next step, like tool errors.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderName, HeaderValue, StatusCode};
use serde_json::{Value, json};

use crate::limits::RETRY_AFTER_S;

/// Why an HTTP request was not served.
#[derive(Debug)]
pub struct HttpError {
    status: StatusCode,
    body: Value,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl HttpError {
    /// For a status that differs from the usual one of its code.
    pub fn new(status: StatusCode, code: &str, message: &str, hint: &str) -> Self {
        let body = json!({ "code": code, "message": message, "hint": hint });
        Self::of_body(status, body)
    }

    /// For a body that exists already.
    pub(crate) fn of_body(status: StatusCode, body: Value) -> Self {
        let headers = Vec::new();
        Self {
            status,
            body,
            headers,
        }
    }

    /// Adds a header.
    #[must_use]
    pub fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    /// 503: the server is busy.
    pub(crate) fn busy(message: &str) -> Self {
        let status = StatusCode::SERVICE_UNAVAILABLE;
        Self::new(
            status,
            "unavailable",
            message,
            "wait a moment and try again",
        )
        .with_header(RETRY_AFTER, HeaderValue::from(RETRY_AFTER_S))
    }

    /// 408: the request did not arrive in time.
    pub(crate) fn slow(message: &str) -> Self {
        let hint = "send it again, faster";
        Self::new(
            StatusCode::REQUEST_TIMEOUT,
            "deadline_exceeded",
            message,
            hint,
        )
    }

    /// 413: the body is too long.
    pub(crate) fn too_large(bytes_max: usize) -> Self {
        let message = format!("the body is longer than {bytes_max} bytes");
        let hint = "send large files by PUT /v1/containers/{id}/files/{path}";
        Self::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "resource_exhausted",
            &message,
            hint,
        )
    }

    /// 400: the request is invalid.
    pub(crate) fn invalid(message: &str) -> Self {
        let hint = "correct the request and send it again";
        Self::new(StatusCode::BAD_REQUEST, "invalid_argument", message, hint)
    }

    /// 404: nothing is served at this path.
    pub(crate) fn no_such_path() -> Self {
        let hint = "MCP is at /mcp, legacy SSE at /sse";
        Self::new(
            StatusCode::NOT_FOUND,
            "not_found",
            "nothing is served here",
            hint,
        )
    }

    /// 405: the path is served, but not with this method.
    pub(crate) fn no_such_method() -> Self {
        let status = StatusCode::METHOD_NOT_ALLOWED;
        let message = "this path does not take this method";
        Self::new(status, "invalid_argument", message, "see the Allow header")
    }

    /// The status.
    pub fn status(&self) -> StatusCode {
        self.status
    }
}

impl IntoResponse for HttpError {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::from(self.body.to_string()));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.extend(self.headers);
        response
    }
}
