//! Answers to requests, from what is kept or comes.

use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use tokio::sync::watch;

use super::Writing;
use super::body::{FileBody, Progress};
use super::store::Found;
use crate::http::{Body, BoxError, Http1, remove_hop_by_hop};

/// Tells where an answer comes from.
const HEADER: &str = "hotcell-cache";

/// An answer from a whole download: all of it, a part, or that nothing has changed.
pub(super) fn whole(found: &Found, request: &Request<Incoming>) -> Response<Body> {
    let (entry, asked) = (&found.entry, request.headers());
    let mut response = Response::new(empty());
    *response.headers_mut() = entry.headers.clone();
    let headers = response.headers_mut();
    headers.insert(HEADER, HeaderValue::from_static("hit"));
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    if is_unchanged(&entry.headers, asked) {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        return response;
    }
    let range = match wanted(asked, &entry.headers, entry.bytes) {
        Wanted::All => 0..entry.bytes,
        Wanted::Part(range) => {
            let last = range.end.saturating_sub(1);
            let shown = format!("bytes {}-{last}/{}", range.start, entry.bytes);
            insert(headers, header::CONTENT_RANGE, &shown);
            *response.status_mut() = StatusCode::PARTIAL_CONTENT;
            range
        }
        Wanted::Nothing => {
            let shown = format!("bytes */{}", entry.bytes);
            insert(headers, header::CONTENT_RANGE, &shown);
            *response.status_mut() = StatusCode::RANGE_NOT_SATISFIABLE;
            0..0
        }
    };
    let length = range.end - range.start;
    let headers = response.headers_mut();
    insert(headers, header::CONTENT_LENGTH, &length.to_string());
    if request.method() == Method::HEAD {
        return response;
    }
    response.map(|_| FileBody::part(Arc::clone(&found.file), range).boxed())
}

/// An answer that is being written.
pub(super) fn growing(writing: &Writing, progress: watch::Receiver<Progress>) -> Response<Body> {
    let bytes = writing.head.bytes;
    let body = FileBody::growing(Arc::clone(&writing.file), progress, bytes);
    let mut response = Response::new(body.boxed());
    *response.headers_mut() = writing.head.headers.clone();
    let headers = response.headers_mut();
    headers.insert(HEADER, HeaderValue::from_static("miss"));
    if let Some(bytes) = bytes {
        insert(headers, header::CONTENT_LENGTH, &bytes.to_string());
    }
    response
}

/// An answer that is not kept. Its connection stays until it has been read.
pub(super) fn passed(response: Response<Incoming>, http1: Http1) -> Response<Body> {
    let (mut head, body) = response.into_parts();
    remove_hop_by_hop(&mut head.headers);
    let body = Held {
        body,
        _http1: http1,
    };
    Response::from_parts(head, body.boxed())
}

/// A body with the connection that it comes from.
struct Held {
    body: Incoming,
    _http1: Http1,
}

impl HttpBody for Held {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        frame.map(|frame| frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

fn empty() -> Body {
    Empty::new().map_err(|never| match never {}).boxed()
}

fn insert(headers: &mut HeaderMap, name: header::HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

/// Whether the container has what we have.
fn is_unchanged(own: &HeaderMap, asked: &HeaderMap) -> bool {
    let text = |headers: &HeaderMap, name: header::HeaderName| {
        let value = headers.get(name)?.to_str().ok()?;
        Some(value.to_owned())
    };
    if let Some(known) = text(asked, header::IF_NONE_MATCH) {
        let strong = |tag: &str| tag.trim().trim_start_matches("W/").to_owned();
        let own = text(own, header::ETAG).map(|own| strong(&own));
        return own.is_some_and(|own| known.split(',').any(|known| strong(known) == own));
    }
    let known = text(asked, header::IF_MODIFIED_SINCE);
    known.is_some() && known == text(own, header::LAST_MODIFIED)
}

/// Which part is wanted.
#[derive(Debug, PartialEq, Eq)]
enum Wanted {
    All,
    Part(Range<u64>),
    Nothing,
}

/// Several ranges, and what cannot be read, mean all of it.
fn wanted(asked: &HeaderMap, own: &HeaderMap, bytes: u64) -> Wanted {
    let range = asked
        .get(header::RANGE)
        .and_then(|range| range.to_str().ok());
    let Some((first, last)) = range
        .and_then(|range| range.strip_prefix("bytes="))
        .and_then(|range| range.split_once('-'))
    else {
        return Wanted::All;
    };
    if let Some(known) = asked.get(header::IF_RANGE) {
        let is_same = [header::ETAG, header::LAST_MODIFIED]
            .iter()
            .any(|name| own.get(name) == Some(known));
        if !is_same {
            return Wanted::All;
        }
    }
    let range = match (first.parse::<u64>(), last.parse::<u64>()) {
        (Ok(first), Ok(last)) if first <= last => first..bytes.min(last.saturating_add(1)),
        (Ok(first), Err(_)) if last.is_empty() => first..bytes,
        (Err(_), Ok(count)) if first.is_empty() => bytes.saturating_sub(count)..bytes,
        _ => return Wanted::All,
    };
    if range.is_empty() {
        return Wanted::Nothing;
    }
    Wanted::Part(range)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_range_is_a_part_and_all_else_is_everything() {
        let own = HeaderMap::new();
        let wanted = |text: &str| {
            let mut asked = HeaderMap::new();
            asked.insert(header::RANGE, text.parse().unwrap());
            wanted(&asked, &own, 10)
        };
        assert_eq!(wanted("bytes=2-4"), Wanted::Part(2..5));
        assert_eq!(wanted("bytes=2-"), Wanted::Part(2..10));
        assert_eq!(wanted("bytes=-3"), Wanted::Part(7..10));
        assert_eq!(wanted("bytes=-30"), Wanted::Part(0..10));
        assert_eq!(wanted("bytes=8-99"), Wanted::Part(8..10));
        assert_eq!(wanted("bytes=10-"), Wanted::Nothing);
        assert_eq!(wanted("bytes=-0"), Wanted::Nothing);
        for text in [
            "bytes=1-2,4-5",
            "bytes=5-2",
            "lines=1-2",
            "bytes=a-b",
            "bytes=-",
        ] {
            assert_eq!(wanted(text), Wanted::All, "{text}");
        }
    }

    #[test]
    fn a_container_that_has_it_hears_that_it_has_not_changed() {
        let pair = |name: header::HeaderName, value: &str| {
            HeaderMap::from_iter([(name, value.parse().unwrap())])
        };
        let own = pair(header::ETAG, "\"x\"");
        assert!(is_unchanged(
            &own,
            &pair(header::IF_NONE_MATCH, "\"a\", W/\"x\"")
        ));
        assert!(!is_unchanged(&own, &pair(header::IF_NONE_MATCH, "\"y\"")));
        assert!(!is_unchanged(&own, &HeaderMap::new()));
    }
}
