//! The HTTP client, and which redirects it follows.

use std::net::IpAddr;

use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder, Url};

use super::address::is_public;
use super::resolve::GuardedResolver;
use crate::ImageError;
use crate::bounds::{Bounds, REDIRECTS_MAX};

/// Follows redirects to where a registry stores its blobs.
pub(super) fn following(bounds: &Bounds, registry: &Url) -> Result<Client, ImageError> {
    let own = registry.clone();
    let policy =
        Policy::custom(
            move |attempt| match may_follow(&own, attempt.previous(), attempt.url()) {
                Ok(()) => attempt.follow(),
                Err(reason) => attempt.error(reason),
            },
        );
    let mut builder = builder(bounds).redirect(policy);
    if registry.scheme() == "http" {
        let host = registry.host_str().unwrap_or_default();
        builder = builder.dns_resolver(GuardedResolver::new(host, is_loopback(registry)));
    }
    built(builder)
}

/// Follows no redirects, because it sends a secret, or because the answer must come from that host
/// itself.
pub(super) fn staying(bounds: &Bounds) -> Result<Client, ImageError> {
    built(builder(bounds).redirect(Policy::none()))
}

fn builder(bounds: &Bounds) -> ClientBuilder {
    // The first one in the process is used; any of them would do.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder()
        .user_agent(concat!("hotcell/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(bounds.connect_timeout)
}

fn built(builder: ClientBuilder) -> Result<Client, ImageError> {
    builder.build().map_err(|error| {
        ImageError::disk("read this host's certificates")(std::io::Error::other(error))
    })
}

/// Whether two URLs have the same scheme, host and port.
pub(super) fn is_same_origin(one: &Url, other: &Url) -> bool {
    one.origin().is_tuple() && one.origin() == other.origin()
}

/// Never from TLS to plain HTTP. Anyone between us and a registry without TLS can forge its
/// answers, so it may redirect only to itself, to another port of its own host without TLS, or to
/// the public internet with TLS; a registry on this host also to others on this host.
/// [`GuardedResolver`] checks the addresses of names when they are resolved.
fn may_follow(registry: &Url, previous: &[Url], next: &Url) -> Result<(), &'static str> {
    if previous.len() > REDIRECTS_MAX {
        return Err("too many redirects");
    }
    let is_plain = registry.scheme() == "http";
    let is_own = registry.host_str() == next.host_str();
    let stays_here = is_loopback(registry) && is_loopback(next);
    let was_plain = previous.iter().all(|url| url.scheme() == "http");
    match next.scheme() {
        "https" if !is_plain || is_own || stays_here => Ok(()),
        "https" => match address(next) {
            Some(address) if !is_public(address) => Err("a redirect to a private address"),
            _ => Ok(()),
        },
        "http" if is_plain && was_plain => {
            if is_own || stays_here {
                Ok(())
            } else {
                Err("a redirect to another host without TLS")
            }
        }
        _ => Err("a redirect away from TLS"),
    }
}

fn is_loopback(url: &Url) -> bool {
    let is_here = |address: IpAddr| address.to_canonical().is_loopback();
    url.host_str() == Some("localhost") || address(url).is_some_and(is_here)
}

/// The IP address in a URL, if its host is one.
fn address(url: &Url) -> Option<IpAddr> {
    let host = url.host_str()?;
    host.trim_start_matches('[')
        .trim_end_matches(']')
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the last redirect of a chain that starts at a registry is followed.
    fn goes(way: &[&str]) -> bool {
        let way: Vec<_> = way.iter().map(|url| Url::parse(url).unwrap()).collect();
        let (next, previous) = way.split_last().unwrap();
        may_follow(&way[0], previous, next).is_ok()
    }

    #[test]
    fn redirects_lead_to_tls_and_without_it_to_the_same_host() {
        for way in [
            &["https://a/", "https://b/"][..],
            &["https://a/", "https://10.0.0.1/"],
            &["http://a/", "https://b/"],
            &["http://a/", "https://1.1.1.1/"],
            &["http://a/", "http://a:81/x"],
            &["http://10.0.0.1:5000/", "http://10.0.0.1:9000/"],
            &["http://10.0.0.1:5000/", "https://10.0.0.1/"],
            &["http://127.0.0.1/", "http://127.0.0.1:5000/"],
            &[
                "http://localhost/",
                "http://127.0.0.1:5000/",
                "http://[::1]/",
            ],
            &["http://localhost/", "https://127.0.0.1/"],
        ] {
            assert!(goes(way), "{way:?}");
        }
        for way in [
            &["http://a/", "http://b/"][..],
            &["http://127.0.0.1/", "http://b/"],
            &["http://a/", "http://192.0.2.1/"],
            &["http://a/", "http://localhost.example/"],
            &["https://a/", "http://a/"],
            &["http://a/", "https://a/", "http://a/"],
            &["http://a/", "ftp://a/"],
        ] {
            assert!(!goes(way), "{way:?}");
        }
        assert!(goes(&["https://a/"; REDIRECTS_MAX + 1]));
        assert!(!goes(&["https://a/"; REDIRECTS_MAX + 2]));
    }

    #[test]
    fn a_registry_without_tls_leads_to_no_private_address() {
        for way in [
            &["http://a/", "http://127.0.0.1:5000/"][..],
            &["http://a/", "http://[::1]:5000/"],
            &["http://a/", "http://0x7f.1/"],
            &["http://a/", "http://localhost/", "http://a/"],
            &["http://a/", "http://169.254.169.254/latest/"],
            &["http://a/", "https://127.0.0.1/"],
            &["http://a/", "https://169.254.169.254/"],
            &["http://a/", "https://[::ffff:10.0.0.1]/"],
            &["http://10.0.0.1/", "https://10.0.0.2/"],
            &["http://127.0.0.1/", "https://10.0.0.2/"],
        ] {
            let (start, end) = (way[0], way[1]);
            assert!(!goes(&[start, end]), "{way:?}");
        }
    }

    #[test]
    fn an_origin_is_scheme_host_and_port() {
        let is_same = |one: &str, other: &str| {
            is_same_origin(&Url::parse(one).unwrap(), &Url::parse(other).unwrap())
        };
        assert!(is_same("https://a/x", "https://A:443/y?z"));
        for other in ["http://a/", "https://a:444/", "https://b/", "https://a.b/"] {
            assert!(!is_same("https://a/", other), "{other}");
        }
        assert!(!is_same("data:x", "data:x"));
    }
}
