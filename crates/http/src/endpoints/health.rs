//! Health checks and metrics.

use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use hotcell_domain::Caller;
use hotcell_mcp::ADMIN_HINT;
use hotcell_service::Action;
use http::header::{CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{Extensions, StatusCode};
use serde_json::json;

use super::Endpoints;
use crate::error::HttpError;
use crate::identify::AdminChallenge;

/// The format that Prometheus reads.
const METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Liveness: the server answers.
pub(super) async fn alive() -> Response {
    Json(json!({ "status": "ok" })).into_response()
}

/// Readiness: fails while the server starts or stops.
pub(super) async fn ready(State(endpoints): State<Endpoints>) -> Response {
    if endpoints.service.is_unrecordable() {
        return HttpError::busy("the audit log cannot be written").into_response();
    }
    if endpoints.service.is_ready() {
        Json(json!({ "status": "ready" })).into_response()
    } else {
        HttpError::busy("the server is starting or stopping").into_response()
    }
}

/// The error for callers without admin rights.
fn for_admins(extensions: &Extensions) -> HttpError {
    let message = "the metrics are for the operator";
    let refused = HttpError::new(StatusCode::FORBIDDEN, "denied", message, ADMIN_HINT);
    match extensions.get() {
        Some(AdminChallenge(challenge)) => refused.with_header(WWW_AUTHENTICATE, challenge.clone()),
        None => refused,
    }
}

/// All metrics, for admins.
pub(super) async fn metrics(State(endpoints): State<Endpoints>, request: Request) -> Response {
    let caller = request.extensions().get::<Caller>();
    let Some(caller) = caller.filter(|caller| caller.is_admin) else {
        if let Some(caller) = caller {
            endpoints.service.deny(caller, Action::Metrics).await;
        }
        return for_admins(request.extensions()).into_response();
    };
    let text = endpoints.service.metrics_text(caller);
    ([(CONTENT_TYPE, METRICS_TYPE)], text).into_response()
}
