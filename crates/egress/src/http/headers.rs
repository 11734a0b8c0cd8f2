//! What of a message's head concerns one connection only.

use http::uri::Uri;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Version, header};
use http_body::Body;

/// Headers that belong to one connection and are not passed on.
const HOP_BY_HOP: [HeaderName; 7] = [
    header::CONNECTION,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// The transfer coding of clients that read what follows a body.
const TRAILERS: &str = "trailers";

/// Removes what concerns one connection, whatever `Connection` names included.
pub(crate) fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
    headers.remove("keep-alive");
    headers.remove("proxy-connection");
}

fn takes_trailers(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::TE).iter();
    let mut codings = values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','));
    codings.any(|coding| coding.trim().eq_ignore_ascii_case(TRAILERS))
}

/// Brings a request into the form that a host expects, with nothing of our connection in it.
pub(super) fn readdress<B: Body>(
    request: &mut Request<B>,
    scheme: &str,
    authority: &str,
    is_h2: bool,
) {
    let takes_trailers = takes_trailers(request.headers());
    remove_hop_by_hop(request.headers_mut());
    if is_h2 && takes_trailers {
        // HTTP/2 has it from end to end, and gRPC servers refuse requests without it.
        let trailers = HeaderValue::from_static(TRAILERS);
        request.headers_mut().insert(header::TE, trailers);
    }
    let has_length = request.headers().contains_key(header::CONTENT_LENGTH);
    if !is_h2 && !has_length && !request.body().is_end_stream() {
        // Otherwise hyper takes it that a GET has no body.
        let chunked = HeaderValue::from_static("chunked");
        request
            .headers_mut()
            .insert(header::TRANSFER_ENCODING, chunked);
    }
    let path = request.uri().path_and_query().cloned();
    let path = path.map_or_else(|| "/".to_owned(), |path| path.to_string());
    let target = if is_h2 {
        *request.version_mut() = Version::HTTP_2;
        request.headers_mut().remove(header::HOST);
        format!("{scheme}://{authority}{path}")
    } else {
        *request.version_mut() = Version::HTTP_11;
        if let Ok(host) = authority.parse() {
            request.headers_mut().insert(header::HOST, host);
        }
        path
    };
    if let Ok(target) = target.parse::<Uri>() {
        *request.uri_mut() = target;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn te_of(sent: &str, is_h2: bool) -> Option<HeaderValue> {
        let mut request = Request::new(String::new());
        let value = sent.parse().expect("a value");
        request.headers_mut().insert(header::TE, value);
        readdress(&mut request, "https", "host", is_h2);
        request.headers().get(header::TE).cloned()
    }

    #[test]
    fn a_client_of_http2_may_say_that_it_reads_trailers_and_nothing_else() {
        for sent in ["trailers", "gzip, Trailers"] {
            assert_eq!(te_of(sent, true).expect("it is passed on"), "trailers");
            assert_eq!(te_of(sent, false), None);
        }
        assert_eq!(te_of("gzip", true), None);
    }
}
