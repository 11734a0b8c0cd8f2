//! HTTP endpoints beside MCP: health, metrics, and files too large for a message. Files are
//! streamed in both directions: a transfer of any size holds only a few chunks in memory.

mod archive;
mod conditions;
mod error;
mod file;
mod gzip;
mod health;
mod range;
mod target;
mod upload;

use axum::Router;
use axum::routing::get;
use hotcell_service::Service;

use crate::limits::HttpLimits;
use crate::pace::PaceLimits;

/// Clones share it.
#[derive(Clone)]
pub(crate) struct Endpoints {
    service: Service,
    upload_pace: PaceLimits,
}

/// The endpoints, to be served by [`crate::Http`].
pub fn router(service: Service, limits: &HttpLimits) -> Router {
    let endpoints = Endpoints {
        service,
        upload_pace: limits.upload_pace(),
    };
    let archive = get(archive::export).put(archive::import);
    let file = get(file::read).put(file::write);
    Router::new()
        .route("/healthz", get(health::alive))
        .route("/readyz", get(health::ready))
        .route("/metrics", get(health::metrics))
        .route("/v1/containers/{id}/archive", archive)
        .route("/v1/containers/{id}/files/{*path}", file)
        .with_state(endpoints)
}
