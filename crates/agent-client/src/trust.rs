//! Certificates that programs in a container trust.

use bytes::Bytes;
use hotcell_agent_api::bounds::PATH_BYTES_MAX;
use hotcell_agent_api::v1::TrustRequest;

use crate::{Agent, AgentError, Feature};

/// Absolute paths of certificates inside a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustFiles {
    /// The image's certificates and the authority, as PEM.
    pub bundle: String,
    /// The authority alone, as PEM.
    pub authority: String,
    /// The same as `bundle`, as a Java key store that needs no password.
    pub java_store: String,
}

impl Agent {
    /// Has the agent write certificates to a directory, relative to its root: the image's own
    /// merged with `authority`, which is PEM. Idempotent.
    pub async fn trust(&self, authority: &str, directory: &str) -> Result<TrustFiles, AgentError> {
        self.require(Feature::Trust)?;
        let request = TrustRequest {
            authority: Bytes::copy_from_slice(authority.as_bytes()),
            directory: Bytes::copy_from_slice(directory.as_bytes()),
        };
        let reply = self.calls().trust(request).await?.into_inner();
        let expected = format!("{}/{directory}/", self.hello().root);
        Ok(TrustFiles {
            bundle: parse_path(&reply.bundle, &expected)?,
            authority: parse_path(&reply.authority, &expected)?,
            java_store: parse_path(&reply.java_store, &expected)?,
        })
    }
}

/// A path that may become the value of a variable: a plain name in the directory that was named.
fn parse_path(path: &[u8], directory: &str) -> Result<String, AgentError> {
    const WRONG: AgentError = AgentError::Protocol("a path of its certificates cannot be one");
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    let path = str::from_utf8(path).map_err(|_| WRONG)?;
    let name = path.strip_prefix(directory).ok_or(WRONG)?;
    let is_legal = !name.is_empty() && name.bytes().all(is_plain) && path.len() <= PATH_BYTES_MAX;
    is_legal.then(|| path.to_owned()).ok_or(WRONG)
}
