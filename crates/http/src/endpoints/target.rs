//! The target of a URL: a container, a path in it, and query parameters. Values are bytes, like
//! file names.

use hotcell_domain::ContainerRef;
use hotcell_service::{FilePath, ServiceError};
use http::Uri;
use percent_encoding::percent_decode;

use crate::error::HttpError;

const CONTAINERS: &str = "/v1/containers/";
const FILES: &str = "files/";

const PARAMETERS_MAX: usize = 256;

/// Query parameters, in order.
pub(super) struct Query(Vec<(String, Vec<u8>)>);

/// The container in a URL's path.
pub(super) fn container(uri: &Uri) -> Result<ContainerRef, HttpError> {
    let name = split(uri).map_or("", |(name, _)| name);
    let name = percent_decode(name.as_bytes()).decode_utf8_lossy();
    let parsed = ContainerRef::parse(&name);
    parsed.ok_or_else(|| {
        let name = name.into_owned();
        ServiceError::NotFound {
            what: "container",
            name,
        }
        .into()
    })
}

/// The file in a URL's path.
pub(super) fn file(uri: &Uri) -> Result<FilePath, HttpError> {
    let path = split(uri).and_then(|(_, rest)| rest.strip_prefix(FILES));
    let path: Vec<u8> = percent_decode(path.unwrap_or_default().as_bytes()).collect();
    Ok(FilePath::parse(&path)?)
}

fn split(uri: &Uri) -> Option<(&str, &str)> {
    uri.path().strip_prefix(CONTAINERS)?.split_once('/')
}

impl Query {
    /// Parses a query that may only contain `known` parameters.
    pub(super) fn parse(uri: &Uri, known: &[&str]) -> Result<Self, HttpError> {
        let pairs = uri
            .query()
            .unwrap_or_default()
            .split('&')
            .filter(|pair| !pair.is_empty());
        let mut parameters = Vec::new();
        for pair in pairs {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            if !known.contains(&name) {
                let message = format!("a parameter is not one of {}", known.join(", "));
                return Err(HttpError::invalid(&message));
            }
            if parameters.len() >= PARAMETERS_MAX {
                let message = format!("there are more than {PARAMETERS_MAX} parameters");
                return Err(HttpError::invalid(&message));
            }
            parameters.push((name.to_owned(), decode(value)));
        }
        Ok(Self(parameters))
    }

    /// A parameter that must not be repeated.
    pub(super) fn single(&self, name: &str) -> Result<Option<&[u8]>, HttpError> {
        let mut values = self.values(name);
        match (values.next(), values.next()) {
            (value, None) => Ok(value),
            _ => Err(HttpError::invalid(&format!("`{name}` is there twice"))),
        }
    }

    /// A path parameter; the workspace itself if it is missing.
    pub(super) fn path(&self, name: &str) -> Result<Option<FilePath>, HttpError> {
        let path = self.single(name)?;
        Ok(path.map(FilePath::parse).transpose()?)
    }

    /// A parameter that is `true` or `false`.
    pub(super) fn flag(&self, name: &str, default: bool) -> Result<bool, HttpError> {
        match self.single(name)? {
            None => Ok(default),
            Some(b"true") => Ok(true),
            Some(b"false") => Ok(false),
            Some(_) => Err(HttpError::invalid(&format!(
                "`{name}` must be true or false"
            ))),
        }
    }

    /// All values of a text parameter.
    pub(super) fn texts(&self, name: &str) -> Result<Vec<String>, HttpError> {
        let text = |value: &[u8]| String::from_utf8(value.to_vec());
        let texts = self.values(name).map(text).collect::<Result<_, _>>();
        texts.map_err(|_| HttpError::invalid(&format!("`{name}` must be UTF-8")))
    }

    fn values(&self, name: &str) -> impl Iterator<Item = &[u8]> {
        let named = move |(known, _): &&(String, Vec<u8>)| known == name;
        self.0
            .iter()
            .filter(named)
            .map(|(_, value)| value.as_slice())
    }
}

/// In a query, a plus is a space.
fn decode(value: &str) -> Vec<u8> {
    percent_decode(value.replace('+', " ").as_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uri(text: &str) -> Uri {
        text.parse().unwrap()
    }

    #[test]
    fn a_path_may_have_any_byte_but_nul() {
        let path = |text: &str| file(&uri(&format!("/v1/containers/app/files/{text}")));
        assert_eq!(path("a/b%20c").unwrap().as_bytes(), b"a/b c");
        assert_eq!(
            path("new%0Aline+plus%2Fslash").unwrap().as_bytes(),
            b"new\nline+plus/slash"
        );
        assert_eq!(path("%FF%zz").unwrap().as_bytes(), b"\xff%zz");
        assert_eq!(path("a%00b").unwrap_err().status(), 400);
    }

    #[test]
    fn what_cannot_name_a_container_is_not_found() {
        let name = |text: &str| container(&uri(&format!("/v1/containers/{text}/archive")));
        assert_eq!(name("app").unwrap().to_string(), "app");
        assert_eq!(name("%2e%2e").unwrap_err().status(), 404);
        assert_eq!(name("A%0A").unwrap_err().status(), 404);
    }

    #[test]
    fn a_query_is_read_strictly() {
        let known = ["path", "include", "gzip"];
        let query = |text: &str| Query::parse(&uri(&format!("/?{text}")), &known);
        let read = query("path=a%2Bb+c&include=*.rs&include=%C3%A4&gzip=false").unwrap();
        assert_eq!(read.single("path").unwrap(), Some(&b"a+b c"[..]));
        assert_eq!(read.texts("include").unwrap(), ["*.rs", "ä"]);
        assert!(!read.flag("gzip", true).unwrap());
        assert_eq!(query("pth=a").err().unwrap().status(), 400);
        assert_eq!(
            query("gzip=yes")
                .unwrap()
                .flag("gzip", true)
                .unwrap_err()
                .status(),
            400
        );
        assert!(query("path=a&path=b").unwrap().single("path").is_err());
        assert!(query("include=%ff").unwrap().texts("include").is_err());
        assert!(query(&"include=a&".repeat(257)).is_err());
    }
}
