//! The HTTP client, and where a registry may send it.

use reqwest::redirect::Policy;
use reqwest::{Client, Url};

use crate::ImageError;
use crate::bounds::{Bounds, REDIRECTS_MAX};

/// Follows a registry to where its blobs are stored.
pub(super) fn following(bounds: &Bounds, is_plain_allowed: bool) -> Result<Client, ImageError> {
    let policy = Policy::custom(move |attempt| {
        match may_follow(attempt.previous(), attempt.url(), is_plain_allowed) {
            Ok(()) => attempt.follow(),
            Err(reason) => attempt.error(reason),
        }
    });
    client(bounds, policy)
}

/// Stays where it is sent first, because what it brings is a secret.
pub(super) fn staying(bounds: &Bounds) -> Result<Client, ImageError> {
    client(bounds, Policy::none())
}

fn client(bounds: &Bounds, policy: Policy) -> Result<Client, ImageError> {
    // Whoever was first decides for the whole process; all of them would do.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = Client::builder()
        .user_agent(concat!("hotcell/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(bounds.connect_timeout)
        .redirect(policy)
        .build();
    client.map_err(|error| {
        ImageError::disk("read this host's certificates")(std::io::Error::other(error))
    })
}

/// Never from TLS to plain, and without TLS only to the registry's own host or to this one.
fn may_follow(previous: &[Url], next: &Url, is_plain_allowed: bool) -> Result<(), &'static str> {
    if previous.len() > REDIRECTS_MAX {
        return Err("too many redirects");
    }
    if next.scheme() == "https" {
        return Ok(());
    }
    let was_plain = previous.iter().all(|url| url.scheme() == "http");
    if next.scheme() != "http" || !is_plain_allowed || !was_plain {
        return Err("a redirect away from TLS");
    }
    let is_own = previous.first().map(Url::host_str) == Some(next.host_str());
    if !is_own && !is_loopback(next) {
        return Err("a redirect to another host without TLS");
    }
    Ok(())
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']');
    let address: Option<std::net::IpAddr> = address.parse().ok();
    host == "localhost" || address.is_some_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn goes(way: &[&str], is_plain_allowed: bool) -> bool {
        let way: Vec<_> = way.iter().map(|url| Url::parse(url).unwrap()).collect();
        let (next, previous) = way.split_last().unwrap();
        may_follow(previous, next, is_plain_allowed).is_ok()
    }

    #[test]
    fn redirects_lead_to_tls_and_without_it_to_the_same_host_or_this_one() {
        for way in [
            &["https://a/", "https://b/"][..],
            &["http://a/", "https://b/"],
            &["http://a/", "http://a:81/x"],
            &["http://a/", "http://127.0.0.1:5000/"],
            &["http://a/", "http://[::1]:5000/"],
            &["http://a/", "http://localhost/", "http://a/"],
        ] {
            assert!(goes(way, true), "{way:?}");
        }
        for way in [
            &["http://a/", "http://b/"][..],
            &["http://a/", "http://127.0.0.1/", "http://b/"],
            &["http://a/", "http://192.0.2.1/"],
            &["http://a/", "http://localhost.example/"],
            &["https://a/", "http://a/"],
            &["http://a/", "https://a/", "http://a/"],
            &["http://a/", "ftp://a/"],
        ] {
            assert!(!goes(way, true), "{way:?}");
        }
        assert!(!goes(&["http://a/", "http://a/x"], false));
        assert!(goes(&["https://a/"; REDIRECTS_MAX + 1], false));
        assert!(!goes(&["https://a/"; REDIRECTS_MAX + 2], false));
    }
}
