//! The checks that every HTTP request passes: the guard, the limit on requests, authentication.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use hotcell_domain::TraceContext;
use http::HeaderMap;
use rmcp::ServerHandler;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::body::BodyReader;
use crate::error::HttpError;
use crate::guard::Guard;
use crate::identify::{AdminChallenge, Identify, ResourceMetadata};
use crate::limits::HttpLimits;
use crate::sessions::Sessions;
use crate::sse::{self, MESSAGES_PATH, Sse};
use crate::streamable::{self, Streamable};

/// The default path of Streamable HTTP.
pub const MCP_PATH: &str = "/mcp";

/// Other paths that are served, including everything below them.
pub const RESERVED_PATHS: [&str; 7] = [
    SSE_PATH,
    MESSAGES_PATH,
    "/healthz",
    "/readyz",
    "/metrics",
    "/v1",
    "/.well-known",
];

/// The path of legacy SSE.
const SSE_PATH: &str = "/sse";

/// Paths without authentication, under any host name: they reveal only whether the server is up.
const OPEN_PATHS: [&str; 2] = ["/healthz", "/readyz"];

/// HTTP settings from the configuration.
#[derive(Clone)]
pub struct HttpSettings {
    /// The path of Streamable HTTP.
    pub path: String,
    /// The host names and origins that are allowed.
    pub guard: Guard,
    /// Limits on connections, requests and bodies.
    pub limits: HttpLimits,
    /// Identifies the caller of a request.
    pub identify: Arc<dyn Identify>,
}

/// The HTTP server's routes, and its number of sessions.
pub struct Http {
    /// All routes, behind the checks.
    pub router: Router,
    sessions: Arc<Sessions>,
}

/// The permit of a request that an HTTP connection waits for. The request carries it, so that it is
/// not released while a handler continues whose client is gone.
#[derive(Clone)]
pub(crate) struct HttpRequestPermit {
    _permit: Arc<OwnedSemaphorePermit>,
}

#[derive(Clone)]
struct RequestGate {
    guard: Guard,
    identify: Arc<dyn Identify>,
    requests: Arc<Semaphore>,
}

impl Http {
    /// Serves `handler` as Streamable HTTP and legacy SSE, and `endpoints` beside them. Must be
    /// called in a runtime. When `stop` is cancelled, every stream ends.
    pub fn new<H: ServerHandler + Clone>(
        handler: H,
        endpoints: Router,
        settings: &HttpSettings,
        stop: &CancellationToken,
    ) -> Self {
        let limits = &settings.limits;
        let bodies = BodyReader::new(limits);
        let (streamable, sessions) = Streamable::new(handler.clone(), limits, bodies.clone(), stop);
        let sse = Sse::new(handler, limits, bodies, stop.clone());
        let gate = RequestGate {
            guard: settings.guard.clone(),
            identify: Arc::clone(&settings.identify),
            requests: Arc::new(Semaphore::new(limits.requests_max)),
        };
        let metadata = settings.identify.metadata();
        let router = metadata.map_or_else(Router::new, ResourceMetadata::router);
        let router = router
            .route(
                &settings.path,
                any(streamable::serve::<H>).with_state(streamable),
            )
            .route(SSE_PATH, get(sse::open::<H>).with_state(sse.clone()))
            .route(MESSAGES_PATH, post(sse::message::<H>).with_state(sse))
            .merge(endpoints)
            .fallback(async || HttpError::no_such_path())
            .method_not_allowed_fallback(async || HttpError::no_such_method())
            .layer(from_fn_with_state(gate, pass));
        Self { router, sessions }
    }

    /// The number of open Streamable HTTP sessions.
    pub fn sessions(&self) -> usize {
        self.sessions.count()
    }
}

/// Passes a request on, or refuses it.
async fn pass(State(gate): State<RequestGate>, request: Request, next: Next) -> Response {
    match gate.admit(request).await {
        Ok((request, _permit)) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    }
}

impl RequestGate {
    async fn admit(&self, request: Request) -> Result<(Request, HttpRequestPermit), HttpError> {
        let path = request.uri().path();
        let metadata = self.identify.metadata();
        let is_metadata = metadata.is_some_and(|metadata| metadata.is_at(path));
        let is_open = is_metadata || OPEN_PATHS.contains(&path);
        if is_metadata {
            // No check: the metadata is the same for everyone, including other sites' pages.
        } else if is_open {
            self.guard.check_origin(request.headers())?;
        } else {
            self.guard.check(request.uri(), request.headers())?;
        }
        let permit = Arc::clone(&self.requests).try_acquire_owned();
        let permit = permit.map_err(|_| HttpError::busy("too many requests at once"))?;
        let permit = HttpRequestPermit {
            _permit: Arc::new(permit),
        };
        if is_open {
            return Ok((request, permit));
        }
        let (mut parts, body) = request.into_parts();
        let mut caller = self.identify.identify(&parts).await?;
        caller.trace = trace(&parts.headers);
        parts.extensions.insert(caller);
        if let Some(challenge) = self.identify.admin_challenge() {
            parts.extensions.insert(AdminChallenge(challenge));
        }
        parts.extensions.insert(permit.clone());
        Ok((Request::from_parts(parts, body), permit))
    }
}

/// The trace context of a request. Repeated headers are ignored, as the standard says.
fn trace(headers: &HeaderMap) -> Option<TraceContext> {
    let mut named = headers.get_all("traceparent").iter();
    let first = named.next()?.to_str().ok()?;
    named.next().is_none().then(|| TraceContext::parse(first))?
}
