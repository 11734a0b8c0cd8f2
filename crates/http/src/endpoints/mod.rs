//! HTTP endpoints beside MCP: health, metrics, files too large for a message, and ports of
//! containers. Files are streamed in both directions: a transfer of any size holds only a few
//! chunks in memory.

mod archive;
mod conditions;
mod error;
mod file;
mod gzip;
mod health;
mod port;
mod port_headers;
mod range;
mod target;
mod upload;

use axum::Router;
use axum::routing::{MethodRouter, any, get};
use hotcell_service::Service;

use crate::limits::HttpLimits;
use crate::pace::PaceLimits;

/// Shared state of the endpoints.
#[derive(Clone)]
pub(crate) struct Endpoints {
    service: Service,
    upload_pace: PaceLimits,
}

/// The routes below a container's path.
fn container_routes() -> [(&'static str, MethodRouter<Endpoints>); 4] {
    [
        (
            "/v1/containers/{id}/archive",
            get(archive::export).put(archive::import),
        ),
        (
            "/v1/containers/{id}/files/{*path}",
            get(file::read).put(file::write),
        ),
        ("/v1/containers/{id}/ports/{port}/", any(port::forward)),
        (
            "/v1/containers/{id}/ports/{port}/{*path}",
            any(port::forward),
        ),
    ]
}

/// The paths that name a container, with `{id}` as a placeholder.
pub fn container_paths() -> Vec<&'static str> {
    container_routes().iter().map(|(path, _)| *path).collect()
}

/// The endpoints, to be served by [`crate::Http`].
pub fn router(service: Service, limits: &HttpLimits) -> Router {
    let endpoints = Endpoints {
        service,
        upload_pace: limits.upload_pace(),
    };
    let mut router = Router::new()
        .route("/healthz", get(health::alive))
        .route("/readyz", get(health::ready))
        .route("/metrics", get(health::metrics));
    for (path, route) in container_routes() {
        router = router.route(path, route);
    }
    router.with_state(endpoints)
}
