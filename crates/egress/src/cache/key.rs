//! What a download is kept under: the URL, and the few differences between requests that matter.

use http::{HeaderMap, Method, Request, header};
use http_body::Body;
use sha2::{Digest as _, Sha256};

use crate::HostName;
use crate::http::Scheme;

/// Longest path that is kept.
const PATH_BYTES_MAX: usize = 2048;

/// Names what is kept in files.
pub(crate) type Hash = [u8; 32];

/// One representation of one URL.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) scheme: Scheme,
    pub(crate) host: HostName,
    pub(crate) port: u16,
    pub(crate) path: String,
    pub(crate) accept: Accept,
    pub(crate) is_gzip: bool,
}

/// The representations that package indexes offer. Whatever a container accepts becomes one of
/// these, and what is sent to the host depends on nothing else: otherwise a container could have
/// the host answer something that others do not expect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Accept {
    Any,
    /// Python's index as JSON.
    PythonJson,
    /// npm's short documents.
    NpmShort,
}

impl Accept {
    fn of(headers: &HeaderMap) -> Self {
        let accepts = |kind: &str| {
            let mut values = headers.get_all(header::ACCEPT).iter();
            values.any(|value| value.to_str().is_ok_and(|value| value.contains(kind)))
        };
        if accepts("application/vnd.pypi.simple.v1+json") {
            Self::PythonJson
        } else if accepts("application/vnd.npm.install-v1+json") {
            Self::NpmShort
        } else {
            Self::Any
        }
    }

    /// What the host is sent.
    pub(crate) fn header(self) -> &'static str {
        match self {
            Self::Any => "*/*",
            Self::PythonJson => {
                "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.01"
            }
            Self::NpmShort => {
                "application/vnd.npm.install-v1+json; q=1.0, application/json; q=0.8, */*"
            }
        }
    }
}

impl Key {
    /// The key of a request; `None` if its answer is for its sender only. Queries are, because with
    /// them a container could fill the cache with as many entries as it likes.
    pub(crate) fn of<B: Body>(
        scheme: Scheme,
        host: &HostName,
        port: u16,
        request: &Request<B>,
    ) -> Option<Self> {
        let headers = request.headers();
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        let is_personal = [header::AUTHORIZATION, header::COOKIE]
            .iter()
            .any(|name| headers.contains_key(name));
        let path = request.uri().path();
        if !is_read
            || is_personal
            || !request.body().is_end_stream()
            || request.uri().query().is_some()
            || path.len() > PATH_BYTES_MAX
        {
            return None;
        }
        let mut encodings = headers.get_all(header::ACCEPT_ENCODING).iter();
        let accepts_gzip =
            encodings.any(|value| value.to_str().is_ok_and(|value| value.contains("gzip")));
        let mut key = Self {
            scheme,
            host: host.clone(),
            port,
            path: path.to_owned(),
            accept: Accept::of(headers),
            is_gzip: accepts_gzip,
        };
        if is_immutable_path(path) {
            // Archives are compressed already: one entry for all who want them.
            key.accept = Accept::Any;
            key.is_gzip = false;
        }
        Some(key)
    }

    /// The name of its file.
    pub(crate) fn hash(&self) -> Hash {
        let Self {
            scheme,
            host,
            port,
            path,
            accept,
            is_gzip,
        } = self;
        let text = format!("{scheme:?}\n{host}\n{port}\n{path}\n{accept:?}\n{is_gzip}");
        Sha256::digest(text.as_bytes()).into()
    }

    /// Whether what it names never changes. Without TLS anybody on the way may have answered, so
    /// nothing of that is kept for ever.
    pub(crate) fn is_immutable(&self) -> bool {
        self.scheme == Scheme::Https && is_immutable_path(&self.path)
    }

    /// The digest that a path promises, as Debian's `by-hash` does.
    pub(crate) fn promised_digest(&self) -> Option<&str> {
        let (_, digest) = self.path.rsplit_once("/by-hash/SHA256/")?;
        (digest.len() == 64).then_some(digest)
    }
}

/// Wheels, sdists, tarballs, crates, packages and modules: a file of a release, by its version.
fn is_immutable_path(path: &str) -> bool {
    let ends = |suffixes: &[&str]| suffixes.iter().any(|suffix| path.ends_with(suffix));
    let is_python = ends(&[".whl", ".whl.metadata"])
        || (path.starts_with("/packages/") && ends(&[".tar.gz", ".zip", ".tar.bz2"]));
    let is_npm = path.contains("/-/") && ends(&[".tgz"]);
    let is_cargo = ends(&[".crate"])
        || (path.starts_with("/crates/") && path.matches('/').count() == 4 && ends(&["/download"]));
    let is_go = path.contains("/@v/v") && ends(&[".zip", ".mod", ".info"]);
    let is_debian = path.contains("/by-hash/") || (path.contains("/pool/") && ends(&[".deb"]));
    is_python || is_npm || is_cargo || is_go || is_debian
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(uri: &str, headers: &[(&str, &str)]) -> Option<Key> {
        let mut request = Request::builder().uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(http_body_util::Empty::<bytes::Bytes>::new());
        let host = HostName::parse("example.com").unwrap();
        Key::of(Scheme::Https, &host, 443, &request.unwrap())
    }

    #[test]
    fn what_is_for_one_sender_has_no_key() {
        assert!(key("/simple/x/", &[]).is_some());
        assert!(key("/simple/x/?a=b", &[]).is_none());
        assert!(key("/simple/x/", &[("authorization", "Basic x")]).is_none());
        assert!(key("/simple/x/", &[("cookie", "a=b")]).is_none());
        assert!(key(&format!("/{}", "a".repeat(PATH_BYTES_MAX)), &[]).is_none());
    }

    #[test]
    fn requests_that_want_the_same_share_a_key_and_others_do_not() {
        let json = "application/vnd.pypi.simple.v1+json, text/html;q=0.1";
        let odd = "text/html, application/vnd.pypi.simple.v1+json;q=0.01";
        let hash = |headers: &[(&str, &str)]| key("/simple/x/", headers).unwrap().hash();
        assert_eq!(hash(&[("accept", json)]), hash(&[("accept", odd)]));
        assert_ne!(hash(&[("accept", json)]), hash(&[]));
        assert_ne!(hash(&[("accept-encoding", "gzip, br")]), hash(&[]));
        assert_eq!(
            hash(&[("user-agent", "pip/1")]),
            hash(&[("user-agent", "uv/1")])
        );
        let wheel = |headers: &[(&str, &str)]| key("/packages/a/x-1.whl", headers).unwrap();
        assert_eq!(wheel(&[("accept-encoding", "gzip")]), wheel(&[]));
    }

    #[test]
    fn files_of_releases_never_change_and_indexes_do() {
        for path in [
            "/packages/ab/cd/x-1.0-py3-none-any.whl",
            "/packages/ab/cd/x-1.0.tar.gz",
            "/x/-/x-1.0.0.tgz",
            "/crates/serde/1.0.0/download",
            "/github.com/a/b/@v/v1.0.0.zip",
            "/debian/pool/main/a/a_1_amd64.deb",
            "/debian/dists/x/by-hash/SHA256/00",
        ] {
            assert!(key(path, &[]).unwrap().is_immutable(), "{path}");
        }
        for path in [
            "/simple/x/",
            "/latest.tar.gz",
            "/se/rd/serde",
            "/github.com/a/b/@v/list",
            "/github.com/a/b/@latest",
            "/debian/dists/x/InRelease",
        ] {
            assert!(!key(path, &[]).unwrap().is_immutable(), "{path}");
        }
    }
}
