//! Protection against DNS rebinding and cross-site requests.
//!
//! A web page can make its visitor's browser send requests to a server on the visitor's own
//! machine, even under the page's own name if that resolves to a loopback address. Such requests
//! carry a foreign `Host` or `Origin` and are refused.
//!
//! `Origin` is checked on every path. `Host` is checked if the server only listens on the loopback
//! interface or its names are configured; otherwise clients use names that the server cannot know.
//! Health probes accept any name.

use std::net::{Ipv4Addr, Ipv6Addr};

use http::header::{HOST, ORIGIN};
use http::uri::Authority;
use http::{HeaderMap, HeaderName, StatusCode, Uri};

use crate::error::HttpError;

/// The names under which this server may be reached.
#[derive(Debug, Clone, Default)]
pub struct Guard {
    names: Vec<Name>,
    takes_any_host: bool,
}

/// A name or an address, with a port if only that port is allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Name {
    host: String,
    port: Option<u16>,
}

/// The name cannot occur in a `Host` header.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a host name, an address, or one of them with a port")]
pub struct GuardError(String);

impl Guard {
    /// Allows loopback names and `names`, each with any port unless it includes one.
    pub fn new<S: AsRef<str>>(names: impl IntoIterator<Item = S>) -> Result<Self, GuardError> {
        let parse = |name: S| {
            let name = name.as_ref();
            Name::parse(name).ok_or_else(|| GuardError(name.chars().take(256).collect()))
        };
        let names = names.into_iter().map(parse).collect::<Result<_, _>>()?;
        Ok(Self {
            names,
            takes_any_host: false,
        })
    }

    /// Allows any `Host`; still checks `Origin`.
    #[must_use]
    pub fn with_any_host(self) -> Self {
        Self {
            takes_any_host: true,
            ..self
        }
    }

    /// Refuses a request with another `Host` or a foreign `Origin`.
    pub(crate) fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), HttpError> {
        let host = single(headers, &HOST)?;
        let host = host.ok_or_else(|| HttpError::invalid("the Host header is missing"))?;
        if !self.takes_any_host {
            self.admit(Name::parse(host), "Host")?;
            if let Some(authority) = uri.authority() {
                self.admit(Name::parse(authority.as_str()), "request target")?;
            }
        }
        self.check_origin(headers)
    }

    /// Refuses requests of foreign web pages, whatever their `Host`. A request without `Origin`
    /// does not come from a page.
    pub(crate) fn check_origin(&self, headers: &HeaderMap) -> Result<(), HttpError> {
        match single(headers, &ORIGIN)? {
            Some(origin) => self.admit(origin_name(origin), "Origin"),
            None => Ok(()),
        }
    }

    fn admit(&self, name: Option<Name>, what: &str) -> Result<(), HttpError> {
        match name {
            Some(name) if name.is_loopback() || self.knows(&name) => Ok(()),
            _ => Err(foreign(what)),
        }
    }

    fn knows(&self, name: &Name) -> bool {
        self.names.iter().any(|known| {
            known.host == name.host && (known.port.is_none() || known.port == name.port)
        })
    }
}

impl Name {
    fn parse(text: &str) -> Option<Self> {
        // Without brackets, an IPv6 address is ambiguous with a name and port.
        if let Ok(address) = text.parse::<Ipv6Addr>() {
            return Some(Self {
                host: address.to_string(),
                port: None,
            });
        }
        let authority = text.parse::<Authority>().ok()?;
        if authority.as_str().contains('@') {
            return None;
        }
        let host = authority.host().trim_end_matches('.').to_ascii_lowercase();
        let bare = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        let host = match bare {
            Some(bare) => bare.parse::<Ipv6Addr>().ok()?.to_string(),
            None => host,
        };
        let has_port = authority.as_str().len() > authority.host().len();
        let port = authority.port_u16();
        let whole = !host.is_empty() && (port.is_some() || !has_port);
        whole.then_some(Self { host, port })
    }

    fn is_loopback(&self) -> bool {
        self.host == "localhost"
            || self
                .host
                .parse()
                .is_ok_and(|address: Ipv4Addr| address.is_loopback())
            || self
                .host
                .parse()
                .is_ok_and(|address: Ipv6Addr| address.is_loopback())
    }
}

