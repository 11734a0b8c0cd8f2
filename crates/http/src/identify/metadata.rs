//! Protected resource metadata (RFC 9728), which tells clients where to log in.
//!
//! It is built once, from the server's configured URL. The `Host` header of a request is ignored: a
//! client that trusted a forged one would request tokens for another server.

use axum::Router;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hotcell_auth::ADMIN_SCOPE;
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    CONTENT_TYPE,
};
use http::{HeaderName, StatusCode};
use serde_json::json;

/// The path of the server's metadata; that of one resource has its path appended.
const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

/// Any web page may read the metadata: it is the same for everyone.
const FOR_EVERY_PAGE: (HeaderName, &str) = (ACCESS_CONTROL_ALLOW_ORIGIN, "*");

/// The metadata of this server.
#[derive(Debug, Clone)]
pub struct ResourceMetadata {
    base: String,
    path: String,
    of_server: String,
    of_path: String,
}

impl ResourceMetadata {
    /// For the server at `base`, such as `https://cells.example`, with MCP at `path`.
    pub fn new(base: &str, path: &str, issuer: &str, scopes: &[String]) -> Self {
        let document = |resource: &str| {
            let mut scopes = scopes.to_vec();
            scopes.push(ADMIN_SCOPE.to_owned());
            json!({
                "resource": resource,
                "resource_name": "Hotcell",
                "authorization_servers": [issuer],
                "scopes_supported": scopes,
                "bearer_methods_supported": ["header"],
            })
            .to_string()
        };
        Self {
            of_server: document(base),
            of_path: document(&format!("{base}{path}")),
            base: base.to_owned(),
            path: path.to_owned(),
        }
    }

    /// The URL of the metadata for MCP.
    pub(super) fn url(&self) -> String {
        // Behind a proxy's prefix, the well-known path comes before the prefix (RFC 9728, section
        // 3.1).
        let (origin, prefix) = split(&self.base);
        format!("{origin}{WELL_KNOWN}{prefix}{}", self.path)
    }

    /// Whether the metadata is served at this path.
    pub(crate) fn is_at(&self, path: &str) -> bool {
        path.strip_prefix(WELL_KNOWN)
            .is_some_and(|rest| self.paths().iter().any(|known| known == rest))
    }

    pub(crate) fn router(&self) -> Router {
        let mut router = Router::new();
        for path in self.paths() {
            let of_server = !path.ends_with(&self.path);
            let document = if of_server {
                &self.of_server
            } else {
                &self.of_path
            };
            let document = document.clone();
            let route = get(async move || answer(document)).options(preflight);
            router = router.route(&format!("{WELL_KNOWN}{path}"), route);
        }
        router
    }

    /// The paths with and without the prefix, which a proxy may strip.
    fn paths(&self) -> Vec<String> {
        let prefix = split(&self.base).1;
        let mut paths = vec![String::new(), self.path.clone()];
        if !prefix.is_empty() {
            paths.extend([prefix.to_owned(), format!("{prefix}{}", self.path)]);
        }
        paths
    }
}

/// Splits a URL into scheme with authority, and path.
fn split(base: &str) -> (&str, &str) {
    let authority = base.find("://").map_or(0, |at| at + 3);
    let path = base[authority..].find('/');
    base.split_at(path.map_or(base.len(), |at| authority + at))
}

fn answer(document: String) -> Response {
    (
        [FOR_EVERY_PAGE, (CONTENT_TYPE, "application/json")],
        document,
    )
        .into_response()
}

async fn preflight() -> Response {
    let headers = [
        FOR_EVERY_PAGE,
        (ACCESS_CONTROL_ALLOW_METHODS, "GET"),
        (ACCESS_CONTROL_ALLOW_HEADERS, "MCP-Protocol-Version"),
    ];
    (StatusCode::NO_CONTENT, headers).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(base: &str) -> ResourceMetadata {
        ResourceMetadata::new(
            base,
            "/mcp",
            "https://id.example",
            &["hotcell:use".to_owned()],
        )
    }

    #[test]
    fn the_well_known_path_comes_before_a_proxys_prefix() {
        let well_known = "https://cells.example/.well-known/oauth-protected-resource";
        assert_eq!(
            metadata("https://cells.example").url(),
            format!("{well_known}/mcp")
        );
        assert_eq!(
            metadata("https://cells.example/a/b").url(),
            format!("{well_known}/a/b/mcp")
        );
    }

    #[test]
    fn only_its_own_paths_are_open() {
        let metadata = metadata("https://cells.example/a");
        for path in ["", "/mcp", "/a", "/a/mcp"] {
            assert!(metadata.is_at(&format!("{WELL_KNOWN}{path}")), "{path}");
        }
        for path in [
            "/mcp",
            "/",
            "/.well-known/oauth-protected-resource/v1",
            "/.well-known/oauth-protected-resourcex",
        ] {
            assert!(!metadata.is_at(path), "{path}");
        }
    }
}
