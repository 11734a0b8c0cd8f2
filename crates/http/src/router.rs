//! What every HTTP request passes: the guard, the bound on requests, and who sends it.

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

/// Where Streamable HTTP is, unless the operator chose another path.
pub const MCP_PATH: &str = "/mcp";

/// What is served beside it, also below these paths.
pub const RESERVED_PATHS: [&str; 7] = [
    SSE_PATH,
    MESSAGES_PATH,
    "/healthz",
    "/readyz",
    "/metrics",
    "/v1",
    "/.well-known",
];

/// Where legacy SSE begins.
const SSE_PATH: &str = "/sse";

/// Paths that anybody may ask, by whatever name: they tell nothing but whether we are there.
const OPEN_PATHS: [&str; 2] = ["/healthz", "/readyz"];

/// What the operator chose of HTTP.
#[derive(Clone)]
pub struct HttpSettings {
    /// Where Streamable HTTP is.
    pub path: String,
    /// By which names we may be reached.
    pub guard: Guard,
    /// How much is taken.
    pub limits: HttpLimits,
    /// Who sends a request.
    pub identify: Arc<dyn Identify>,
}

/// What is served over HTTP, and how busy it is.
pub struct Http {
    /// All of it.
    pub router: Router,
    sessions: Arc<Sessions>,
}

/// The permit of a request that an HTTP connection waits for. The request carries it, so
/// that it is not free while a handler goes on whose client is gone.
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
    /// Serves `handler` by Streamable HTTP and legacy SSE, and beside them `endpoints`. Must
    /// be called in a runtime. When `stop` is cancelled, every stream ends.
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

    /// Sessions of Streamable HTTP that are open.
    pub fn sessions(&self) -> usize {
        self.sessions.count()
    }
}

/// Lets a request in, or answers it.
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
            // It is the same for everybody, pages of others too: nothing is to be guarded.
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

/// The trace that a request belongs to. Two headers are none, as the standard says.
fn trace(headers: &HeaderMap) -> Option<TraceContext> {
    let mut named = headers.get_all("traceparent").iter();
    let first = named.next()?.to_str().ok()?;
    named.next().is_none().then(|| TraceContext::parse(first))?
}