/// Host and port of an origin; the scheme's default port if it has none. `None` for an opaque
/// origin.
fn origin_name(origin: &str) -> Option<Name> {
    let (rest, port) = match origin.split_once("://")? {
        ("http", rest) => (rest, 80),
        ("https", rest) => (rest, 443),
        _ => return None,
    };
    let name = Name::parse(rest)?;
    Some(Name {
        port: name.port.or(Some(port)),
        ..name
    })
}

/// The value of a header that must not be repeated.
fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, HttpError> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    match (value.to_str(), values.next()) {
        (Ok(value), None) => Ok(Some(value)),
        _ => Err(foreign(name.as_str())),
    }
}

fn foreign(what: &str) -> HttpError {
    let message = format!("the {what} of this request is not a name of this server");
    let hint =
        "reach it by a loopback name, or have the operator allow this one with --allowed-host";
    HttpError::new(StatusCode::FORBIDDEN, "denied", &message, hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(host: &str, origin: Option<&str>) -> u16 {
        let guard = Guard::new(["box.example", "other.example:8443", "fd00::7"]).unwrap();
        let mut headers = HeaderMap::new();
        headers.insert(HOST, host.parse().unwrap());
        if let Some(origin) = origin {
            headers.insert(ORIGIN, origin.parse().unwrap());
        }
        match guard.check(&Uri::from_static("/mcp"), &headers) {
            Ok(()) => 200,
            Err(refusal) => refusal.status().as_u16(),
        }
    }

    #[test]
    fn loopback_and_configured_names_are_ours() {
        for host in [
            "localhost",
            "LOCALHOST:8000",
            "localhost.",
            "127.0.0.1:1",
            "127.8.9.1",
            "[::1]",
            "[::1]:80",
            "[0:0:0:0:0:0:0:1]:80",
            "box.example",
            "Box.Example:1",
            "other.example:8443",
            "[fd00::7]:8000",
        ] {
            assert_eq!(status(host, None), 200, "{host}");
        }
    }

    #[test]
    fn other_names_are_foreign() {
        for host in [
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "128.0.0.1",
            "other.example",
            "other.example:80",
            "user@localhost",
            "localhost@evil.example",
            "",
            ":80",
            "localhost:",
            "localhost:x",
            "[::2]",
            "0.0.0.0",
            "localhost evil",
        ] {
            assert_eq!(status(host, None), 403, "{host}");
        }
    }

    #[test]
    fn an_origin_must_be_ours_too() {
        for origin in [
            "http://localhost:3000",
            "https://127.0.0.1",
            "https://box.example",
        ] {
            assert_eq!(status("localhost", Some(origin)), 200, "{origin}");
        }
        for origin in [
            "null",
            "",
            "http://evil.example",
            "localhost",
            "file://localhost",
            "https://other.example",
            "http://localhost/path",
            "http://user@localhost",
            "http://localhost, http://evil.example",
        ] {
            assert_eq!(status("localhost", Some(origin)), 403, "{origin}");
        }
    }

    #[test]
    fn any_host_lets_no_foreign_origin_in() {
        let guard = Guard::new(["box.example"]).unwrap().with_any_host();
        let check = |origin: Option<&str>| {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, "192.0.2.7:8000".parse().unwrap());
            if let Some(origin) = origin {
                headers.insert(ORIGIN, origin.parse().unwrap());
            }
            guard.check(&Uri::from_static("/mcp"), &headers).is_ok()
        };
        assert!(check(None) && check(Some("https://box.example")));
        assert!(!check(Some("http://evil.example")) && !check(Some("http://192.0.2.7:8000")));
    }

    #[test]
    fn a_header_sent_twice_is_not_believed() {
        let mut headers = HeaderMap::new();
        headers.append(HOST, "localhost".parse().unwrap());
        headers.append(HOST, "evil.example".parse().unwrap());
        let refusal = Guard::default()
            .check(&Uri::from_static("/"), &headers)
            .unwrap_err();
        assert_eq!(refusal.status(), StatusCode::FORBIDDEN);
    }

    #[test]
    fn a_foreign_request_target_is_refused_whatever_host_says() {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, "localhost".parse().unwrap());
        let uri = Uri::from_static("http://evil.example/mcp");
        let refusal = Guard::default().check(&uri, &headers).unwrap_err();
        assert_eq!(refusal.status(), StatusCode::FORBIDDEN);
    }
}
