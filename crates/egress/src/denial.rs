//! A refusal, told so that a person or a model can do something about it.

use std::fmt;

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::Full;

use crate::policy::{ProfileName, Refusal};

/// Says in an answer that the broker gave it, and not the host that was asked for.
const HEADER: &str = "hotcell-egress";

/// Longest part of a host or path that a message repeats.
const SHOWN_CHARS_MAX: usize = 200;

/// A connection or request that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// The host as the program named it; not always a legal name.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The container's profile.
    pub profile: ProfileName,
    /// Why.
    pub reason: Reason,
}

/// Why something was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The profile does not allow the host or the port.
    Policy(Refusal),
    /// Somebody was asked, and has not answered yet.
    Unanswered,
    /// Somebody was asked, and has said no.
    Declined,
    /// The profile allows the host, but not this request.
    Request {
        /// Its method.
        method: String,
        /// Its path.
        path: String,
    },
    /// The name resolves to private or local addresses only.
    Private,
    /// The connection names another host (TLS server name, HTTP authority) than it was opened for.
    OtherName {
        /// The host that it names.
        named: String,
    },
    /// Port 443 without TLS, or TLS without a server name.
    NoServerName,
    /// The container has received or sent as many bytes as it may.
    Budget(&'static str),
    /// The container has as many connections as it may have.
    Connections(u16),
    /// A proxy was asked for something that is no host name, such as an address.
    Target(String),
    /// Something that passes a proxy in no readable form: CONNECT, TRACE, an upgrade.
    Method(String),
}

impl Denial {
    /// What can be done about it.
    pub fn hint(&self) -> String {
        let host = shown(&self.host);
        match &self.reason {
            Reason::Policy(Refusal::NotListed | Refusal::Port(_)) => {
                let port = if matches!(self.port, 80 | 443) {
                    String::new()
                } else {
                    format!(":{}", self.port)
                };
                format!("ask the operator to add \"{host}{port}\" to `allow` of [egress.{}]", self.profile)
            }
            Reason::Unanswered => {
                format!("try again once the operator has run `hotcell egress allow {host}`")
            }
            Reason::Policy(Refusal::Denied(_)) | Reason::Declined => {
                "the operator has excluded this host; do without it".to_owned()
            }
            Reason::Request { .. } | Reason::Method(_) => {
                format!("ask the operator for a rule of [egress.{}] with this access to {host}", self.profile)
            }
            Reason::Private => {
                "ask the operator to open its range with `private` of [egress], or to fix its address".to_owned()
            }
            Reason::OtherName { .. } | Reason::NoServerName => {
                format!("connect to {host} under its own name")
            }
            Reason::Budget(_) => {
                format!("start a new container, or ask the operator to raise `limits` of [egress.{}]", self.profile)
            }
            Reason::Target(_) => "name the host, such as example.com".to_owned(),
            Reason::Connections(_) => "close connections, then try again".to_owned(),
        }
    }

    /// The answer to an HTTP request. It begins with `#`, so that a shell that is fed with it does
    /// nothing.
    pub(crate) fn page(&self) -> Response<Full<Bytes>> {
        let text = format!("# {self}; {}\n", self.hint());
        let mut response = Response::new(Full::new(Bytes::from(text)));
        *response.status_mut() = StatusCode::FORBIDDEN;
        let headers = response.headers_mut();
        headers.insert(HEADER, HeaderValue::from_static("denied"));
        let plain = HeaderValue::from_static("text/plain; charset=utf-8");
        headers.insert(header::CONTENT_TYPE, plain);
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if self.reason == Reason::Unanswered {
            // The next request is to come after the answer, and to find it.
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        if let Some(phrase) = self.reason_phrase() {
            response.extensions_mut().insert(phrase);
        }
        response
    }

    /// Programs that do not show a body show the status line.
    fn reason_phrase(&self) -> Option<hyper::ext::ReasonPhrase> {
        hyper::ext::ReasonPhrase::try_from(self.to_string().into_bytes()).ok()
    }
}

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (host, port, profile) = (shown(&self.host), self.port, &self.profile);
        write!(
            f,
            "egress to {host}:{port} denied by profile {profile} ({})",
            self.reason
        )
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Policy(refusal) => refusal.fmt(f),
            Self::Unanswered => {
                f.write_str("not listed; the operator was asked and has not answered yet")
            }
            Self::Declined => f.write_str("not listed; the operator was asked and said no"),
            Self::Request { method, path } => {
                write!(f, "{} {} is not allowed", shown(method), shown(path))
            }
            Self::Private => f.write_str("resolves to private or local addresses"),
            Self::OtherName { named } => write!(f, "the connection names {}", shown(named)),
            Self::NoServerName => f.write_str("no TLS server name"),
            Self::Budget(direction) => write!(f, "the budget for bytes {direction} is used up"),
            Self::Connections(max) => write!(f, "{max} connections are open"),
            Self::Target(problem) => f.write_str(problem),
            Self::Method(method) => write!(f, "{} is not possible here", shown(method)),
        }
    }
}

/// Text that a container chose, as it may be shown: short, printable ASCII.
fn shown(text: &str) -> String {
    let printable = |c: char| if c.is_ascii_graphic() { c } else { '?' };
    text.chars().take(SHOWN_CHARS_MAX).map(printable).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_denial_says_what_to_ask_for_and_repeats_nothing_dangerous() {
        let denial = |host: &str, port, reason| Denial {
            host: host.to_owned(),
            port,
            profile: ProfileName::packages(),
            reason,
        };
        let listed = denial("api.example.com", 443, Reason::Policy(Refusal::NotListed));
        assert_eq!(
            format!("{listed}; {}", listed.hint()),
            "egress to api.example.com:443 denied by profile packages (not listed); \
             ask the operator to add \"api.example.com\" to `allow` of [egress.packages]"
        );
        let hostile = denial("a\r\nb\x1b[31m", 22, Reason::Policy(Refusal::NotListed));
        assert!(hostile.to_string().contains("a??b?[31m:22"));
        let page = hostile.page();
        assert_eq!(page.status(), 403);
        assert_eq!(page.headers()[HEADER], "denied");
    }
}
