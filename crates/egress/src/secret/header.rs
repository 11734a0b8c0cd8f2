//! How a secret stands in a request.

use std::fmt;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::{HeaderName, HeaderValue, header};
use zeroize::Zeroizing;

use super::value::{Bytes, Value};

/// Where the value goes.
const PLACE: &str = "{}";

/// Headers that say how a request is read. A secret in one of them would change the request.
const STRUCTURAL: [HeaderName; 8] = [
    header::HOST,
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::TE,
    header::TRAILER,
    header::EXPECT,
];

/// The header that carries a secret: `Authorization: Bearer {}`, or a user and password for HTTP's
/// basic authentication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretHeader {
    name: HeaderName,
    before: String,
    after: String,
    is_basic: bool,
}

/// Not a header for a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretHeaderError {
    /// No such header.
    #[error(
        "`{0}`: write the header of a secret as \"NAME: VALUE\" with one {{}} in the value, such as \"Authorization: Bearer {{}}\""
    )]
    Header(String),
    /// No user and password.
    #[error(
        "`{0}`: write `basic` as \"USER:PASSWORD\" with one {{}} in it, such as \"x-access-token:{{}}\""
    )]
    Basic(String),
    /// No such preset.
    #[error("unknown preset `{0}`; there are git, python, npm, cargo")]
    Preset(String),
}

/// A header's value, and the credential in it as the host may repeat it.
pub(super) struct Rendered {
    pub(super) text: Bytes,
    pub(super) credential: Bytes,
}

impl SecretHeader {
    /// Parses `header = "Authorization: Bearer {}"`.
    pub fn header(text: &str) -> Result<Self, SecretHeaderError> {
        let wrong = || SecretHeaderError::Header(text.to_owned());
        let (name, value) = text.split_once(':').ok_or_else(wrong)?;
        let name: HeaderName = name.parse().map_err(|_| wrong())?;
        let value = value.trim();
        HeaderValue::from_str(value).map_err(|_| wrong())?;
        if STRUCTURAL.contains(&name) {
            return Err(wrong());
        }
        Self::new(name, value, false).ok_or_else(wrong)
    }

    /// Parses `basic = "x-access-token:{}"`.
    pub fn basic(text: &str) -> Result<Self, SecretHeaderError> {
        let wrong = || SecretHeaderError::Basic(text.to_owned());
        let is_pair = text.contains(':') && text.bytes().all(|byte| byte.is_ascii_graphic());
        let header = Self::new(header::AUTHORIZATION, text, true);
        header.filter(|_| is_pair).ok_or_else(wrong)
    }

    /// What well-known clients send: `git` over HTTPS, and private indexes of `python`, `npm` and
    /// `cargo`.
    pub fn preset(name: &str) -> Result<Self, SecretHeaderError> {
        match name {
            "git" => Self::basic("x-access-token:{}"),
            "python" => Self::basic("__token__:{}"),
            "npm" => Self::header("Authorization: Bearer {}"),
            "cargo" => Self::header("Authorization: {}"),
            other => Err(SecretHeaderError::Preset(other.to_owned())),
        }
    }

    fn new(name: HeaderName, value: &str, is_basic: bool) -> Option<Self> {
        let (before, after) = value.split_once(PLACE)?;
        (!after.contains(PLACE)).then(|| Self {
            name,
            before: before.to_owned(),
            after: after.to_owned(),
            is_basic,
        })
    }

    /// The name of the header.
    pub fn name(&self) -> &HeaderName {
        &self.name
    }

    /// The header with a mark in place of the value.
    pub fn masked(&self) -> String {
        let (name, before, after) = (&self.name, &self.before, &self.after);
        if self.is_basic {
            return format!("{name}: Basic base64({before}***{after})");
        }
        format!("{name}: {before}***{after}")
    }

    pub(super) fn render(&self, value: &Value) -> Rendered {
        let capacity = self.before.len() + value.as_bytes().len() + self.after.len();
        let mut text = Zeroizing::new(Vec::with_capacity(capacity));
        text.extend_from_slice(self.before.as_bytes());
        text.extend_from_slice(value.as_bytes());
        text.extend_from_slice(self.after.as_bytes());
        if !self.is_basic {
            let credential = Zeroizing::new(value.as_bytes().to_vec());
            return Rendered { text, credential };
        }
        let encoded = Zeroizing::new(BASE64_STANDARD.encode(&*text));
        let mut text = Zeroizing::new(Vec::with_capacity("Basic ".len() + encoded.len()));
        text.extend_from_slice(b"Basic ");
        text.extend_from_slice(encoded.as_bytes());
        let credential = encoded.trim_end_matches('=').as_bytes().to_vec();
        Rendered {
            text,
            credential: Zeroizing::new(credential),
        }
    }
}

/// The template, never the value.
impl fmt::Display for SecretHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let basic = if self.is_basic { "Basic " } else { "" };
        let (before, after) = (&self.before, &self.after);
        write!(f, "{}: {basic}{before}{PLACE}{after}", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(header: &SecretHeader) -> String {
        let value = Value::parse(b"a-secret-value").unwrap();
        String::from_utf8(header.render(&value).text.to_vec()).unwrap()
    }

    #[test]
    fn a_secret_stands_in_the_header_that_the_operator_wrote() {
        let bearer = SecretHeader::header("Authorization: Bearer {}").unwrap();
        assert_eq!(rendered(&bearer), "Bearer a-secret-value");
        let own = SecretHeader::header("X-Key: k={};v=1").unwrap();
        assert_eq!(own.name(), "x-key");
        assert_eq!(rendered(&own), "k=a-secret-value;v=1");
        let git = SecretHeader::preset("git").unwrap();
        assert_eq!(
            rendered(&git),
            format!(
                "Basic {}",
                BASE64_STANDARD.encode("x-access-token:a-secret-value")
            )
        );
        for preset in ["git", "python", "npm", "cargo"] {
            let header = SecretHeader::preset(preset).unwrap();
            assert_eq!(header.name(), header::AUTHORIZATION);
        }
    }

    #[test]
    fn a_header_without_one_place_or_one_that_changes_the_request_is_refused() {
        for text in [
            "Authorization",
            "Authorization: Bearer",
            "Authorization: {} {}",
            "Bad Name: {}",
            ": {}",
            "X-Key: {}\r\nX-Other: y",
            "Host: {}",
            "Content-Length: {}",
            "Transfer-Encoding: {}",
        ] {
            assert!(SecretHeader::header(text).is_err(), "{text:?}");
        }
        for text in ["{}", "user", "user:", "user:{}{}", "us er:{}"] {
            assert!(SecretHeader::basic(text).is_err(), "{text:?}");
        }
        assert!(SecretHeader::preset("nope").is_err());
    }
}
