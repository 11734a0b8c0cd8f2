//! Secrets that the broker sets in requests, so that no container has them.
//!
//! ```text
//! env, file, command ─▶ value ─▶ header of the request ─▶ host ─▶ response ─▶ scrubbed ─▶ container
//! ```
//!
//! A value is read on the host when a request needs it. It is in no log, no error and no `Debug`;
//! our own copies are zeroised. Those that HTTP makes while it writes a request are not.

mod header;
mod inside;
mod length;
mod name;
mod scrub;
mod source;
mod value;

use std::sync::Arc;

use http::HeaderValue;

pub use self::header::{SecretHeader, SecretHeaderError};
pub use self::inside::{INSIDE_WORD, InsideName, InsideNameError};
pub use self::length::SecretLength;
pub use self::name::{SecretName, SecretNameError};
pub(crate) use self::scrub::{Scrub, ScrubbedBody};
pub use self::source::{SecretError, SecretSource, SecretSourceError};

use self::source::Reader;

/// One `[secret.NAME]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretSettings {
    /// Where its value is.
    pub from: SecretSource,
    /// The header that carries it.
    pub header: SecretHeader,
    /// A variable that programs inside want to see set. Its value there means nothing.
    pub inside: Option<InsideName>,
}

/// A secret that rules can name.
#[derive(Debug)]
pub struct Secret {
    name: SecretName,
    header: SecretHeader,
    inside: Option<InsideName>,
    reader: Reader,
}

/// What one request needs.
pub(crate) struct Use {
    /// Marked as sensitive: HTTP/2 does not remember it, `Debug` does not show it.
    pub(crate) value: HeaderValue,
    /// Keeps it out of the response.
    pub(crate) scrub: Arc<Scrub>,
}

impl Secret {
    pub(crate) fn new(name: SecretName, settings: SecretSettings) -> Self {
        Self {
            name,
            header: settings.header,
            inside: settings.inside,
            reader: Reader::new(settings.from),
        }
    }

    /// What rules call it.
    pub fn name(&self) -> &SecretName {
        &self.name
    }

    /// The header that carries it.
    pub fn header(&self) -> &SecretHeader {
        &self.header
    }

    /// The variable that programs inside want to see set.
    pub fn inside(&self) -> Option<&InsideName> {
        self.inside.as_ref()
    }

    /// Reads the value and prepares to send it. Nothing about it is told but how long it is,
    /// roughly.
    pub async fn test(&self) -> Result<SecretLength, SecretError> {
        self.prepare().await?;
        let value = self.reader.read().await?;
        Ok(SecretLength::of(value.as_bytes().len()))
    }

    /// Reads the value and makes what a request needs.
    pub(crate) async fn prepare(&self) -> Result<Use, SecretError> {
        let value = self.reader.read().await?;
        let rendered = self.header.render(&value);
        let mut header =
            HeaderValue::from_bytes(&rendered.text).map_err(|_| SecretError::Characters)?;
        header.set_sensitive(true);
        Ok(Use {
            value: header,
            scrub: Arc::new(Scrub::new(&value, &rendered.credential)),
        })
    }
}

/// By name: a policy has one secret of each.
impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Secret {}
