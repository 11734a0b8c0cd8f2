//! The headers of requests into containers, and of their answers.

use http::header::{
    CONNECTION, HeaderName, LOCATION, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, SET_COOKIE,
    STRICT_TRANSPORT_SECURITY, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderValue};

/// Names that begin so tell who asks, and through whom.
const FORWARDED: [&str; 2] = ["x-forwarded-", "forwarded"];

const HOP_BY_HOP: [HeaderName; 6] = [
    CONNECTION,
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
];

/// Headers of an answer that would change how a browser treats this whole server.
const OF_WHOLE_SERVER: [&str; 6] = [
    "alt-svc",
    "clear-site-data",
    "keep-alive",
    "nel",
    "report-to",
    "service-worker-allowed",
];

/// The path of one port, without a slash at its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Prefix(String);

impl Prefix {
    pub(super) fn new(path: String) -> Self {
        Self(path)
    }

    /// What is below it in a path.
    pub(super) fn below<'a>(&self, path: &'a str) -> &'a str {
        match path.strip_prefix(self.0.as_str()) {
            Some(rest) if rest.starts_with('/') => rest,
            Some(_) | None => "/",
        }
    }

    fn join(&self, path: &str) -> String {
        format!("{}{path}", self.0)
    }
}

/// Whether a request wants to become a WebSocket. Nothing else can be switched to.
pub(super) fn websocket(headers: &HeaderMap) -> bool {
    let is_websocket = headers
        .get(UPGRADE)
        .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"));
    let tokens = headers.get_all(CONNECTION).iter();
    let mut tokens = tokens
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','));
    is_websocket && tokens.any(|token| token.trim().eq_ignore_ascii_case("upgrade"))
}

/// Removes what concerns one connection only, and what others say about who asks.
pub(super) fn remove_hop_by_hop(headers: &mut HeaderMap, keeps_upgrade: bool) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .filter(|name| *name != UPGRADE)
        .collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
    if !keeps_upgrade {
        headers.remove(UPGRADE);
    }
    let all: Vec<HeaderName> = headers.keys().cloned().collect();
    for name in all {
        let is_forwarded = FORWARDED.iter().any(|it| name.as_str().starts_with(it));
        if is_forwarded || name == "keep-alive" || name == "proxy-connection" {
            headers.remove(name);
        }
    }
}

/// Makes an answer concern its own path only.
pub(super) fn clean_answer(headers: &mut HeaderMap, prefix: &Prefix, port: u16, is_upgrade: bool) {
    remove_hop_by_hop(headers, is_upgrade);
    if is_upgrade && headers.contains_key(UPGRADE) {
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    }
    headers.remove(STRICT_TRANSPORT_SECURITY);
    for name in OF_WHOLE_SERVER {
        headers.remove(name);
    }
    let cookies: Vec<HeaderValue> = headers.get_all(SET_COOKIE).iter().cloned().collect();
    headers.remove(SET_COOKIE);
    for cookie in cookies.iter().filter_map(|cookie| confine(cookie, prefix)) {
        headers.append(SET_COOKIE, cookie);
    }
    if let Some(location) = headers.remove(LOCATION)
        && let Some(location) = relocate(&location, prefix, port)
    {
        headers.insert(LOCATION, location);
    }
}

/// A cookie of this host and this path only.
fn confine(cookie: &HeaderValue, prefix: &Prefix) -> Option<HeaderValue> {
    let text = cookie.to_str().ok()?;
    let mut parts = text.split(';').map(str::trim);
    let mut kept = vec![parts.next()?.to_owned()];
    for part in parts {
        let name = part.split('=').next().unwrap_or_default().trim();
        if !name.eq_ignore_ascii_case("domain") && !name.eq_ignore_ascii_case("path") {
            kept.push(part.to_owned());
        }
    }
    kept.push(format!("Path={}", prefix.join("/")));
    HeaderValue::from_str(&kept.join("; ")).ok()
}

/// A redirection that stays with this port. One to another host is left as it is.
fn relocate(location: &HeaderValue, prefix: &Prefix, port: u16) -> Option<HeaderValue> {
    let text = location.to_str().ok()?;
    let local = ["localhost", "127.0.0.1"].map(|host| format!("http://{host}:{port}"));
    let inside = local.iter().find_map(|origin| text.strip_prefix(origin));
    let inside = inside.unwrap_or(text);
    if inside.starts_with('/') && !inside.starts_with("//") {
        return HeaderValue::from_str(&prefix.join(inside)).ok();
    }
    Some(location.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        clean_answer(&mut headers, &Prefix::new("/p/80".into()), 80, false);
        headers
    }

    #[test]
    fn an_answer_concerns_its_own_path_only() {
        let headers = answer(&[
            ("set-cookie", "a=1; Path=/; Domain=example.com; HttpOnly"),
            ("set-cookie", "b=2"),
            ("strict-transport-security", "max-age=1"),
            ("clear-site-data", "\"*\""),
            ("connection", "x-hop"),
            ("x-hop", "1"),
            ("etag", "\"1\""),
        ]);
        let cookies: Vec<_> = headers.get_all(SET_COOKIE).iter().collect();
        assert_eq!(cookies, ["a=1; HttpOnly; Path=/p/80/", "b=2; Path=/p/80/"]);
        assert_eq!(headers.len(), 3, "{headers:?}");
        assert_eq!(headers["etag"], "\"1\"");
    }

    #[test]
    fn a_redirection_stays_with_its_port() {
        for (inside, outside) in [
            ("/login", "/p/80/login"),
            ("http://localhost:80/a?b", "/p/80/a?b"),
            ("next", "next"),
            ("https://example.com/", "https://example.com/"),
            ("//example.com/", "//example.com/"),
        ] {
            assert_eq!(answer(&[("location", inside)])["location"], outside);
        }
    }

    #[test]
    fn only_a_websocket_is_an_upgrade() {
        let mut headers = HeaderMap::new();
        headers.insert(UPGRADE, HeaderValue::from_static("WebSocket"));
        assert!(!websocket(&headers));
        headers.insert(CONNECTION, HeaderValue::from_static("keep-alive, Upgrade"));
        assert!(websocket(&headers));
        headers.insert(UPGRADE, HeaderValue::from_static("h2c"));
        assert!(!websocket(&headers));
    }
}
