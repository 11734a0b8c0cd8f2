//! Parses what containers send without a connection, for fuzz targets.
//!
//! Each function takes arbitrary bytes and panics if something beyond its bounds gets through.

use std::net::IpAddr;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use crate::HostName;
use crate::dns::{Answer, Query};
use crate::door::{self, ProxyTarget};
use crate::hello;
use crate::pattern::Pattern;
use crate::policy::Access;

/// A DNS query. An answer is never longer than what one query can make the server send.
pub fn query(bytes: &[u8]) {
    if let Some(query) = Query::parse(bytes) {
        if let Some(name) = &query.name {
            check(name);
        }
        for answer in [Answer::NoData, Answer::NoSuchName, Answer::Refused] {
            assert!(query.answer(&answer).len() <= bytes.len());
        }
    }
}

/// The first message of a TLS connection.
pub fn client_hello(bytes: &[u8]) {
    let mut stream = bytes;
    if let Some(Ok(hello)) = ready(hello::read(&mut stream)) {
        assert!(bytes.starts_with(&hello.bytes));
        if let Some(name) = &hello.name {
            check(name);
        }
    }
}

/// What a program sends to a SOCKS5 proxy: a greeting, then a request.
pub fn socks(bytes: &[u8]) {
    let mut stream = bytes;
    let greeting = ready(door::read_greeting(&mut stream));
    let read_bytes = bytes.len() - stream.len();
    assert!(read_bytes <= 2 + 255);
    if let Some(Ok(())) = greeting
        && let Some(Ok(target)) = ready(door::read_request(&mut stream))
    {
        assert!(target.port > 0);
        check(&target.name);
    }
}

/// What a program sends to an HTTP proxy as the target of `CONNECT`.
pub fn connect(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    if let Ok(target) = ProxyTarget::parse(text) {
        assert!(target.port > 0);
        check(&target.name);
        let shown = format!("{}:{}", target.name, target.port);
        assert_eq!(ProxyTarget::parse(&shown), Ok(target));
    }
}

/// A future whose bytes are all there.
fn ready<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

/// A host, a pattern and a path.
pub fn text(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    if let Ok(name) = HostName::parse(text) {
        check(&name);
    }
    if let Ok(pattern) = Pattern::parse(text) {
        assert_eq!(Pattern::parse(&pattern.to_string()), Ok(pattern));
    }
    let below = Access::parse("GET /a/**").expect("an access");
    if below.allows("GET", text, None, false) {
        assert!(text.starts_with("/a/") && !text.contains("/../"));
    }
}

/// A name means itself, and no program reads it as an address.
fn check(name: &HostName) {
    assert_eq!(HostName::parse(name.as_str()).as_ref(), Ok(name));
    assert!(name.as_str().parse::<IpAddr>().is_err());
}
